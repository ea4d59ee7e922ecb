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
from glc_hf.intervals import wilson_interval
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


# ---------------------------------------------------------------------- trusted rows and intervals
PROBS = [[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]


def estimate(counts=(3, 40, 0), label_names=("cat", "dog", "fish")) -> CorruptionMatrix:
    return CorruptionMatrix(PROBS, label_names, counts)


def test_intervals_are_wilsons_with_the_trusted_rows_of_the_true_class():
    matrix = estimate()
    low, high = matrix.interval()
    for i, j in np.ndindex(3, 3):
        expected = wilson_interval(PROBS[i][j], (3, 40, 0)[i], 0.95)
        assert (low[i, j], high[i, j]) == pytest.approx(expected)
    assert (low[2] == 0).all()
    assert (high[2] == 1).all()
    narrower = matrix.interval(0.8)
    assert (narrower[0][:2] >= low[:2]).all()
    assert (narrower[1][:2] < high[:2]).any()


def test_interval_of_the_noise_rate_is_that_of_one_minus_the_diagonal():
    matrix = estimate()
    low, high = matrix.noise_rate_interval()
    cells_low, cells_high = matrix.interval()
    np.testing.assert_allclose(low, 1 - np.diag(cells_high), atol=1e-12)
    np.testing.assert_allclose(high, 1 - np.diag(cells_low), atol=1e-12)
    assert matrix.noise_rate_interval(0.5)[1][1] < high[1]


def test_known_matrix_has_no_trusted_rows_and_no_intervals():
    matrix = CorruptionMatrix.flip(3, 0.2)
    assert matrix.trusted_rows is None
    for interval in (matrix.interval, matrix.noise_rate_interval):
        with pytest.raises(ValueError, match="trusted_rows is None"):
            interval()


def test_trusted_rows_are_kept_by_copies_and_distinguish_matrices():
    matrix, known = estimate(), estimate(None)
    assert matrix.trusted_rows.tolist() == [3, 40, 0]
    with pytest.raises(ValueError, match="read-only"):
        matrix.trusted_rows[0] = 5
    copies = [CorruptionMatrix(matrix), pickle.loads(pickle.dumps(matrix)), copy.deepcopy(matrix)]
    for same in copies:
        assert same == matrix
        assert hash(same) == hash(matrix)
        assert same.trusted_rows.tolist() == [3, 40, 0]
        assert not same.trusted_rows.flags.writeable
    assert matrix.with_names(["a", "b", "c"]).trusted_rows.tolist() == [3, 40, 0]
    for other in (known, estimate((3, 41, 0))):
        assert other != matrix
        assert hash(other) != hash(matrix)
    assert known == estimate(None)
    assert CorruptionMatrix(matrix, trusted_rows=[1, 2, 3]).trusted_rows.tolist() == [1, 2, 3]
    counts = torch.tensor([3.0, 40.0, 0.0], dtype=torch.float64)  # as the estimators count
    assert estimate(counts) == matrix


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, -1], [1, 2, 0.5], [1, 2, float("nan")], 3, ["1", "2", "3"]])
def test_invalid_trusted_rows_raise(counts):
    with pytest.raises(ValueError, match="one number of rows per class, 3 non-negative integers"):
        estimate(counts)


def test_saved_estimate_has_trusted_rows_and_intervals(tmp_path):
    matrix = estimate()
    matrix.save_pretrained(tmp_path)
    content = json.loads((tmp_path / MATRIX_FILE).read_text())
    assert (content["trusted_rows"], content["interval_level"]) == ([3, 40, 0], 0.95)
    for name, bound in zip(("low", "high"), matrix.interval(), strict=True):
        assert content[name] == bound.round(4).tolist()
    assert CorruptionMatrix.from_pretrained(tmp_path) == matrix
    for name in ("trusted_rows", "interval_level", "low", "high"):  # as files of earlier versions
        del content[name]
    (tmp_path / MATRIX_FILE).write_text(json.dumps(content))
    assert CorruptionMatrix.from_pretrained(tmp_path) == estimate(None)


@pytest.mark.parametrize(("num_labels", "has_intervals"), [(200, True), (201, False)])
def test_intervals_of_many_classes_are_not_saved(tmp_path, num_labels, has_intervals):
    matrix = CorruptionMatrix(CorruptionMatrix.flip(num_labels, 0.3), trusted_rows=range(num_labels))
    matrix.save_pretrained(tmp_path)
    content = json.loads((tmp_path / MATRIX_FILE).read_text())
    assert ("low" in content, "high" in content, "interval_level" in content) == (has_intervals,) * 3
    assert CorruptionMatrix.from_pretrained(tmp_path) == matrix


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


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(0, 2**32), st.sampled_from([0.3, 3.0, 300.0]))
def test_indistinguishable_classes_are_those_within_the_threshold(num_labels, seed, evenness):
    probs = np.random.default_rng(seed).dirichlet(np.full(num_labels, evenness), size=num_labels)
    distances = 0.5 * np.abs(probs[:, None] - probs[None]).sum(axis=2)
    expected = [(i, j) for i in range(num_labels) for j in range(i + 1, num_labels) if distances[i, j] < 0.05]
    assert CorruptionMatrix(probs).indistinguishable_classes() == expected


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


def test_plot_of_an_estimate_shows_intervals_and_trusted_rows():
    figure = estimate((3, 1240, 0)).plot()
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["cat (3)", "dog (1,240)", "fish (0)"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["cat", "dog", "fish"]
    low, high = estimate((3, 1240, 0)).interval()
    texts = {(round(text.get_position()[1]), round(text.get_position()[0])): [] for text in axes.texts}
    for text in axes.texts:
        texts[round(text.get_position()[1]), round(text.get_position()[0])].append(text)
    assert set(texts) == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 2)}  # zeros stay empty
    for (i, j), (value, interval) in texts.items():
        assert value.get_text() == f"{PROBS[i][j]:.2f}"
        bounds = [float(bound) for bound in interval.get_text().split("–")]
        assert bounds == pytest.approx([low[i, j], high[i, j]], abs=0.0051)
        assert interval.get_fontsize() < value.get_fontsize()
    assert [text.get_text() for text in texts[2, 2]] == ["1.00", "0–1"]
    assert "95% interval" in axes.get_xlabel()
    assert "interval" not in estimate(None).plot().axes[0].get_xlabel()


def test_texts_of_twelve_classes_fit_into_their_cells():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    matrix = CorruptionMatrix(np.full((12, 12), 1 / 12), trusted_rows=[30] * 12)
    figure = matrix.plot()
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    (left, bottom), (right, top) = axes.transData.transform([(0, 0), (1, 1)])
    for text in axes.texts:
        box = text.get_window_extent()
        assert box.width < abs(right - left)
        assert box.height < abs(top - bottom) / 2


def test_matrix_needs_no_heavy_import():
    code = (
        "import sys, glc_hf.matrix as m; m.CorruptionMatrix.flip(3, 0.5); "
        "print(sorted({'torch', 'datasets', 'transformers', 'matplotlib', 'pyarrow'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[]"
