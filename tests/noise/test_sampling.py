# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Draws by integer thresholds: frequencies, edges, and values fixed across releases."""

from __future__ import annotations

import pickle
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from glc_hf import CorruptionMatrix, weak_labels
from glc_hf.noise.sampling import MatrixNoise, sample_from_logits, thresholds
from glc_hf.randomness import uniform_bits


def draw(noise: MatrixNoise, labels: np.ndarray, index: np.ndarray | None = None) -> np.ndarray:
    index = np.arange(len(labels)) if index is None else index
    return noise.draw(None, labels, index, None, np.ones(len(labels), dtype=bool), str)


FAMILIES = {
    "identity": CorruptionMatrix.identity(4),
    "uniform": CorruptionMatrix.uniform(4, 0.7),
    "flip": CorruptionMatrix.flip(4, 0.3),
    "hierarchical": CorruptionMatrix.hierarchical([0, 0, 0, 1], 0.6),
    "many classes": CorruptionMatrix.uniform(80, 0.9),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_frequencies_are_those_of_the_matrix(family):
    matrix = FAMILIES[family]
    labels = np.random.default_rng(0).integers(0, matrix.num_labels, 400_000)
    noisy = draw(MatrixNoise(matrix, seed=5), labels)
    counts = np.zeros_like(matrix.probs)
    np.add.at(counts, (labels, noisy), 1)
    expected = matrix.probs * counts.sum(axis=1, keepdims=True)
    possible = expected > 0
    assert not counts[~possible].any()
    statistic = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = possible.sum() - matrix.num_labels
    assert freedom == 0 or 1e-4 < stats.chi2.sf(statistic, freedom) < 1 - 1e-4


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(1, 8).map(lambda k: (k, k)), elements=st.sampled_from([0, 0, 1e-13, 0.1, 1]))
)
def test_impossible_classes_have_no_words_and_possible_classes_share_all_words(weights):
    weights[:, 0] += weights.sum(axis=1) == 0
    edges = np.concatenate([np.zeros((len(weights), 1), dtype=np.uint64), thresholds(weights)], axis=1)
    widths = np.diff(edges.astype(np.int64), axis=1)
    assert (widths >= 0).all()
    assert (widths[weights == 0] == 0).all()
    assert (edges[:, -1] == 2**40).all()
    assert np.allclose(widths / 2**40, weights / weights.sum(axis=1, keepdims=True), atol=2.0**-40)


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(np.float64, st.integers(2, 8).map(lambda k: (k, k)), elements=st.sampled_from([0, 1e-5, 0.1, 0.7])),
    st.integers(0, 2**32),
)
def test_the_table_agrees_with_the_thresholds(weights, seed):
    weights[:, 0] += weights.sum(axis=1) == 0
    matrix = CorruptionMatrix(weights / weights.sum(axis=1, keepdims=True))
    labels = np.random.default_rng(seed).integers(0, len(weights), 20_000)
    words = uniform_bits("corrupt_labels", seed, np.arange(20_000), bits=40)
    expected = (thresholds(matrix.probs)[labels] <= words[:, None]).sum(axis=1)
    noise = MatrixNoise(matrix, seed)
    assert noise._table is not None
    assert np.array_equal(draw(noise, labels), expected)
    noise._table = None
    assert np.array_equal(draw(noise, labels), expected)


def test_thresholds_of_many_classes_are_computed_in_parts(monkeypatch):
    matrix, labels = CorruptionMatrix.uniform(70, 0.8), np.arange(70).repeat(20)
    whole = draw(MatrixNoise(matrix, seed=0), labels)
    monkeypatch.setattr("glc_hf.noise.sampling._THRESHOLDS_AT_ONCE", 1000)
    np.testing.assert_array_equal(draw(MatrixNoise(matrix, seed=0), labels), whole)


def test_the_table_leaves_undecided_words_to_the_thresholds():
    noise = MatrixNoise(CorruptionMatrix.uniform(3, 1.0), seed=0)
    assert (noise._table == -1).sum() == 6  # two edges inside a row's 4,096 intervals, three rows


def test_a_word_on_a_threshold_belongs_to_the_class_above_it():
    """Otherwise word 0 would draw an impossible first class."""
    noise = MatrixNoise(CorruptionMatrix([[0.0, 1.0, 0.0], [0.5, 0.25, 0.25], [0.25, 0.0, 0.75]]), seed=0)
    half, quarter = 1 << 39, 1 << 38
    cases = [(0, 0, 1), (0, (1 << 40) - 1, 1), (1, half - 1, 0), (1, half, 1), (1, 3 * quarter, 2), (2, quarter, 2)]
    for label, word, expected in cases:
        key = np.array([(label << 40) | word], dtype=np.uint64)
        assert noise._search(key, np.array([label])) == expected
        decided = noise._table[(label << 12) | (word >> 28)]
        assert decided in (expected, -1)


def test_noise_of_published_seeds_does_not_change():
    labels = np.arange(24) % 4
    noisy = draw(MatrixNoise(CorruptionMatrix.uniform(4, 0.8), seed=0), labels)
    words = uniform_bits("corrupt_labels", 0, np.arange(24), bits=40)
    assert words[:3].tolist() == [429654471799, 623875786827, 367065423703]
    assert noisy.tolist() == [0, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 1, 0, 0, 1, 3, 0, 2, 3, 0, 2, 3, 3, 3]


def test_logits_are_sampled_from_their_softmax_with_temperature():
    logits = np.array([4.0, 1.0, -2.0, -np.inf])
    drawn = sample_from_logits(np.tile(logits, (200_000, 1)), 2.0, 0, np.arange(200_000), None)
    expected = np.exp(logits / 2.0)[:3]
    counts = np.bincount(drawn, minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], 200_000 * expected / expected.sum()).pvalue > 1e-3


def test_huge_logits_do_not_overflow():
    drawn = sample_from_logits(np.array([[1e300, 0.0], [0.0, 1e300], [-1e300, -1e299]]), 1.0, 0, np.arange(3), None)
    assert drawn.tolist() == [0, 1, 1]


@pytest.mark.parametrize("seed", [0.5, None, "0"])
def test_a_seed_that_is_not_an_integer_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be an integer"):
        MatrixNoise(CorruptionMatrix.identity(2), seed)


@pytest.fixture
def rows(rows) -> Dataset:
    """500 rows with an input that determines the class."""
    rows = rows.select(range(500))
    return rows.add_column("x", (np.array(rows["label"])[:, None] == np.arange(5)).astype(np.float32).tolist())


class Linear(torch.nn.Module):
    """Logits 20·x, with dropout and a record of what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(20.0))
        self.dropout = torch.nn.Dropout(0.5)
        self.frozen = torch.nn.Dropout(0.5)
        self.calls: list[tuple[int, bool]] = []

    def forward(self, x, unused=None):
        self.calls.append((len(x), torch.is_grad_enabled()))
        return SimpleNamespace(logits=self.frozen(self.dropout(self.scale * x)))


class Slow(Linear):
    """The same, slow enough for another thread to interfere."""

    def forward(self, x):
        time.sleep(0.002)
        return super().forward(x)


def logits_of(rows: Dataset) -> np.ndarray:
    return 20 * np.array(rows["x"])


def labels_of(dataset) -> list[int]:
    return [row["label"] for row in dataset]


# ---------------------------------------------------------------------- given logits
def test_labels_are_drawn_from_the_softmax_with_temperature():
    logits = np.array([3.0, 1.0, 0.0])
    dataset = Dataset.from_dict({"label": np.zeros(50_000, dtype=np.int64)})
    noisy = weak_labels(dataset, np.tile(logits, (50_000, 1)), temperature=2.0, trusted_column=None)
    counts = np.bincount(noisy.with_format("numpy")["label"][:])
    expected = np.exp(logits / 2.0)
    assert stats.chisquare(counts, 50_000 * expected / expected.sum()).pvalue > 1e-3


def test_the_default_temperature_is_five(rows):
    assert labels_of(weak_labels(rows, logits_of(rows))) == labels_of(
        weak_labels(rows, logits_of(rows) / 5, temperature=1)
    )


def test_trusted_rows_keep_their_labels_and_clean_labels_are_stored(rows):
    noisy = weak_labels(rows, logits=np.zeros((500, 5)))
    trusted, before, after = (np.array(noisy[name]) for name in ("trusted", "clean_label", "label"))
    assert np.array_equal(before, rows["label"])
    assert np.array_equal(after[trusted], before[trusted])
    assert (after != before)[~trusted].mean() == pytest.approx(0.8, abs=0.06)
    assert noisy.features["label"] == rows.features["label"] == noisy.features["clean_label"]


def test_logits_are_in_the_order_that_the_user_sees(rows):
    shuffled = rows.shuffle(seed=0)
    certain = weak_labels(shuffled, 1000 * logits_of(shuffled), trusted_column=None)
    assert labels_of(certain) == shuffled["label"][:]
    by_number = [
        {row["number"]: row["label"] for row in weak_labels(d, logits_of(d), index_column="number")}
        for d in (rows, shuffled)
    ]
    assert by_number[0] == by_number[1]


def test_different_seeds_give_different_weak_labels(rows):
    first, second = (labels_of(weak_labels(rows, np.zeros((500, 5)), seed=seed)) for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("kind", ["float32", "tensor", "bfloat16", "list", "list of tensors"])
def test_logits_may_be_arrays_tensors_or_lists(rows, kind):
    logits = np.round(logits_of(rows)).astype(np.float32)
    given = {
        "float32": logits,
        "tensor": torch.tensor(logits, requires_grad=True),
        "bfloat16": torch.tensor(logits).bfloat16(),
        "list": logits.tolist(),
        "list of tensors": list(torch.tensor(logits)),
    }[kind]
    assert labels_of(weak_labels(rows, given)) == labels_of(weak_labels(rows, logits.astype(np.float64)))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("size", [65_536, 50])
def test_token_logits_may_be_flat_or_per_row(sentences, monkeypatch, size):
    monkeypatch.setattr("glc_hf.labels.storage.CHUNK_SIZE", size)
    names = {"label_column": "labels", "trusted_column": "token_trusted"}
    lengths = [len(labels) for labels in sentences["labels"]]
    flat = np.random.default_rng(0).normal(size=(sum(lengths), 5))
    flat[np.array([label for row in sentences["labels"] for label in row]) == -100] = np.nan  # not used
    by_row = np.split(flat, np.cumsum(lengths)[:-1])
    noisy = weak_labels(sentences, flat, **names)
    certain = np.where(np.isnan(flat), np.nan, 1e6 * flat)
    drawn = [label for row in weak_labels(sentences, certain, **names)["labels"] for label in row]
    flags = [flag for row in sentences["token_trusted"] for flag in row]
    for logits, label, flag in zip(flat, drawn, flags, strict=True):
        assert flag or label in (-100, np.argmax(logits))
    assert noisy[:] == weak_labels(sentences, by_row, **names)[:]
    for row in noisy:
        for new, old, flag in zip(row["labels"], row["clean_label"], row["token_trusted"], strict=True):
            assert new == old or not (flag or old == -100)
    order = np.random.default_rng(1).permutation(300)
    shuffled = weak_labels(sentences.select(order), [by_row[i] for i in order], **names, index_column="number")
    whole = weak_labels(sentences, by_row, **names, index_column="number")
    assert {r["number"]: r["labels"] for r in shuffled} == {r["number"]: r["labels"] for r in whole}


# ---------------------------------------------------------------------- a model
@pytest.mark.parametrize("batch_size", [1, 64, 1000])
def test_a_model_gives_the_same_labels_as_its_logits(rows, batch_size):
    model = Linear()
    noisy = weak_labels(rows, model=model, batch_size=batch_size)
    assert labels_of(noisy) == labels_of(weak_labels(rows, logits_of(rows)))
    assert sum(size for size, _ in model.calls) == 500
    assert max(size for size, _ in model.calls) == min(batch_size, 500)


def test_the_model_runs_without_dropout_and_gradients_and_is_restored(rows):
    model = Linear().train()
    model.frozen.eval()
    weak_labels(rows, model=model)
    assert not any(grad for _, grad in model.calls)
    assert (model.training, model.dropout.training, model.frozen.training) == (True, True, False)
    model.forward = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        weak_labels(rows, model=model)
    assert model.training


def test_only_the_columns_that_the_model_takes_are_read(rows):
    from datasets import Image

    pictures = rows.add_column("image", [{"bytes": b"no image", "path": None}] * 500).cast_column("image", Image())
    assert labels_of(weak_labels(pictures, model=Linear()).remove_columns("image")) == labels_of(
        weak_labels(rows, model=Linear())
    )


@pytest.mark.parametrize("form", ["torch", "numpy", "arrow", "transform"])
def test_the_model_reads_rows_in_any_format(rows, form):
    view = rows.with_format(form) if form != "transform" else rows
    if form == "transform":  # its inputs differ from the column of that name
        view = rows.rename_column("x", "raw").add_column("x", ["?"] * 500)
        view = view.with_transform(lambda batch: {"x": batch["raw"]})
    noisy = weak_labels(view, model=Linear()).with_format(None)
    assert labels_of(noisy) == labels_of(weak_labels(rows, logits_of(rows)))


def test_a_collator_may_create_the_inputs(rows):
    def collate(examples):
        numbers = {"number": torch.tensor([example["number"] for example in examples])}
        return numbers | {"x": torch.tensor([example["text_x"] for example in examples])}

    renamed = rows.rename_column("x", "text_x")
    plain = renamed.remove_columns("number").add_column("number", rows["number"])
    noisy = weak_labels(plain, model=Linear(), data_collator=collate)
    assert labels_of(noisy) == labels_of(weak_labels(rows, logits_of(rows)))


class Tagger(torch.nn.Module):
    """Logits per token: one-hot of the token's number modulo 5."""

    def forward(self, input_ids, attention_mask):
        return {"logits": torch.nn.functional.one_hot(input_ids % 5, 5).float() * 30}


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_model_labels_tokens_with_padding_on_either_side(sentences, side):
    dataset = sentences.map(lambda row: {"input_ids": [max(label, 0) + 5 for label in row["labels"]]})

    def collate(examples):
        rows = [torch.tensor(example["input_ids"], dtype=torch.long) for example in examples]
        width = max(max(len(row) for row in rows), 1)
        ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width)
        for number, row in enumerate(rows):
            span = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
            ids[number, span], mask[number, span] = row, 1
        return {"input_ids": ids, "attention_mask": mask}

    options = {"label_column": "labels", "trusted_column": None, "temperature": 0.1}
    noisy = weak_labels(dataset, model=Tagger(), data_collator=collate, **options)
    assert noisy["labels"][:] == dataset["labels"][:]
    soft = {"label_column": "labels", "trusted_column": None, "temperature": 20}
    flat = np.eye(5)[[max(label, 0) for row in dataset["labels"] for label in row]] * 30
    noisy = weak_labels(dataset, model=Tagger(), data_collator=collate, batch_size=7, **soft)
    assert noisy["labels"][:] == weak_labels(dataset, flat, **soft)["labels"][:]


def test_a_transformers_model_can_be_used():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=3
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    ids = np.random.default_rng(0).integers(0, 30, (40, 6))
    dataset = Dataset.from_dict({"input_ids": ids.tolist(), "label": [0, 1] * 20, "text": ["x"] * 40})
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor(ids)).logits
    noisy = weak_labels(dataset, model=model, trusted_column=None, batch_size=16)
    assert labels_of(noisy) == labels_of(weak_labels(dataset, logits, trusted_column=None))


# ---------------------------------------------------------------------- streams and splits
@pytest.mark.parametrize("python", [False, True])
def test_a_model_labels_streams_like_datasets(rows, python):
    stream = rows.to_iterable_dataset(num_shards=3)
    stream = stream.map(lambda row: row) if python else stream
    model = Linear().train()
    noisy = weak_labels(stream, model=model, batch_size=50)
    whole = weak_labels(rows, logits_of(rows))
    assert labels_of(noisy) == labels_of(whole)
    assert model.training
    assert max(size for size, _ in model.calls) == 50
    indexed = weak_labels(stream, model=model, index_column="number").shuffle(seed=0, buffer_size=50)
    expected = {r["number"]: r["label"] for r in weak_labels(rows, logits_of(rows), index_column="number")}
    assert {row["number"]: row["label"] for row in indexed} == expected
    resumed = weak_labels(stream, model=model, batch_size=50)
    for number, _ in enumerate(noisy):
        if number == 170:
            resumed.load_state_dict(noisy.state_dict())
            break
    assert labels_of(resumed) == labels_of(whole)[171:]


def test_shards_that_are_read_in_threads_share_the_model(rows):
    """`datasets` reads the shards of a shuffled stream in threads: none may run the model in training mode."""

    stream = weak_labels(rows.to_iterable_dataset(num_shards=8), model=Slow(), index_column="number", batch_size=8)
    read = {row["number"]: row["label"] for row in stream.shuffle(seed=0, buffer_size=50)}
    assert read == {r["number"]: r["label"] for r in weak_labels(rows, logits_of(rows), index_column="number")}
    assert {row["number"]: row["label"] for row in pickle.loads(pickle.dumps(stream))} == read


def test_logits_apply_to_one_split(rows):
    splits = DatasetDict(train=rows, test=rows.remove_columns("trusted"))
    noisy = weak_labels(splits, logits_of(rows))
    assert labels_of(noisy["train"]) == labels_of(weak_labels(rows, logits_of(rows)))
    assert noisy["test"] is splits["test"]
    with pytest.raises(ValueError, match="logits= is for one split, but train, test have the flag"):
        weak_labels(DatasetDict(train=rows, test=rows), logits_of(rows))
    both = weak_labels(DatasetDict(train=rows, test=rows), model=Linear())
    assert labels_of(both["test"]) == labels_of(noisy["train"])


# ---------------------------------------------------------------------- bad input
def test_bad_logits_raise_an_error_with_the_row(rows):
    logits = logits_of(rows)
    untrusted = int(np.argmin(rows["trusted"][10:])) + 10
    for value in (np.nan, np.inf):
        logits[untrusted, 2] = value
        with pytest.raises(ValueError, match=f"logits of row {untrusted} are not usable"):
            weak_labels(rows, logits)
    logits[untrusted] = -np.inf
    with pytest.raises(ValueError, match=f"logits of row {untrusted} are not usable"):
        weak_labels(rows, logits)
    logits[untrusted] = [-np.inf, -np.inf, 0, -np.inf, -np.inf]
    assert weak_labels(rows, logits)[untrusted]["label"] == 2


def test_logits_of_another_shape_raise_an_error_with_both_shapes(rows, sentences):
    cases = {
        "logits= is for 499 rows, the dataset has 500 rows": np.zeros((499, 5)),
        r"logits=… has 4 classes, column 'label' has 5": np.zeros((500, 4)),
        r"must be numbers of shape \(rows, K\), got shape \(500,\)": np.zeros(500),
        "has 1 logit per label": np.zeros((500, 1)),
        "one array per row, but each row has one label": [np.zeros((2, 5))] * 500,
    }
    for message, logits in cases.items():
        with pytest.raises(ValueError, match=message):
            weak_labels(rows, logits)
    with pytest.raises(ValueError, match=r"logits= is for 3 tokens, the dataset has \d+ tokens"):
        weak_labels(sentences, np.zeros((3, 5)), label_column="labels")
    by_row = [np.zeros((len(labels), 5)) for labels in sentences["labels"]]
    by_row[7] = np.zeros((99, 5))
    with pytest.raises(ValueError, match=r"shape \(99, 5\) for row 7, which has \d+ labels"):
        weak_labels(sentences, by_row, label_column="labels")
    with pytest.raises(ValueError, match="logits= is for 299 rows"):
        weak_labels(sentences, by_row[:-1], label_column="labels")


def test_bad_requests_are_refused(rows):
    with pytest.raises(ValueError, match="either logits= or model="):
        weak_labels(rows)
    with pytest.raises(ValueError, match="either logits= or model="):
        weak_labels(rows, logits_of(rows), model=Linear())
    with pytest.raises(ValueError, match="a stream has no fixed rows"):
        weak_labels(rows.to_iterable_dataset(), logits_of(rows))
    for temperature in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="temperature must be a number above 0"):
            weak_labels(rows, logits_of(rows), temperature=temperature)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        weak_labels(rows, model=Linear(), batch_size=0)
    with pytest.raises(TypeError, match="model must be a torch module"):
        weak_labels(rows, model="bert-base-uncased")


def test_models_with_other_heads_are_refused(rows):
    class Headless(Linear):
        def forward(self, x):
            return x

    class OneLogit(Linear):
        def forward(self, x):
            return SimpleNamespace(logits=x[:, :1])

    class FourClasses(Linear):
        def forward(self, x):
            return SimpleNamespace(logits=x[:, :4])

    class PerToken(Linear):
        def forward(self, x):
            return SimpleNamespace(logits=x[:, None, :])

    cases = {
        "Headless returns Tensor, which has no `logits`": Headless,
        "the model has 1 logit": OneLogit,
        "the weak classifier has 4 classes, column 'label' has 5": FourClasses,
        r"shape \(32, 1, 5\); these labels need \(rows, classes\)": PerToken,
    }
    for message, model in cases.items():
        with pytest.raises(ValueError, match=message):
            weak_labels(rows, model=model())


def test_labels_are_checked_as_in_corrupt_labels(rows):
    features = Features({"label": Value("int64"), "x": rows.features["x"]})
    bad = Dataset.from_dict({"label": [0, 5], "x": [[0.0] * 5] * 2}, features=features)
    with pytest.raises(ValueError, match="label 5 .*row 1"):
        weak_labels(bad, model=Linear(), trusted_column=None)
    with pytest.raises(ValueError, match="'clean_label' already"):
        weak_labels(weak_labels(rows, logits_of(rows)), logits_of(rows))
    assert isinstance(rows.features["label"], ClassLabel)
