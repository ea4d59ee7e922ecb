# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""New columns put into a dataset: what is kept, what is not copied, and what can be done with the result."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset, Features, Image, Value, concatenate_datasets, load_from_disk
from datasets.table import InMemoryTable, MemoryMappedTable

from glc_hf import corrupt_labels, mark_trusted, weak_labels


@pytest.fixture
def pictures() -> Dataset:
    """Images that can't be decoded."""
    rng = np.random.default_rng(0)
    return Dataset.from_dict(
        {
            "image": [{"bytes": b"no image", "path": None}] * 100,
            "label": rng.integers(0, 5, 100),
            "trusted": rng.random(100) < 0.2,
        },
        features=Features({"image": Image(), "label": Value("int64"), "trusted": Value("bool")}),
    )


def blocks_of(dataset: Dataset) -> list:
    return [block for row in dataset._data.blocks for block in row]


def test_other_columns_stay_memory_mapped(rows, matrix, tmp_path):
    rows.save_to_disk(tmp_path / "rows", num_shards=2)
    before = pa.total_allocated_bytes()
    noisy = corrupt_labels(load_from_disk(tmp_path / "rows"), matrix)
    assert pa.total_allocated_bytes() - before < 100_000
    mapped = {
        name for block in blocks_of(noisy) if isinstance(block, MemoryMappedTable) for name in block.column_names
    }
    copied = {name for block in blocks_of(noisy) if isinstance(block, InMemoryTable) for name in block.column_names}
    assert mapped == {"text", "number", "trusted", "clean_label"}
    assert copied == {"label"}
    assert {file["filename"] for file in noisy.cache_files} == {str(p) for p in (tmp_path / "rows").glob("*.arrow")}


def test_text_in_memory_is_not_copied(rows, matrix):
    noisy = corrupt_labels(mark_trusted(rows, fraction=0.1, trusted_column="mine"), matrix)
    for name in ("text", "number"):
        buffers = [[b.address for b in d._data.column(name).chunk(0).buffers() if b] for d in (rows, noisy)]
        assert buffers[0] == buffers[1]
    old, new = rows._data.column("label").chunk(0), noisy._data.column("clean_label").chunk(0)
    assert old.buffers()[1].address == new.buffers()[1].address


def test_the_given_dataset_is_not_changed(rows, matrix):
    before, fingerprint, features = rows[:], rows._fingerprint, rows.features.copy()
    corrupt_labels(rows, matrix)
    mark_trusted(rows, fraction=0.3, trusted_column="mine")
    assert (rows[:], rows._fingerprint, rows.features) == (before, fingerprint, features)


def test_a_shuffled_dataset_is_not_flattened(rows, matrix, monkeypatch):
    monkeypatch.setattr(Dataset, "flatten_indices", lambda self: pytest.fail("flattened"))
    shuffled = rows.shuffle(seed=0)
    for result in (
        corrupt_labels(shuffled, matrix),
        mark_trusted(shuffled, fraction=0.1, trusted_column="mine"),
        weak_labels(shuffled, logits=np.zeros((2000, 5))),
    ):
        assert result._indices is shuffled._indices
        assert result["text"][:] == shuffled["text"][:]
        assert result["number"][:] == shuffled["number"][:]


def test_images_are_not_decoded(pictures, matrix):
    with pytest.raises(Exception, match="cannot identify image"):
        pictures[0]["image"]
    for source in (pictures, pictures.shuffle(seed=0), pictures.select([0, 0, 1])):
        noisy = corrupt_labels(source, matrix)
        mark_trusted(source, fraction=0.1, trusted_column="mine")
        assert noisy.features["image"] == Image()
        assert noisy.cast_column("image", Image(decode=False))[0]["image"]["bytes"] == b"no image"


def test_formats_and_transforms_are_kept(rows, matrix):
    assert corrupt_labels(rows.with_format("torch"), matrix)[:2]["label"].dtype == torch.int64
    shouting = rows.with_transform(lambda batch: {"text": [text.upper() for text in batch["text"]]})
    assert corrupt_labels(shouting, matrix)[:2] == {"text": ["ROW 0", "ROW 1"]}
    repeated = corrupt_labels(shouting.select([1, 1]), matrix)
    assert repeated[:] == {"text": ["ROW 1", "ROW 1"]}
    assert repeated.with_format(None)[0]["text"] == "row 1"


def test_format_columns_left_out_stay_out_and_new_ones_are_included(rows, matrix):
    noisy = corrupt_labels(rows.with_format("numpy", columns=["label", "trusted"]), matrix)
    assert set(noisy[0]) == {"label", "trusted", "clean_label"}
    others = rows.with_format("numpy", columns=["label", "trusted"], output_all_columns=True)
    assert set(corrupt_labels(others, matrix)[0]) == set(noisy.column_names)


def test_split_and_info_are_kept(rows, matrix):
    from datasets import DatasetInfo, Split

    rows = Dataset(rows._data, info=DatasetInfo(description="a test", features=rows.features), split=Split.TRAIN)
    noisy = corrupt_labels(rows, matrix)
    assert noisy.split == Split.TRAIN
    assert noisy.info.description == "a test"


def test_fingerprints_differ_if_and_only_if_the_data_differ(rows, matrix):
    def fingerprint(**options) -> str:
        return corrupt_labels(rows, matrix, **options)._fingerprint

    assert fingerprint() == fingerprint()
    assert len({rows._fingerprint, fingerprint(), fingerprint(seed=1), fingerprint(clean_column="old")}) == 4
    identity = np.eye(5)
    assert corrupt_labels(rows, identity)._fingerprint != corrupt_labels(rows, identity, seed=1)._fingerprint
    marks = [mark_trusted(rows, count=n, trusted_column="mine")._fingerprint for n in (10, 10, 11)]
    assert marks[0] == marks[1] != marks[2]


def test_pickled_datasets_are_the_same_and_small(rows, matrix, tmp_path):
    rows.save_to_disk(tmp_path / "rows", num_shards=20)
    noisy = corrupt_labels(mark_trusted(load_from_disk(tmp_path / "rows"), count=9, trusted_column="mine"), matrix)
    pickled = pickle.dumps(noisy)
    copy = pickle.loads(pickled)
    assert copy.column_names == noisy.column_names
    assert copy[:] == noisy[:]
    # 16 kB of labels are in memory. Pickling an Arrow slice writes its whole buffer: one buffer for 20 files would be
    # written 20 times.
    assert len(pickled) < 16_000 + 20 * 4_000


def test_map_works_in_processes_and_from_its_cache(rows, matrix):
    noisy = corrupt_labels(rows.shuffle(seed=0), matrix)
    mapped = noisy.map(lambda row: {"twice": 2 * row["label"]}, num_proc=2)
    assert mapped["twice"][:] == [2 * label for label in noisy["label"]]
    assert noisy.filter(lambda label: label == 1, input_columns="label")["label"][:].count(1) == noisy["label"][
        :
    ].count(1)


def test_noisy_datasets_can_be_saved_sorted_and_concatenated(rows, matrix, tmp_path):
    noisy = corrupt_labels(rows.shuffle(seed=0), matrix)
    noisy.save_to_disk(tmp_path / "noisy")
    assert load_from_disk(tmp_path / "noisy")[:] == noisy[:]
    twice = concatenate_datasets([noisy, noisy.sort("number")])
    assert twice["label"][:2000] == noisy["label"][:]
    assert sorted(twice["label"][2000:]) == sorted(noisy["label"])


def test_data_loader_workers_read_the_noisy_labels(rows, matrix):
    noisy = corrupt_labels(rows, matrix).with_format("torch", columns=["label"])
    loader = torch.utils.data.DataLoader(noisy, batch_size=500, num_workers=2)
    assert torch.cat([batch["label"] for batch in loader]).tolist() == noisy["label"][:].tolist()


def test_columns_missing_from_some_parts_stay_null(rows, matrix):
    pieces = concatenate_datasets([rows.select(range(10)), rows.remove_columns(["text"]).select(range(10, 30))])
    noisy = corrupt_labels(pieces, matrix)
    for dataset in (noisy, pickle.loads(pickle.dumps(noisy))):
        assert dataset["text"][:] == rows["text"][:10] + [None] * 20
        assert dataset["label"][:] == corrupt_labels(rows, matrix)["label"][:30]
        assert dataset["clean_label"][:] == rows["label"][:30]


def test_parts_with_columns_in_a_different_order_can_be_pickled(rows, matrix, tmp_path):
    rows.save_to_disk(tmp_path / "rows")
    first = load_from_disk(tmp_path / "rows")
    turned = first.select_columns(["label", "trusted", "text", "number"])
    both = concatenate_datasets([corrupt_labels(first, matrix), corrupt_labels(turned, matrix)])
    again = corrupt_labels(both, matrix, clean_column="second")
    for dataset in (again, pickle.loads(pickle.dumps(again))):
        assert dataset["text"][:] == rows["text"][:] * 2
        assert dataset["clean_label"][:] == rows["label"][:] * 2
        assert dataset["second"][:] == both["label"][:]
        assert dataset["label"][:] == again["label"][:]


def test_transforms_can_be_chained(rows, matrix, tmp_path):
    rows.save_to_disk(tmp_path / "rows", num_shards=2)
    again = corrupt_labels(mark_trusted(load_from_disk(tmp_path / "rows"), count=9, trusted_column="mine"), matrix)
    third = corrupt_labels(again, matrix, seed=2, clean_column="second")
    for dataset in (third, pickle.loads(pickle.dumps(third))):
        assert dataset.column_names == ["text", "label", "number", "trusted", "mine", "clean_label", "second"]
        assert dataset["text"][:] == rows["text"][:]
        assert dataset["clean_label"][:] == rows["label"][:]
        assert dataset["second"][:] == again["label"][:] == corrupt_labels(rows, matrix)["label"][:]
        assert dataset["label"][:] == corrupt_labels(again.remove_columns("clean_label"), matrix, seed=2)["label"][:]
