# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Push with the real client to a local Hub: one commit, and failures that keep the saved model."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from glc_hf.cli.commands import env
from glc_hf.cli.main import main
from glc_hf.hub.push import PushError, files_to_push
from tests.cli.conftest import CLASSES, text_rows, tiny_bert, write_csv  # noqa: F401  (a fixture)

from .local_hub import TOKEN, LocalHub


MODEL_FILES = {
    "README.md", "config.json", "corruption_matrix.json", "corruption_matrix.png", "glc_summary.json",
    "model.safetensors", "training_args.json",
}  # fmt: skip
NOT_INSTALLED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "glc_hf":
            raise ModuleNotFoundError("No module named 'glc_hf'", name="glc_hf")

sys.meta_path.insert(0, Missing())
"""
USE = """
import json
from transformers import pipeline
classifier = pipeline("text-classification", "ann/words")
print(json.dumps(classifier(["the cat was here", "the bread was here", "the saw was here"])))
"""


def test_failed_push_keeps_the_model_and_explains_how_to_push_again(hub: LocalHub, on_hub, tmp_path: Path) -> None:
    folder = tmp_path / "robust"
    done = on_hub(sys.executable, Path(__file__).with_name("push_and_fail.py"), folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    reasons = {
        ("create", 500): "answered 500 (server error or unexpected response)",
        ("preupload", 401): "answered 401 (the token is not valid: log in with `hf auth login`, or set HF_TOKEN)",
        ("preupload", 403): "answered 403 (the token has no write access",
        ("commit", 409): "answered 409 (another commit was made",
        ("commit", 500): "answered 500 (server error or unexpected response)",
        ("commit", "timeout"): "did not answer in time",
        ("upload", "cut"): "the connection was closed",
        ("batch", 500): "answered 500 (server error or unexpected response)",
    }
    refused = result["refused"]
    assert refused.startswith(
        "push_to_hub is set, but the repository ann/robust can't be created: the Hub answered 401"
    )
    assert "Training has not started" in refused
    assert len(result["outcomes"]) == len(reasons)
    for outcome in result["outcomes"]:
        message = outcome["error"]
        assert message is not None, outcome
        assert outcome["kept"], outcome
        assert reasons[outcome["step"], outcome["fault"]] in message
        assert message.startswith(f"the model is saved in {folder}, but the push to ann/robust failed")
        assert "`trainer.push_to_hub()`" in message
        assert TOKEN not in message
    # Only the last push created a commit, and only one.
    assert hub.messages["ann/robust"] == [("final push", sorted(MODEL_FILES))]
    assert result["same"]
    card = ModelCard(hub.files("ann/robust")["README.md"].decode())
    assert (card.data.license, card.data.datasets) == ("mit", ["ann/reviews"])
    assert 'model="ann/robust"' in card.text
    assert {path.name for path in folder.iterdir()} > {"stage1", "_run_state"}

    # The shell command in the message pushes the same files.
    command = shlex.split(re.search(r"from a shell: (hf upload .*)", result["outcomes"][0]["error"])[1])
    hub.repos["ann/robust"].clear()
    hub.messages["ann/robust"].clear()
    again = on_hub(Path(sys.executable).with_name("hf"), *command[1:])
    assert again.returncode == 0, again.stderr
    assert set(hub.files("ann/robust")) == MODEL_FILES


def test_pushed_model_works_without_glc_hf_installed(
    hub: LocalHub,
    on_hub,
    tmp_path: Path,
    tiny_bert: Path,  # noqa: F811
) -> None:
    rows = text_rows(150)
    for index, row in enumerate(rows):
        row["trusted"] = index % 5 < 2
        if not row["trusted"] and index % 2:
            row["label"] = CLASSES[(CLASSES.index(row["label"]) + 1) % 3]
    write_csv(tmp_path / "words.csv", rows)
    command = [sys.executable, "-m", "glc_hf.cli.main"]
    trained = on_hub(
        *command, "train", "--dataset", "words.csv", "--model", tiny_bert, "--output-dir", "words", "--push-to-hub",
        "--num-train-epochs", "6", "--save-strategy", "epoch", "--learning-rate", "5e-3", "--save-total-limit", "1",
        "--per-device-train-batch-size", "16",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    commits = hub.messages["ann/words"]
    message, paths = commits[-1]
    assert message == "End of training"
    assert {"results.json", "tokenizer.json", *MODEL_FILES} <= set(paths)
    pushed = [path for _, paths in commits for path in paths]
    assert not [
        path for path in pushed if "/" in path or path.startswith("_") or path.endswith((".bin", ".pt", ".pth"))
    ]
    assert not [content for content in hub.files("ann/words").values() if TOKEN.encode() in content]
    assert str(tmp_path).encode() not in b"".join(hub.files("ann/words").values())

    used = on_hub(sys.executable, "-c", NOT_INSTALLED + USE, PYTHONPATH="")
    assert used.returncode == 0, used.stderr
    answers = json.loads(used.stdout.splitlines()[-1])
    assert [answer["label"] for answer in answers] == ["animal", "food", "tool"]


def test_failed_push_exits_with_code_1_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise PushError("the model is saved in x")

    monkeypatch.setattr(env, "main", fail)
    assert main(["env"]) == 1
    assert capsys.readouterr().err == "error: the model is saved in x\n"


def test_files_that_are_not_part_of_the_model_are_not_pushed(tmp_path: Path) -> None:
    excluded = [
        "stage1/checkpoint-5/model.safetensors", "stage2/config.json", "checkpoint-10/optimizer.pt", "_run_state/x.pt",
        "weak_classifier/config.json", "audit/audit.csv", "training_args.bin", "trainer_state.json", "glc_run.json",
        "optimizer.pt", "rng_state_0.pth", ".git/config", "reviews.csv", "checked/audit.parquet", "checked/audit.html",
    ]  # fmt: skip
    pushed = [
        "README.md",
        "config.json",
        "model-00001-of-00002.safetensors",
        "runs/events",
        "stages.txt",
        "tokenizer.json",
    ]
    for name in excluded + pushed:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_to_push(tmp_path) == sorted(pushed)


def test_comparison_can_t_be_pushed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--compare", "glc", "no_correction", "--push-to-hub"]) == 2
    assert "push the one you want" in capsys.readouterr().err
