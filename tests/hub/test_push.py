# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Push with the real client to a local Hub: one commit, and failures that keep the saved model."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from huggingface_hub import DatasetCard, ModelCard

from glc_hf import GLCTrainer, push_audit
from glc_hf.audit.annotation_tools import classes_of
from glc_hf.audit.findings import COLUMNS, GIVEN, IS_ISSUE, P_WRONG, SCORE, SUGGESTED, Findings
from glc_hf.audit.hub_dataset import audit_card
from glc_hf.cli.main import main
from glc_hf.correction.verdict import Verdict, Way
from glc_hf.hub import push
from glc_hf.hub.push import PushError, files_to_push
from tests.cli.conftest import CLASSES, text_rows, tiny_bert, write_csv  # noqa: F401  (a fixture)
from tests.training.tiny import bert, config, noisy_text_rows

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
    done = on_hub(Path(__file__).with_name("push_and_fail.py"), folder)
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
    command = ["-m", "glc_hf.cli.main"]
    trained = on_hub(
        *command, "train", "--dataset", "words.csv", "--model", tiny_bert, "--output-dir", "words", "--push-to-hub",
        "--num-train-epochs", "6", "--save-strategy", "epoch", "--learning-rate", "5e-3", "--save-total-limit", "1",
        "--per-device-train-batch-size", "16",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    [(message, pushed)] = hub.messages["ann/words"]  # one commit, although each epoch is saved
    assert message == "End of training"
    assert f"pushed to {hub.url}/ann/words (commit " in trained.stdout
    assert {"results.json", "tokenizer.json", *MODEL_FILES} <= set(pushed)
    assert not [
        path for path in pushed if "/" in path or path.startswith("_") or path.endswith((".bin", ".pt", ".pth"))
    ]
    assert not [content for content in hub.files("ann/words").values() if TOKEN.encode() in content]
    assert str(tmp_path).encode() not in b"".join(hub.files("ann/words").values())

    used = on_hub("-c", NOT_INSTALLED + USE, PYTHONPATH="")
    assert used.returncode == 0, used.stderr
    answers = json.loads(used.stdout.splitlines()[-1])
    assert [answer["label"] for answer in answers] == ["animal", "food", "tool"]

    audited = on_hub(*command, "audit", "words", "--dataset", "words.csv", "--push-to-hub", "ann/bad", "--private")
    assert audited.returncode == 0, audited.stderr
    assert f"pushed to {hub.url}/datasets/ann/bad (commit " in audited.stdout
    assert hub.messages["datasets/ann/bad"] == [("Label audit", ["README.md", "data/train-00000-of-00001.parquet"])]
    assert "datasets/ann/bad" in hub.private
    files = hub.files("datasets/ann/bad")
    table = pd.read_parquet(io.BytesIO(files["data/train-00000-of-00001.parquet"]))
    assert list(table.columns) == [*rows[0], *COLUMNS]
    card = DatasetCard(files["README.md"].decode())
    assert "# Label audit of `words.csv`\n" in card.text
    assert "the model [ann/words](https://huggingface.co/ann/words)" in card.text
    issues = re.search(r"label issues: (\d+)\n", audited.stdout)[1]
    assert f"| label issues | {issues} |\n" in card.text
    assert str(tmp_path) not in card.content


def test_commits_of_each_strategy_and_of_audits(hub: LocalHub, on_hub, tmp_path: Path) -> None:
    done = on_hub(Path(__file__).with_name("push_strategies.py"), tmp_path)
    assert done.returncode == 0, done.stderr
    messages = {name: [message for message, _ in commits] for name, commits in hub.messages.items()}
    # `save_model` pushes, as in `Trainer`; `push_to_hub` after it has nothing to add.
    assert messages["ann/at-the-end"] == ["Model save"]
    # The checkpoint of step 2 was removed at step 4, perhaps before it was pushed. The last one is the final model.
    steps = ["Training in progress, step 2", "Training in progress, step 4"]
    assert messages["ann/every-save"] == steps
    assert {path for _, paths in hub.messages["ann/every-save"] for path in paths} == MODEL_FILES
    assert messages["ann/last-checkpoint"] == [part for step in steps for part in (step, f"{step}, checkpoint")]
    assert "last-checkpoint/optimizer.pt" in hub.files("ann/last-checkpoint")
    assert "training_args.bin" not in {Path(path).name for path in hub.files("ann/last-checkpoint")}
    assert not list(tmp_path.glob("*/_push-*"))
    assert f"pushed to {hub.url}/ann/at-the-end (commit " in done.stdout

    audit = json.loads(done.stdout.splitlines()[-1])
    assert audit["same"]
    assert audit["columns"][-5:] == list(COLUMNS)
    first, second = (set(commit) for commit in hub.repos["datasets/ann/tiny-audit"])
    assert first == {"README.md", "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"}
    assert second == {"README.md", "data/train-00000-of-00001.parquet"}
    assert hub.private == {"datasets/ann/bad", "datasets/ann/tiny-audit"} & {*hub.repos}
    refusal = "the audit was not pushed: the dataset repository ann/public-audit exists and is public."
    assert audit["refused"].startswith(refusal)
    assert len(hub.messages["datasets/ann/public-audit"]) == 1


def test_card_of_an_audit_escapes_names_and_counts_words() -> None:
    classes = List(ClassLabel(names=["a|b", "<b>"]))
    columns = {
        "words": (List(Value("string")), [["x", "y"], ["z"]]),
        GIVEN: (classes, [[0, 1], [-100]]),
        SUGGESTED: (classes, [[1, 1], [-100]]),
        P_WRONG: (List(Value("float64")), [[0.75, 0.0], [None]]),
        IS_ISSUE: (List(Value("bool")), [[True, False], [False]]),
        SCORE: (List(Value("float64")), [[0.25, 1.0], [None]]),
    }
    features = Features({name: feature for name, (feature, _) in columns.items()})
    audited = Dataset.from_dict({name: values for name, (_, values) in columns.items()}, features=features)
    verdict = Verdict("glc", {"glc": Way(0.9, 0.8, 0.95, "measured")}, "It\nhelps *much*.", True, 20)
    card = audit_card(
        audited,
        Findings.of(audited, classes_of(audited)),
        "ann/x",
        dataset="ann/words",
        verdict=verdict,
        warnings=["w"],
    )
    assert "# Label audit of [ann/words](https://huggingface.co/datasets/ann/words)\n" in card.text
    assert "| rows | 2 |\n| labels | 2 |\n| label issues | 1 |\n| wrong labels | 1 (" in card.text
    assert "| a\\|b | \\<b\\> | 1 |" in card.text
    assert "It helps \\*much\\*." in card.text
    assert "- w\n" in card.text
    assert "| words | List of string | as in the audited rows |" in card.text
    assert 'any(row["is_label_issue"])' in card.text
    assert card.data.to_dict()["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*"}]
    with pytest.raises(ValueError, match="no column 'p_wrong': push the result of `trainer.audit`"):
        push_audit(audited.remove_columns(P_WRONG), "ann/x")


def test_failed_push_exits_with_code_1_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise PushError("the model is saved in x")

    monkeypatch.setattr("glc_hf.cli.main.env", fail)
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


def test_checkpoints_are_pushed_in_order_after_they_were_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting: list[tuple[Future, Callable]] = []
    pushed = []

    class SlowApi:
        def run_as_future(self, function: Callable) -> Future:
            waiting.append((Future(), function))
            return waiting[-1][0]

        def create_commit(self, operations: list, commit_message: str, **_: object) -> None:
            if commit_message.endswith("6"):
                raise TimeoutError
            pushed.append({entry.path_in_repo: Path(entry.path_or_fileobj).read_text() for entry in operations})

    monkeypatch.setattr(push, "_api", SlowApi)
    arguments = config(tmp_path / "run", hub_strategy="every_save", hub_always_push=True, save_strategy="steps")
    trainer = GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows(60))
    trainer.hub_model_id, trainer.push_in_progress = "ann/x", None
    for step in (2, 4, 6):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text(f"weights {step}")
        (folder / "optimizer.pt").touch()
        trainer.state.global_step = step
        trainer._push_from_checkpoint(str(folder))
        shutil.rmtree(folder)
    for job, function in waiting:
        try:
            job.set_result(function())
        except TimeoutError as error:
            job.set_exception(error)
    trainer._finish_current_push()
    assert pushed == [{"model.safetensors": "weights 2"}, {"model.safetensors": "weights 4"}]
    assert not list((tmp_path / "run").iterdir())
    assert "the push 'Training in progress, step 6' failed: the Hub did not answer in time" in caplog.text
