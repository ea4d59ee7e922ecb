# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from glc_hf import CorruptionMatrix
from glc_hf.matrix import MATRIX_FILE, MATRIX_TENSOR_FILE


EYE = np.eye(3)


def changed(row: int, values: list[float]) -> np.ndarray:
    probs = EYE.copy()
    probs[row] = values
    return probs


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (np.ones((2, 3)) / 3, "2 rows, and row 0 has 3 entries"),
        ([[1, 0], [1]], "2 rows, and row 1 has 1 entries"),
        (np.ones(4), r"square, \(K, K\); this one has shape \(4,\)"),
        ([], "square"),
        (np.ones((2, 2, 2)), "square"),
        (changed(1, [0.0, np.nan, 1.0]), "row 1 .* NaN or infinite"),
        (changed(2, [0.0, np.inf, 1.0]), "row 2 .* NaN or infinite"),
        (changed(2, [0.5, -0.5, 1.0]), "row 2 .* negative"),
        (changed(1, [0.5, 0.4, 0.0]), "row 1 .* sums to 0.9, not 1"),
        (changed(0, [0.0, 0.0, 0.0]), "row 0 .* sums to 0, not 1"),
    ],
)
def test_invalid_matrix_raises_and_names_the_row(probs, message):
    with pytest.raises(ValueError, match=message):
        CorruptionMatrix(probs)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_strength_outside_0_to_1_raises(strength):
    for family in (CorruptionMatrix.uniform, CorruptionMatrix.flip):
        with pytest.raises(ValueError, match=r"strength must be in \[0, 1\]"):
            family(3, strength)
    with pytest.raises(ValueError, match=r"strength must be in \[0, 1\]"):
        CorruptionMatrix.hierarchical([0, 0, 1], strength)


@pytest.mark.parametrize("num_labels", [0, -1, 2.5])
def test_invalid_number_of_classes_raises(num_labels):
    with pytest.raises(ValueError, match="num_labels must be an integer of at least 1"):
        CorruptionMatrix.uniform(num_labels, 0.5)


def test_wrong_number_of_names_raises():
    with pytest.raises(ValueError, match="2 label names for a corruption matrix of 3 classes"):
        CorruptionMatrix(EYE, ["a", "b"])


def test_matrix_is_a_read_only_copy():
    source = EYE.copy()
    matrix = CorruptionMatrix(source)
    source[0] = [0, 1, 0]
    assert matrix.probs[0, 0] == 1.0
    for same in (matrix, pickle.loads(pickle.dumps(matrix)), copy.deepcopy(matrix)):
        with pytest.raises(ValueError, match="read-only"):
            same.probs[0, 0] = 0.5


def test_lists_arrays_and_tensors_are_accepted():
    probs = [[0.75, 0.25], [0.5, 0.5]]
    expected = CorruptionMatrix(probs)
    assert expected.probs.dtype == np.float64
    assert CorruptionMatrix(np.array(probs, dtype=np.float32)) == expected
    assert CorruptionMatrix(torch.tensor(probs, dtype=torch.bfloat16)) == expected
    assert CorruptionMatrix(torch.tensor(probs, requires_grad=True)) == expected
    assert CorruptionMatrix(expected.with_names(["a", "b"])).label_names == ["a", "b"]
    assert np.array_equal(np.asarray(expected), probs)


# ---------------------------------------------------------------------- families
def test_uniform_noise_includes_the_class_itself():
    assert np.allclose(CorruptionMatrix.uniform(4, 1.0).probs, 0.25)
    assert np.allclose(CorruptionMatrix.uniform(4, 0.4).probs, 0.6 * np.eye(4) + 0.1)


def test_flip_target_is_one_other_class_and_the_same_for_each_strength():
    targets = CorruptionMatrix.flip(10, 1.0, seed=3).probs.argmax(axis=1)
    assert (targets != np.arange(10)).all()
    for strength in (0.1, 0.5, 0.9):
        probs = CorruptionMatrix.flip(10, strength, seed=3).probs
        assert np.allclose(probs[np.arange(10), targets], strength)
        assert np.allclose(np.diag(probs), 1 - strength)


def test_flip_targets_depend_on_the_seed_and_are_not_a_permutation():
    targets = [tuple(CorruptionMatrix.flip(10, 1.0, seed=s).probs.argmax(axis=1)) for s in range(20)]
    assert len(set(targets)) == 20
    assert any(len(set(target)) < 10 for target in targets)


def test_flip_targets_are_spread_over_all_other_classes():
    reached = {int(CorruptionMatrix.flip(4, 1.0, seed=s).probs[2].argmax()) for s in range(60)}
    assert reached == {0, 1, 3}


def test_flip_needs_two_classes():
    with pytest.raises(ValueError, match="at least 2 classes"):
        CorruptionMatrix.flip(1, 0.5)


def test_hierarchical_noise_stays_within_the_group():
    probs = CorruptionMatrix.hierarchical([0, 0, 0, 1, 1], 0.6).probs
    assert np.allclose(probs[0], [0.4, 0.3, 0.3, 0, 0])
    assert np.allclose(probs[4], [0, 0, 0, 0.6, 0.4])


def test_class_alone_in_its_group_keeps_its_label():
    assert np.array_equal(CorruptionMatrix.hierarchical([0, 1, 0], 0.9).probs[1], [0, 1, 0])


def test_both_formats_of_groups_give_the_same_matrix():
    of_class = CorruptionMatrix.hierarchical(["pet", "farm", "pet", None], 0.5)
    assert CorruptionMatrix.hierarchical([[0, 2], [1], [3]], 0.5) == of_class


@pytest.mark.parametrize("groups", [[[0, 1], [1, 2]], [[0], [2]], [[0, 1], 2]])
def test_groups_that_miss_or_repeat_a_class_raise(groups):
    with pytest.raises(ValueError, match="groups"):
        CorruptionMatrix.hierarchical(groups, 0.5)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.floats(0, 1), st.integers(0, 2**40), st.data())
def test_rows_of_every_family_sum_to_one(num_labels, strength, seed, data):
    groups = data.draw(st.lists(st.integers(0, 3), min_size=num_labels, max_size=num_labels))
    for matrix in (
        CorruptionMatrix.identity(num_labels),
        CorruptionMatrix.uniform(num_labels, strength),
        CorruptionMatrix.flip(num_labels, strength, seed=seed),
        CorruptionMatrix.hierarchical(groups, strength),
    ):
        assert (matrix.probs >= 0).all()
        assert np.abs(matrix.probs.sum(axis=1) - 1).max() < 1e-14


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=10), st.floats(0, 1), st.randoms())
def test_permuting_classes_permutes_rows_and_columns(groups, strength, random):
    order = list(range(len(groups)))
    random.shuffle(order)
    matrix = CorruptionMatrix.hierarchical(groups, strength)
    permuted = CorruptionMatrix.hierarchical([groups[i] for i in order], strength)
    assert np.allclose(permuted.probs, matrix.probs[np.ix_(order, order)], atol=1e-15)
    uniform = CorruptionMatrix.uniform(len(groups), strength).probs
    assert np.array_equal(uniform[np.ix_(order, order)], uniform)


# ---------------------------------------------------------------------- files
@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 9).map(lambda k: (k, k)), elements=st.floats(1e-6, 1)))
def test_saved_matrix_loads_exactly(tmp_path_factory, weights):
    matrix = CorruptionMatrix(weights / weights.sum(axis=1, keepdims=True), [f"c{i}" for i in range(len(weights))])
    folder = tmp_path_factory.mktemp("matrix")
    assert matrix.save_pretrained(folder) == [str(folder / MATRIX_FILE)]
    assert CorruptionMatrix.from_pretrained(folder) == matrix
    assert CorruptionMatrix.from_pretrained(str(folder / MATRIX_FILE)) == matrix


def test_more_than_2000_classes_are_saved_in_a_safetensors_file(tmp_path):
    matrix = CorruptionMatrix.flip(2001, 0.3)
    assert len(matrix.save_pretrained(tmp_path)) == 2
    content = json.loads((tmp_path / MATRIX_FILE).read_text())
    assert "probs" not in content
    assert content["probs_file"] == MATRIX_TENSOR_FILE
    assert CorruptionMatrix.from_pretrained(tmp_path) == matrix
    assert CorruptionMatrix.from_pretrained(tmp_path / MATRIX_FILE) == matrix


def test_json_cannot_name_a_file_outside_its_folder(tmp_path):
    CorruptionMatrix.flip(2001, 0.3).save_pretrained(tmp_path)
    inside = tmp_path / "inside"
    inside.mkdir()
    content = json.loads((tmp_path / MATRIX_FILE).read_text()) | {"probs_file": f"../{MATRIX_TENSOR_FILE}"}
    (inside / MATRIX_FILE).write_text(json.dumps(content))
    with pytest.raises(FileNotFoundError, match=MATRIX_TENSOR_FILE):
        CorruptionMatrix.from_pretrained(inside)


def test_missing_or_invalid_files_raise_clear_errors(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=MATRIX_FILE):
        CorruptionMatrix.from_pretrained(tmp_path)
    (tmp_path / MATRIX_FILE).write_text("{}")
    with pytest.raises(ValueError, match="not a corruption matrix"):
        CorruptionMatrix.from_pretrained(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="not a local folder, and it could not be downloaded from the Hub"):
        CorruptionMatrix.from_pretrained("nobody/nothing")


# ---------------------------------------------------------------------- properties and plots
def test_distance_is_the_mean_total_variation():
    assert CorruptionMatrix.identity(3).distance(CorruptionMatrix(np.roll(EYE, 1, axis=1))) == 1.0
    assert CorruptionMatrix.identity(2).distance([[0.5, 0.5], [0.0, 1.0]]) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="3 classes"):
        CorruptionMatrix.identity(3).distance(np.eye(2))


def test_indistinguishable_classes_are_found():
    matrix = CorruptionMatrix([[0.5, 0.5, 0], [0.48, 0.52, 0], [0, 0, 1]])
    assert matrix.indistinguishable_classes() == [(0, 1)]
    assert matrix.indistinguishable_classes(threshold=0.01) == []


def test_largest_confusions_are_sorted_named_and_off_the_diagonal():
    matrix = CorruptionMatrix([[0.6, 0.4, 0], [0.1, 0.8, 0.1], [0, 0, 1]], ["a", "b", "c"])
    expected = [("a", "b", 0.4), ("b", "a", 0.1), ("b", "c", 0.1)]
    assert [tuple(entry.values()) for entry in matrix.largest_confusions()] == expected
    assert [tuple(entry.values()) for entry in matrix.largest_confusions(1)] == expected[:1]


@pytest.mark.parametrize("num_labels", [3, 30, 60])
def test_plot_returns_a_figure(num_labels):
    from matplotlib.figure import Figure

    figure = CorruptionMatrix.uniform(num_labels, 0.4).plot(title="noise")
    assert isinstance(figure, Figure)
    axes = figure.axes[0]
    assert axes.get_title() == "noise"
    assert len(axes.texts) == (9 if num_labels == 3 else 0)


def test_matrix_needs_no_heavy_import():
    code = (
        "import sys, glc_hf.matrix as m; m.CorruptionMatrix.flip(3, 0.5); "
        "print(sorted({'torch', 'datasets', 'transformers', 'matplotlib', 'pyarrow'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
