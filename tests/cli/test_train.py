# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train` from data files to a saved model that plain transformers loads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Image, List, Value
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from glc_hf import CorruptionMatrix
from glc_hf.cli import model as loading
from glc_hf.cli.data import load_rows
from glc_hf.cli.model import load_model, prepare
from glc_hf.cli.parsing import parse

from .conftest import CLASSES, WORDS, results_in, text_rows, write_csv


QUICK = ["--max_steps", "3", "--save_strategy", "no", "--per_device_train_batch_size", "8"]


def noisy_rows(number: int, every: int) -> list[dict[str, Any]]:
    """Rows with wrong labels (the next class), except for one trusted row in so many."""
    rows = []
    for place, row in enumerate(text_rows(number)):
        trusted = place % every == 0
        wrong = CLASSES[(CLASSES.index(row["label"]) + 1) % len(CLASSES)]
        rows.append({**row, "label": row["label"] if trusted else wrong, "trusted": "yes" if trusted else "no"})
    return rows


def test_a_csv_file_with_words_as_labels_is_learnt_in_spite_of_its_noise(
    glc_hf, tmp_path: Path, tiny_bert: Path
) -> None:
    data, output = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    write_csv(data / "train.csv", noisy_rows(240, every=4))
    write_csv(data / "test.csv", text_rows(60, seed=1))
    outcome = glc_hf(
        "train", "--dataset", data, "--model", tiny_bert, "--output-dir", output, "--learning-rate", "5e-3",
        "--num-train-epochs", "4", "--per-device-train-batch-size", "16", "--save-strategy", "no",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    assert (results["train_rows"], results["trusted"], results["eval_rows"]) == (240, 60, 60)
    # Every untrusted label is wrong in the same way: without correction nothing is right, with it all is.
    assert results["accuracy_before_correction"] <= 0.05
    assert results["accuracy_after_correction"] >= 0.95
    after = f"accuracy after correction: {results['accuracy_after_correction']:.1%} (of 60 rows: ± "
    assert after in outcome.out
    confusions = {(entry["true"], entry["noisy"]) for entry in results["largest_confusions"][:3]}
    assert confusions == {("animal", "food"), ("food", "tool"), ("tool", "animal")}
    classify = pipeline("text-classification", model=str(output))
    assert [classify(f"the {WORDS[name][0]} was here")[0]["label"] for name in CLASSES] == list(CLASSES)
    assert AutoModelForSequenceClassification.from_pretrained(output).config.label2id == {
        name: label for label, name in enumerate(CLASSES)
    }
    assert AutoTokenizer.from_pretrained(output).tokenize("cats") == ["cat", "##s"]
    assert CorruptionMatrix.from_pretrained(output).label_names == list(CLASSES)
    assert (output / "corruption_matrix.png").read_bytes().startswith(b"\x89PNG")


def test_results_hold_no_place_of_this_machine(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(tmp_path / "model")
    assert results["arguments"]["dataset"] == "train.csv"
    assert results["arguments"]["max_steps"] == 3
    assert "glc_hf" in results["versions"]
    assert str(tmp_path) not in json.dumps(results)
    assert "4 of 20 trusted rows are held out" in outcome.err


def test_plain_lines_and_no_bars_without_a_terminal(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert "%|" not in outcome.err + outcome.out
    assert "\x1b" not in outcome.out
    assert "\nload it with: transformers.pipeline(" in outcome.out


def test_a_table_on_a_terminal(glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert outcome.code == 0, outcome.err
    assert "│" in outcome.out
    assert "accuracy after correction" in outcome.out


def test_a_yaml_file_runs_with_overrides_and_resumes(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    data = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    lines = [
        f"dataset: {data}", f"model: {tiny_bert}", f"output_dir: {tmp_path / 'model'}", "max-steps: 4",
        "save_steps: 2", "per_device_train_batch_size: 8", "seed: 3", "from_scratch: true",
    ]  # fmt: skip
    path = tmp_path / "run.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert glc_hf("train", path, "--trusted-share", "0.3").code == 0
    arguments = results_in(tmp_path / "model")["arguments"]
    assert (arguments["trusted_share"], arguments["max_steps"], arguments["seed"]) == (0.3, 4, 3)
    assert (tmp_path / "model" / "checkpoint-4").is_dir()
    outcome = glc_hf("train", path, "--trusted-share", "0.3", "--resume_from_checkpoint", "True")
    assert outcome.code == 0, outcome.err
    assert "there is no checkpoint" not in outcome.err
    assert "stage 1 of 2" not in outcome.err


def test_a_given_matrix_is_used_as_it_is(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    matrix = CorruptionMatrix.uniform(3, 0.3)
    matrix.save_pretrained(tmp_path / "known")
    words = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK]
    outcome = glc_hf("train", *words, "--corruption-matrix", tmp_path / "known")
    assert outcome.code == 0, outcome.err
    assert np.array_equal(CorruptionMatrix.from_pretrained(tmp_path / "model").probs, matrix.probs)
    assert results_in(tmp_path / "model")["accuracy_before_correction"] is None


def test_the_true_matrix_of_simulated_noise_needs_not_be_given(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", text_rows(60))
    words = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", "--noise", "flip", *QUICK]
    outcome = glc_hf("train", *words, "--method", "true_matrix")
    assert outcome.code == 0, outcome.err
    assert results_in(tmp_path / "model")["distance_to_true_matrix"] == 0.0


def test_pairs_of_texts_reach_the_model_together(tmp_path: Path, tiny_bert: Path) -> None:
    rows = [{"premise": "the cat", "hypothesis": "a dog", "label": place % 2} for place in range(20)]
    path = write_csv(tmp_path / "train.csv", rows)
    options = parse(["--dataset", str(path), "--model", str(tiny_bert), "--noise", "uniform", "--max-length", "6"])
    loaded = load_rows(options)
    model, tokenizer, _ = load_model(options.model, "text", 2, None)
    prepared = prepare(loaded, tokenizer, model, options)
    pieces = tokenizer.convert_ids_to_tokens(prepared.train[0]["input_ids"])
    assert pieces == ["[CLS]", "the", "[SEP]", "a", "dog", "[SEP]"]  # cut to six


# ---------------------------------------------------------------------- tokens
def tagged_rows(number: int) -> list[dict[str, Any]]:
    """Sentences whose words have classes of their own; `cats` is two pieces."""
    return [
        {"tokens": ["the", "cats", "was", "here"], "pos_tags": [0, 1, 2, 0], "id": place} for place in range(number)
    ]


def write_tagged(path: Path, number: int) -> Path:
    features = Features(
        {
            "tokens": List(Value("string")),
            "pos_tags": List(ClassLabel(names=["D", "N", "V"])),
            "id": Value("int64"),
        }
    )
    Dataset.from_list(tagged_rows(number), features=features).to_parquet(path)
    return path


def test_labels_and_flags_of_words_go_to_their_first_tokens(tmp_path: Path, tiny_bert: Path) -> None:
    path = write_tagged(tmp_path / "train.parquet", 20)
    words = ["--noise", "flip", "--noise-strength", "1", "--trusted-fraction", "0.5", "--trusted-level", "token"]
    options = parse(["--dataset", str(path), "--model", str(tiny_bert), *words])
    rows = load_rows(options)
    model, tokenizer, _ = load_model(options.model, "token", 3, rows.label_names)
    row, prepared = rows.train[0], prepare(rows, tokenizer, model, options).train[0]
    pieces = tokenizer.convert_ids_to_tokens(prepared["input_ids"])
    assert pieces == ["[CLS]", "the", "cat", "##s", "was", "here", "[SEP]"]
    for given, name in (("pos_tags", "labels"), ("clean_label", "clean_label")):
        first, second, third, fourth = row[given]
        assert prepared[name] == [-100, first, second, -100, third, fourth, -100]
    one, two, three, four = row["trusted"]
    assert prepared["trusted"] == [False, one, two, False, three, four, False]
    assert {True, False} == {flag for row in rows.train["trusted"] for flag in row}


def test_words_are_classified_from_a_parquet_file(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path, output = write_tagged(tmp_path / "train.parquet", 40), tmp_path / "model"
    words = ["--noise", "uniform", "--trusted-fraction", "0.5", "--trusted-level", "token"]
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", output, *words, *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    assert (results["task"], results["train_rows"], results["train_labels"]) == ("token", 36, 144)
    assert (results["trusted"], results["untrusted"]) == (72, 72)
    assert "trusted: 72 of 144 labels" in outcome.out
    found = pipeline("token-classification", model=str(output))("the cat was here")
    assert len(found) == 4
    assert {entry["entity"] for entry in found} <= {"D", "N", "V"}


# ---------------------------------------------------------------------- images
def write_images(path: Path, number: int) -> Path:
    """Grey squares, dark or bright, of different sizes."""
    from PIL import Image as Picture

    def picture(place: int) -> Picture.Image:
        side = 10 + place % 3
        return Picture.fromarray(np.full((side, side), 40 if place % 2 else 200, dtype=np.uint8))

    features = Features({"img": Image(), "label": ClassLabel(names=["bright", "dark"]), "row": Value("int32")})
    rows = {"img": [picture(n) for n in range(number)], "label": [n % 2 for n in range(number)], "row": range(number)}
    Dataset.from_dict({name: list(values) for name, values in rows.items()}, features=features).to_parquet(path)
    return path


def test_a_timm_network_is_trained_on_images_from_a_parquet_file(glc_hf, tmp_path: Path) -> None:
    path, output = write_images(tmp_path / "train.parquet", 40), tmp_path / "model"
    words = [
        "--model",
        "timm/test_vit",
        "--from-scratch",
        "--image-size",
        "32",
        "--noise",
        "uniform",
        "--trusted-count",
        "16",
    ]
    outcome = glc_hf("train", "--dataset", path, "--output-dir", output, *words, *QUICK)
    assert outcome.code == 0, outcome.err
    assert results_in(output)["task"] == "image"
    classify = pipeline("image-classification", model=str(output))
    assert classify.image_processor.val_transforms.transforms[0].size == (32, 32) or (
        classify.image_processor.val_transforms.transforms[0].size == 32
    )
    first = load_rows(parse(["--dataset", str(path), "--model", "timm/x", "--noise", "uniform"])).train[0]["img"]
    assert {entry["label"] for entry in classify(first)} == {"bright", "dark"}


def test_a_transformers_model_is_trained_on_images(glc_hf, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **sizes)).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    path, output = write_images(tmp_path / "train.parquet", 40), tmp_path / "model"
    words = ["--dataset", path, "--model", tmp_path / "vit", "--noise", "uniform", "--output-dir", output]
    words += ["--trusted-count", "16"]
    outcome = glc_hf("train", *words, *QUICK)
    assert outcome.code == 0, outcome.err
    assert pipeline("image-classification", model=str(output)).model.config.id2label == {0: "bright", 1: "dark"}


# ---------------------------------------------------------------------- models
def test_from_scratch_takes_the_configuration_alone(tiny_bert: Path) -> None:
    words = ["--dataset", "x/y", "--model", str(tiny_bert)]
    saved = AutoModelForSequenceClassification.from_pretrained(tiny_bert).bert.embeddings.word_embeddings.weight
    for extra, same in (([], True), (["--from-scratch"], False)):
        model = load_model(parse([*words, *extra]).model, "text", 3, list(CLASSES)).model
        assert torch.equal(model.bert.embeddings.word_embeddings.weight, saved) is same
        assert model.config.id2label == dict(enumerate(CLASSES))
        assert model.classifier.out_features == 3


def test_code_from_the_hub_is_not_run_unless_allowed(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(loading, "_load", lambda loader, name, **options: asked.append(options) or _stop())
    words = ["--dataset", "x/y", "--model", str(tiny_bert), "--model-revision", "v2"]
    for extra in ([], ["--trust-remote-code"]):
        with pytest.raises(StopIteration):
            load_model(parse([*words, *extra]).model, "text", 2, None)
    assert [options["trust_remote_code"] for options in asked] == [False, True]
    assert {options["revision"] for options in asked} == {"v2"}


def test_the_push_comes_last_with_everything_in_the_folder(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glc_hf import GLCTrainer

    pushed = []

    def push(self: GLCTrainer, *args: Any, **kwargs: Any) -> None:
        pushed.append({path.name for path in Path(self.args.output_dir).iterdir()})

    monkeypatch.setattr(GLCTrainer, "init_hf_repo", lambda self, token=None: None)
    monkeypatch.setattr(GLCTrainer, "push_to_hub", push)
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    words = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", "--push_to_hub", *QUICK]
    outcome = glc_hf("train", *words)
    assert outcome.code == 0, outcome.err
    assert len(pushed) == 1
    wanted = {"config.json", "model.safetensors", "corruption_matrix.json", "corruption_matrix.png", "results.json"}
    assert wanted <= pushed[0]


def _stop() -> None:
    raise StopIteration
