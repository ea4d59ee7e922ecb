# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The registry of noise families."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from glc_hf import CorruptionMatrix
from glc_hf.noise import families
from glc_hf.noise.families import WEAK, noise_families, noise_family, noise_matrix


def test_the_paper_s_families_come_first_and_have_the_matrices_of_corruption_matrix():
    assert noise_families()[:3] == ("uniform", "flip", "hierarchical")
    assert WEAK not in noise_families()
    names = ["a", "b", "c", "d"]
    assert noise_matrix("uniform", 4, 0.6, seed=3, label_names=names) == CorruptionMatrix.uniform(4, 0.6, names)
    assert noise_matrix("flip", 4, 0.6, seed=3) == CorruptionMatrix.flip(4, 0.6, seed=3)
    assert noise_matrix("hierarchical", 4, 0.6, groups=[0, 0, 1, 1]) == CorruptionMatrix.hierarchical(
        [0, 0, 1, 1], 0.6
    )


def test_a_registered_family_is_listed_and_built(monkeypatch):
    monkeypatch.setattr(families, "_FAMILIES", dict(families._FAMILIES))

    @noise_family("next_class")
    def next_class(num_labels, strength, seed, groups):
        identity = np.eye(num_labels)
        return CorruptionMatrix((1 - strength) * identity + strength * np.roll(identity, 1, axis=1))

    assert noise_families()[-1] == "next_class"
    assert noise_matrix("next_class", 3, 0.25).probs[2].tolist() == [0.25, 0.0, 0.75]
    for name in ("next_class", "uniform", "weak", "none"):
        with pytest.raises(ValueError, match=f"noise family {name!r} already"):
            noise_family(name)(next_class)


def test_bad_arguments_raise_an_error():
    with pytest.raises(ValueError, match="no noise family 'pink'; the families are uniform, flip, hierarchical"):
        noise_matrix("pink", 3, 0.5)
    with pytest.raises(ValueError, match="hierarchical noise needs groups"):
        noise_matrix("hierarchical", 3, 0.5)
    with pytest.raises(ValueError, match="covers 2 classes, the labels have 3"):
        noise_matrix("hierarchical", 3, 0.5, groups=[0, 0])


def test_importing_the_registry_imports_nothing_heavy():
    heavy = ("torch", "transformers", "datasets", "pyarrow")
    code = f"import sys, glc_hf.noise.families; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
