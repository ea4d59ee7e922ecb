# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What `Trainer` promises, in every stage of `GLCTrainer`; docs/trainer.md names the test of each promise."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset
from packaging.version import Version
from tokenizers import Tokenizer, models
from transformers import (
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

from glc_hf import GLCTrainer, mark_trusted
from tests.training.tiny import bert, bert_config, config, noisy_text_rows, text_rows


ROOT = Path(__file__).parents[2]


def _run(folder, callbacks=(), compute_metrics=None, preprocess=None, model=None, **settings):
    trainer = GLCTrainer(
        model or bert(),
        config(folder, max_steps=settings.pop("max_steps", 2), **settings),
        train_dataset=noisy_text_rows(96),
        eval_dataset=text_rows(24, trusted=None),
        callbacks=list(callbacks),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess,
    )
    return trainer, trainer.train()


def test_include_for_metrics_gives_inputs_and_losses_in_every_stage(tmp_path):
    seen = []

    def compute_metrics(prediction):
        seen.append((prediction.inputs.shape, np.ndim(prediction.losses)))
        correct = prediction.predictions.argmax(-1) == prediction.label_ids
        return {"mean_id": float(prediction.inputs.mean()), "accuracy": float(correct.mean())}

    _, output = _run(tmp_path, compute_metrics=compute_metrics, include_for_metrics=["inputs", "loss"])
    assert seen == [((24, 6), 1)]  # stage 1 is evaluated by itself
    assert output.metrics["stage1_eval_mean_id"] > 0


def test_preprocess_logits_for_metrics_runs_in_every_stage(tmp_path):
    seen = []

    def preprocess(logits, labels):
        seen.append(tuple(logits.shape))
        return logits.argmax(-1)

    def compute_metrics(prediction):
        return {"accuracy": float((prediction.predictions == prediction.label_ids).mean())}

    trainer, output = _run(tmp_path, compute_metrics=compute_metrics, preprocess=preprocess)
    plain = GLCTrainer(trainer.model, config(tmp_path), eval_dataset=trainer.eval_dataset).evaluate()
    assert trainer.evaluate()["eval_accuracy"] == plain["eval_accuracy"]
    assert "stage1_eval_accuracy" in output.metrics
    assert set(seen) == {(24, 3)}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"save_strategy": "no"}, []),
        ({"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}, [6]),
        ({"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 2, "trusted_share": 0}, "epochs"),
        ({"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 3, "metric_for_best_model": "loss"}, None),
    ],
    ids=["no", "steps", "epoch", "best"],
)
def test_save_strategies_apply_to_every_stage(tmp_path, settings, kept):
    _run(tmp_path, **{"max_steps": 6, **settings})
    for folder, rows in ((tmp_path / "stage1", 77), (tmp_path, 96)):
        found = sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoint-*"))
        if kept == "epochs":
            per_epoch = -(-rows // 16)
            assert found == [per_epoch, 2 * per_epoch]
        elif kept is None:  # the best steps
            state = json.loads((folder / f"checkpoint-{found[-1]}" / "trainer_state.json").read_text(encoding="utf-8"))
            name = "stage1_eval_loss" if folder.name == "stage1" else "eval_loss"
            losses = {entry["step"]: entry[name] for entry in state["log_history"] if name in entry}
            assert losses[found[-1]] == min(losses.values()) == state["best_metric"]
            # Before transformers 5.4, `Trainer` doesn't keep the best step with this strategy.
            if Version(transformers.__version__) >= Version("5.4"):
                assert state["best_global_step"] == found[-1]
        else:
            assert found == kept


class Hooks(TrainerCallback):
    """How many hooks the embeddings have during training, by stage."""

    def __init__(self):
        self.seen = {}

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.seen[Path(args.output_dir).name == "stage1"] = len(model.get_input_embeddings()._forward_hooks)


def test_neftune_adds_noise_in_every_stage_and_leaves_no_hook(tmp_path):
    hooks = Hooks()
    trainer, noisy = _run(tmp_path / "noisy", [hooks], neftune_noise_alpha=5.0)
    assert hooks.seen == {True: 1, False: 1}
    assert len(trainer.model.get_input_embeddings()._forward_hooks) == 0
    plain = _run(tmp_path / "plain")[1]
    for name in ("train_loss", "stage1_train_loss"):
        assert noisy.metrics[name] != plain.metrics[name]


def test_several_evaluation_sets_are_evaluated_in_every_stage(tmp_path):
    sets = {"first": text_rows(20, trusted=None), "second": noisy_text_rows(30)}
    settings = config(tmp_path, eval_strategy="steps", eval_steps=2, metric_for_best_model="eval_second_loss")
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(96), eval_dataset=sets)
    metrics = trainer.train().metrics
    assert {f"stage1_eval_{name}_{metric}" for name in sets for metric in ("loss", "accuracy")} <= metrics.keys()
    assert trainer.state.best_metric is not None
    assert {"eval_first_accuracy", "eval_second_accuracy"} <= trainer.evaluate().keys()


class Lengths(GLCTrainer):
    """How much padding the batches of each stage have."""

    def training_step(self, model, inputs, *args, **kwargs):
        lengths = inputs["attention_mask"].sum(1)
        self.padding[self.first_stage is None].append(float((lengths.max() - lengths).float().mean()))
        return super().training_step(model, inputs, *args, **kwargs)


def test_group_by_length_puts_rows_of_similar_length_together_in_every_stage(tmp_path):
    rng = np.random.default_rng(0)
    ids = [rng.integers(1, 40, size=rng.integers(1, 15)).tolist() for _ in range(160)]
    data = Dataset.from_dict({"input_ids": ids, "label": rng.integers(3, size=160).tolist()})
    inner = Tokenizer(models.WordLevel({"x": 0}, "x"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="x")
    padding = {}
    for strategy in ("random", "group_by_length"):
        settings = config(tmp_path, max_steps=-1, num_train_epochs=1, train_sampling_strategy=strategy)
        settings.per_device_train_batch_size = 8
        trainer = Lengths(
            bert(), settings, DataCollatorWithPadding(tokenizer), processing_class=tokenizer,
            train_dataset=mark_trusted(data, fraction=0.1),
        )  # fmt: skip
        trainer.padding = {True: [], False: []}
        trainer.train()
        padding[strategy] = trainer.padding
    for last in (True, False):
        assert np.mean(padding["group_by_length"][last]) < 0.5 * np.mean(padding["random"][last])


def test_group_by_length_has_no_effect_with_a_fixed_share_of_trusted_rows(tmp_path, caplog):
    settings = {"method": "auto", "pretrained": True, "max_steps": 2, "train_sampling_strategy": "group_by_length"}
    GLCTrainer(bert(), config(tmp_path, **settings), train_dataset=noisy_text_rows(60)).train()
    assert "train_sampling_strategy='group_by_length' has no effect in stage 2 of 2" in caplog.text


@pytest.mark.skipif(not torch.cuda.is_available(), reason="fp16 needs a GPU")
def test_fp16_trains_every_stage_on_a_gpu(tmp_path):
    trainer, output = _run(tmp_path, fp16=True, use_cpu=False)
    assert np.isfinite([output.training_loss, output.metrics["stage1_train_loss"]]).all()
    assert next(trainer.model.parameters()).dtype == torch.float32


def test_hyperparameter_search_applies_to_every_stage(tmp_path):
    pytest.importorskip("optuna")
    rates = []

    class Rates(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            rates.append((Path(args.output_dir).name, args.learning_rate))

    trainer = GLCTrainer(
        model_init=lambda: BertForSequenceClassification(bert_config()),
        args=config(tmp_path, max_steps=2, save_strategy="steps", save_steps=2),
        train_dataset=noisy_text_rows(96),
        eval_dataset=text_rows(24, trusted=None),
        callbacks=[Rates()],
    )
    best = trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)},
        compute_objective=lambda metrics: metrics["eval_loss"],
        backend="optuna",
        direction="minimize",
        n_trials=2,
    )
    assert len(rates) == 4  # two stages of two trials
    first, second = {rate for _, rate in rates[:2]}, {rate for _, rate in rates[2:]}
    assert len(first) == len(second) == 1
    assert first != second
    assert best.hyperparameters["learning_rate"] in first | second
    assert {path.name for path in tmp_path.glob("run-*")} == {"run-0", "run-1"}
    assert (tmp_path / "run-0" / "stage1" / "checkpoint-2").is_dir()


def test_evaluation_options_of_trainer_apply_in_every_stage(tmp_path):
    """Evaluation before the first step, in several steps of accumulation, without joining batches."""
    shapes = []

    def compute_metrics(prediction):
        batches = prediction.predictions
        shapes.append([batch.shape for batch in batches] if isinstance(batches, list) else batches.shape)
        return {"one": 1.0}

    settings = dict(eval_on_start=True, eval_accumulation_steps=1, per_device_eval_batch_size=16)
    _, output = _run(tmp_path, compute_metrics=compute_metrics, eval_do_concat_batches=False, **settings)
    assert shapes[0] == [(16, 3), (8, 3)]
    assert len(shapes) == 3  # before stage 1, after it, and before stage 2
    assert output.metrics["stage1_eval_one"] == 1.0


def test_tokens_are_counted_in_every_stage(tmp_path):
    trainer, _ = _run(tmp_path, include_num_input_tokens_seen="all")
    for name in ("stage1_loss", "loss"):
        counts = [entry["num_input_tokens_seen"] for entry in trainer.state.log_history if name in entry]
        assert counts == [16 * 6, 2 * 16 * 6]


# ---------------------------------------------------------------------- the table in the docs
def _rows() -> list[tuple[str, str, str]]:
    text = (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8")
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "::test_" in line
    ]
    return [tuple(row) for row in cells]


def test_every_row_of_the_table_names_an_existing_test():
    rows = _rows()
    assert len(rows) > 40
    for promise, answer, tests in rows:
        kind, _, reason = answer.partition(": ")
        assert kind in ("works", "refused", "untested"), promise
        assert kind == "works" or len(reason) > 10, promise
        for file, name in re.findall(r"`([\w/.]+)::(test_\w+)`", tests):
            tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"
        assert re.fullmatch(r"`[\w/.]+::test_\w+`(, `[\w/.]+::test_\w+`)*\s*", tests), promise


def test_the_subclass_in_the_docs_trains_and_evaluates(tmp_path):
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "trainer.md").read_text(encoding="utf-8"), flags=re.S
    )
    names = {}
    exec(block, names)
    trainer = names["MyTrainer"](
        bert(), config(tmp_path, max_steps=1), train_dataset=noisy_text_rows(96), eval_dataset=text_rows(24)
    )
    assert "stage1_eval_accuracy" in trainer.train().metrics
    assert trainer.evaluate()["eval_accuracy"] >= 0


def test_every_test_of_a_promise_is_in_the_table():
    named = {name for *_, tests in _rows() for name in re.findall(r"::(test_\w+)`", tests)}
    for file in ("training/test_trainer_promises.py", "training/test_subclasses.py"):
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
        about_the_page = {
            name for name in own if "of_the_table" in name or "in_the_table" in name or "in_the_docs" in name
        }
        assert own - about_the_page <= named, file
