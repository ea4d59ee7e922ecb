# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Private APIs of other libraries."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from transformers import Trainer

from glc_hf import GLCTrainer, _compat


PACKAGE = Path(__file__).parents[1] / "glc_hf"


def test_every_private_method_of_trainer_that_is_overridden_is_listed():
    ours = [cls for cls in GLCTrainer.__mro__ if cls.__module__.startswith("glc_hf")]
    overridden = {name for cls in ours for name in vars(cls) if name.startswith("_") and not name.startswith("__")}
    overridden = {name for name in overridden if callable(getattr(Trainer, name, None))}
    assert overridden == set(_compat.OVERRIDDEN_TRAINER_METHODS)


def test_a_release_of_transformers_without_such_a_method_is_refused_with_its_name():
    class Newer:
        pass

    for name in (*_compat.OVERRIDDEN_TRAINER_METHODS, *_compat.CALLED_TRAINER_METHODS):
        if name != "_run_epoch":
            setattr(Newer, name, None)
    with pytest.raises(ImportError, match=r"has no Trainer\._run_epoch.*constraints\.txt"):
        _compat.check_trainer(Newer)
    _compat.check_trainer(Trainer)


def test_private_attributes_of_datasets_are_used_in_one_place():
    private = {"_data", "_indices", "_fingerprint", "_format_type", "_format_columns", "_ex_iterable", "_slices"}
    uses = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.attr}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "_compat.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in private
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]
    assert not uses
