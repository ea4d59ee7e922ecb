# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf train`: from data files to a saved model that transformers loads."""

from __future__ import annotations

import json
import re
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
from glc_hf.correction.verdict import load_verdict
from glc_hf.hub.facts import read_facts
from glc_hf.intervals import format_accuracy, wilson_interval

from .conftest import CLASSES, WORDS, results_in, text_rows, write_csv


QUICK = ["--max_steps", "3", "--save_strategy", "no", "--per_device_train_batch_size", "8"]


def noisy_rows(number: int, every: int) -> list[dict[str, Any]]:
    """Rows of which one in `every` is trusted; all others have the label of the next class."""
    rows = []
    for index, row in enumerate(text_rows(number)):
        trusted = index % every == 0
        wrong = CLASSES[(CLASSES.index(row["label"]) + 1) % len(CLASSES)]
        rows.append({**row, "label": row["label"] if trusted else wrong, "trusted": "yes" if trusted else "no"})
    return rows


def test_model_learns_the_true_labels_of_a_noisy_csv(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    write_csv(data / "train.csv", noisy_rows(240, every=4))
    write_csv(data / "test.csv", text_rows(60, seed=1))
    outcome = glc_hf(
        "train", "--dataset", data, "--model", tiny_bert, "--output-dir", output, "--method", "glc",
        "--learning-rate", "5e-3", "--num-train-epochs", "4", "--per-device-train-batch-size", "16",
        "--save-strategy", "no",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    assert (results["train_rows"], results["trusted"], results["eval_rows"]) == (240, 60, 60)
    # All untrusted labels are wrong in the same way: without correction the accuracy is 0, with it 1.
    assert results["accuracy_before_correction"] <= 0.05
    assert results["accuracy_after_correction"] >= 0.95
    before, after = (
        format_accuracy(results[f"accuracy_{when}_correction"], 60, level=0.9) for when in ("before", "after")
    )
    assert f"\naccuracy before correction (full training on the noisy labels): {before}\n" in outcome.out
    assert outcome.out.endswith(f"find wrong labels with: glc-hf audit {output} --dataset {data}\n")
    assert f"\naccuracy after correction: {after}\nlevel of the intervals: 90%\n" in outcome.out
    for name, interval in (("before_correction", "before_interval"), ("after_correction", "interval")):
        bounds = wilson_interval(results[f"accuracy_{name}"], 60, 0.9)
        assert results[f"accuracy_{interval}"] == pytest.approx(bounds, abs=1e-6)
    assert results["evaluated"] == {"number": 60, "unit": "rows"}
    assert results["interval_levels"] == {"accuracy": 0.9, "noise_rates": 0.95}
    matrix = CorruptionMatrix.from_pretrained(output)
    assert matrix.trusted_rows.tolist() == [20, 20, 20]
    low, high = matrix.noise_rate_interval()
    assert [entry["name"] for entry in results["noise_rates"]] == list(CLASSES)
    for label, entry in enumerate(results["noise_rates"]):
        expected = {"rate": matrix.noise_rates[label], "low": low[label], "high": high[label], "trusted_rows": 20}
        assert {name: entry[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert results["warnings"] == []
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


def test_default_is_auto_and_its_verdict_is_printed_written_and_repeated_by_the_audit(
    glc_hf, tmp_path: Path, tiny_bert: Path
) -> None:
    data, output = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    write_csv(data / "train.csv", noisy_rows(240, every=4))
    write_csv(data / "test.csv", text_rows(30, seed=1))
    outcome = glc_hf(
        "train", "--dataset", data, "--model", tiny_bert, "--output-dir", output,
        "--learning-rate", "5e-3", "--num-train-epochs", "10", "--per-device-train-batch-size", "16",
        "--save-strategy", "no",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert results_in(output)["method"] == "auto"
    assert "method" not in results_in(output)["arguments"]
    # A linear probe has no steps, and the time of preparing it is not a metric.
    assert re.search(
        r"^stage 1 of 2 \(untrusted labels, linear probe\): eval loss [\d.]+, eval accuracy [\d.]+\n", outcome.out
    )
    # A model of all labels learns that most are wrong, and a model with the name of its folder is pretrained.
    verdict = load_verdict(output)
    assert verdict.final
    assert verdict.helps is True
    assert "pool" in verdict.ways
    assert results_in(output)["verdict"] == json.loads(json.dumps(verdict.to_dict()))
    assert f"\nverdict: {verdict}\n" in outcome.out
    # The accuracy without correction is that of the verdict, and not also that of the first stage.
    assert "before correction" not in outcome.out
    assert "\naccuracy on the evaluation rows: " in outcome.out
    audit = glc_hf("audit", output, "--dataset", data / "train.csv", "--output-dir", tmp_path / "audit")
    assert audit.code == 0, audit.err
    assert audit.out.startswith(f"verdict of the training: {verdict.sentence}\n")


def test_method_without_a_verdict_prints_none(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    argv = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", "--method", "glc", *QUICK]
    outcome = glc_hf("train", *argv)
    assert outcome.code == 0, outcome.err
    assert results_in(tmp_path / "model")["verdict"] is None
    assert "verdict: " not in outcome.out


def test_default_from_scratch_prints_no_verdict_that_compares_nothing(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path, output = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2)), tmp_path / "model"
    outcome = glc_hf(
        "train", "--dataset", path, "--model", tiny_bert, "--output-dir", output, "--from-scratch", *QUICK
    )
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    assert results["method"] == "auto"
    assert results["before_correction"] == "full training on the noisy labels"  # as in glc
    assert list(results["verdict"]["ways"]) == ["no_correction"]
    assert "verdict: " not in outcome.out
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "Gold Loss Correction (`auto`)" in card
    assert "| way |" not in card
    audit = glc_hf("audit", output, "--dataset", path)
    assert "verdict" not in audit.out


def test_option_that_only_glc_has_gives_its_stages_and_says_so(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    outcome = glc_hf(
        "train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK,
        "--trusted-share", "0.3",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "method 'auto' uses the stages of 'glc': trusted_share=0.3 can be set for them only." in outcome.err
    assert "\nstage 2 of 2 (auto): " in outcome.out


def test_results_record_the_label_column_that_the_user_named(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    rows = [{"text": row["text"], "topic": row["label"]} for row in text_rows(60)]
    path, output = write_csv(tmp_path / "train.csv", rows), tmp_path / "model"
    argv = ["--dataset", path, "--model", tiny_bert, "--label-column", "topic", "--noise", "flip", *QUICK]
    outcome = glc_hf("train", *argv, "--output-dir", output)
    assert outcome.code == 0, outcome.err
    assert results_in(output)["arguments"]["label_column"] == "topic"


def test_results_contain_no_local_paths(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(tmp_path / "model")
    assert results["arguments"]["dataset"] == "train.csv"
    assert results["arguments"]["max_steps"] == 3
    assert "glc_hf" in results["versions"]
    assert str(tmp_path) not in json.dumps(results)
    assert "4 of the 20 trusted rows are held out" in outcome.err


def test_output_is_plain_lines_without_a_terminal(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert "%|" not in outcome.err + outcome.out
    assert "\x1b" not in outcome.out
    assert "\nload with: transformers.pipeline(" in outcome.out


def test_output_is_a_table_on_a_terminal(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK)
    assert outcome.code == 0, outcome.err
    assert "│" in outcome.out
    assert "accuracy on the evaluation rows" in outcome.out


def test_run_from_a_yaml_file_can_be_overridden_and_resumed(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
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


def test_given_matrix_is_used_unchanged(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    matrix = CorruptionMatrix.uniform(3, 0.3)
    matrix.save_pretrained(tmp_path / "known")
    argv = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", *QUICK]
    outcome = glc_hf("train", *argv, "--corruption-matrix", tmp_path / "known")
    assert outcome.code == 0, outcome.err
    assert np.array_equal(CorruptionMatrix.from_pretrained(tmp_path / "model").probs, matrix.probs)
    results = results_in(tmp_path / "model")
    assert results["accuracy_before_correction"] is results["accuracy_before_interval"] is None
    assert results["before_correction"] is None
    expected = {"rate": pytest.approx(0.2), "low": None, "high": None, "trusted_rows": None}
    assert [{**entry, "name": ""} for entry in results["noise_rates"]] == [{"name": "", **expected}] * 3


def test_run_without_evaluation_rows_has_no_accuracy_and_no_interval(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    # With one trusted row per class, none can be held out.
    rows = [{**row, "trusted": "yes" if index < 3 else "no"} for index, row in enumerate(text_rows(30))]
    path = write_csv(tmp_path / "train.csv", rows)
    argv = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model"]
    outcome = glc_hf("train", *argv, *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(tmp_path / "model")
    assert results["evaluated"]["number"] == 0
    assert results["accuracy_interval"] is None
    assert "accuracy" not in outcome.out
    assert "level of the intervals" not in outcome.out


def test_warnings_are_printed_and_written(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    rows = noisy_rows(60, every=2)
    rows += [{"text": "the rice was here", "label": "snack", "trusted": flag} for flag in ["yes"] + ["no"] * 9]
    data, output = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    write_csv(data / "train.csv", rows)
    write_csv(data / "test.csv", text_rows(30, seed=1))
    outcome = glc_hf("train", "--dataset", data, "--model", tiny_bert, "--output-dir", output, *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    (few,) = [warning for warning in results["warnings"] if "few trusted rows" in warning]
    assert "for 1 of 4 classes: snack (1). " in few
    assert f"\nwarning: {few}\n" in outcome.out
    assert read_facts(output)["warnings"] == results["warnings"]


def test_true_matrix_method_uses_the_matrix_of_the_simulated_noise(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_csv(tmp_path / "train.csv", text_rows(60))
    CorruptionMatrix.flip(3, 0.3).save_pretrained(tmp_path / "mymatrix")
    for noise, strength in (("flip", 0.6), ("mymatrix", None)):
        argv = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", "--noise", noise, *QUICK]
        outcome = glc_hf("train", *argv, "--method", "true_matrix")
        assert outcome.code == 0, outcome.err
        results = results_in(tmp_path / "model")
        assert results["distance_to_true_matrix"] == 0.0
        assert results["simulated_noise"]["strength"] == strength  # a matrix has none


def test_pairs_of_texts_are_tokenized_together(tmp_path: Path, tiny_bert: Path) -> None:
    rows = [{"premise": "the cat", "hypothesis": "a dog", "label": index % 2} for index in range(20)]
    path = write_csv(tmp_path / "train.csv", rows)
    options = parse(["--dataset", str(path), "--model", str(tiny_bert), "--noise", "uniform", "--max-length", "6"])
    prepared = prepare(load_rows(options), options)
    pieces = prepared.processor.convert_ids_to_tokens(prepared.train[0]["input_ids"])
    assert pieces == ["[CLS]", "the", "[SEP]", "a", "dog", "[SEP]"]  # truncated to six


# ---------------------------------------------------------------------- tokens
def tagged_rows(number: int) -> list[dict[str, Any]]:
    """Sentences with one class per word; `cats` is two tokens."""
    return [
        {"tokens": ["the", "cats", "was", "here"], "pos_tags": [0, 1, 2, 0], "id": index} for index in range(number)
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


def test_labels_and_flags_of_words_go_to_their_first_token(tmp_path: Path, tiny_bert: Path) -> None:
    path = write_tagged(tmp_path / "train.parquet", 20)
    argv = ["--noise", "flip", "--noise-strength", "1", "--trusted-fraction", "0.5", "--trusted-level", "token"]
    options = parse(["--dataset", str(path), "--model", str(tiny_bert), *argv])
    rows = load_rows(options)
    setup = prepare(rows, options)
    row, prepared = rows.train[0], setup.train[0]
    pieces = setup.processor.convert_ids_to_tokens(prepared["input_ids"])
    assert pieces == ["[CLS]", "the", "cat", "##s", "was", "here", "[SEP]"]
    for given, name in (("pos_tags", "labels"), ("clean_label", "clean_label")):
        first, second, third, fourth = row[given]
        assert prepared[name] == [-100, first, second, -100, third, fourth, -100]
    one, two, three, four = row["trusted"]
    assert prepared["trusted"] == [False, one, two, False, three, four, False]
    assert {True, False} == {flag for row in rows.train["trusted"] for flag in row}


def test_token_classification_from_a_parquet_file(glc_hf, tmp_path: Path, tiny_bert: Path) -> None:
    path, output = write_tagged(tmp_path / "train.parquet", 40), tmp_path / "model"
    argv = ["--noise", "uniform", "--trusted-fraction", "0.5", "--trusted-level", "token"]
    outcome = glc_hf("train", "--dataset", path, "--model", tiny_bert, "--output-dir", output, *argv, *QUICK)
    assert outcome.code == 0, outcome.err
    results = results_in(output)
    assert (results["task"], results["train_rows"], results["train_labels"]) == ("token", 36, 144)
    assert (results["trusted"], results["untrusted"]) == (72, 72)
    assert "trusted: 72 of 144 labels" in outcome.out
    number = results["evaluated"]["number"]
    assert results["evaluated"]["unit"] == "labels"
    assert number == 4 * results["eval_rows"]
    accuracy = format_accuracy(results["accuracy_after_correction"], number, "labels")
    assert f"accuracy on the evaluation rows: {accuracy}\n" in outcome.out
    entities = pipeline("token-classification", model=str(output))("the cat was here")
    assert len(entities) == 4
    assert {entry["entity"] for entry in entities} <= {"D", "N", "V"}


# ---------------------------------------------------------------------- images
def write_images(path: Path, number: int) -> Path:
    """Gray squares, dark or bright, of different sizes."""
    from PIL import Image as Picture

    def picture(index: int) -> Picture.Image:
        side = 10 + index % 3
        return Picture.fromarray(np.full((side, side), 40 if index % 2 else 200, dtype=np.uint8))

    features = Features({"img": Image(), "label": ClassLabel(names=["bright", "dark"]), "row": Value("int32")})
    rows = {"img": [picture(n) for n in range(number)], "label": [n % 2 for n in range(number)], "row": range(number)}
    Dataset.from_dict({name: list(values) for name, values in rows.items()}, features=features).to_parquet(path)
    return path


def test_timm_network_is_trained_on_images_from_a_parquet_file(glc_hf, tmp_path: Path) -> None:
    path, output = write_images(tmp_path / "train.parquet", 40), tmp_path / "model"
    outcome = glc_hf(
        "train", "--dataset", path, "--output-dir", output, "--model", "timm/test_vit", "--from-scratch",
        "--image-size", "32", "--noise", "uniform", "--trusted-count", "16", *QUICK,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert results_in(output)["task"] == "image"
    classify = pipeline("image-classification", model=str(output))
    assert classify.image_processor.val_transforms.transforms[0].size == (32, 32) or (
        classify.image_processor.val_transforms.transforms[0].size == 32
    )
    first = load_rows(parse(["--dataset", str(path), "--model", "timm/x", "--noise", "uniform"])).train[0]["img"]
    assert {entry["label"] for entry in classify(first)} == {"bright", "dark"}


def test_transformers_model_is_trained_on_images(glc_hf, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, **sizes)).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path / "vit")
    path, output = write_images(tmp_path / "train.parquet", 40), tmp_path / "model"
    argv = ["--dataset", path, "--model", tmp_path / "vit", "--noise", "uniform", "--output-dir", output]
    argv += ["--trusted-count", "16"]
    outcome = glc_hf("train", *argv, *QUICK)
    assert outcome.code == 0, outcome.err
    assert pipeline("image-classification", model=str(output)).model.config.id2label == {0: "bright", 1: "dark"}


# ---------------------------------------------------------------------- models
def test_from_scratch_uses_only_the_configuration(tiny_bert: Path) -> None:
    argv = ["--dataset", "x/y", "--model", str(tiny_bert)]
    saved = AutoModelForSequenceClassification.from_pretrained(tiny_bert).bert.embeddings.word_embeddings.weight
    for extra, same in (([], True), (["--from-scratch"], False)):
        model = load_model(parse([*argv, *extra]).model, "text", 3, list(CLASSES))[0]
        assert torch.equal(model.bert.embeddings.word_embeddings.weight, saved) is same
        assert model.config.id2label == dict(enumerate(CLASSES))
        assert model.classifier.out_features == 3
        assert bool(model.config._name_or_path) is same  # by its name `auto` knows that it is pretrained


def test_remote_code_is_not_run_unless_allowed(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(loading, "_load", lambda loader, name, **options: calls.append(options) or _stop())
    argv = ["--dataset", "x/y", "--model", str(tiny_bert), "--model-revision", "v2"]
    for extra in ([], ["--trust-remote-code"]):
        with pytest.raises(StopIteration):
            load_model(parse([*argv, *extra]).model, "text", 2, None)
    assert [options["trust_remote_code"] for options in calls] == [False, True]
    assert {options["revision"] for options in calls} == {"v2"}


def test_push_comes_last_with_all_files_in_the_folder(
    glc_hf, tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glc_hf import GLCTrainer

    pushed = []

    def push(self: GLCTrainer, *args: Any, **kwargs: Any) -> None:
        pushed.append({path.name for path in Path(self.args.output_dir).iterdir()})

    monkeypatch.setattr(GLCTrainer, "init_hf_repo", lambda self, token=None: None)
    monkeypatch.setattr(GLCTrainer, "push_to_hub", push)
    path = write_csv(tmp_path / "train.csv", noisy_rows(40, every=2))
    argv = ["--dataset", path, "--model", tiny_bert, "--output-dir", tmp_path / "model", "--push_to_hub", *QUICK]
    outcome = glc_hf("train", *argv)
    assert outcome.code == 0, outcome.err
    assert len(pushed) == 1
    files = {"config.json", "model.safetensors", "corruption_matrix.json", "corruption_matrix.png", "results.json"}
    assert files <= pushed[0]


def _stop() -> None:
    raise StopIteration
