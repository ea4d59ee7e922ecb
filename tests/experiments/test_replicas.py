# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Replicas trained together equal what `GLCTrainer` gives for each run alone."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from glc_hf.experiments.jobs import arguments, make_trainer, noisy_rows
from glc_hf.experiments.replicas.stacked_curve import StackedCurve, _ReplicaRun
from glc_hf.experiments.replicas.stacked_networks import LateAdam, StackedPerceptron
from glc_hf.experiments.replicas.stacked_training import StackedOptimizer, can_stack
from glc_hf.methods import available_methods, get_method
from glc_hf.methods.base import EstimationRun
from tests.experiments.small_preset import (
    SmallImages,
    SmallLinear,
    SmallPreset,
    SmallTexts,
    SmallTextsLate,
    SmallWindows,
)


STRENGTHS = (0.0, 0.4, 0.9)
SEED = 3
METHODS = [
    "no_correction", "glc", "confusion_matrix", "forward", "forward_gold", "distillation", "trusted_only",
    "true_matrix", "finetune_on_trusted",
]  # fmt: skip


def _curve(
    preset: SmallPreset, folder: Path, strengths: tuple[float, ...] = STRENGTHS, threads: int = 1
) -> StackedCurve:
    data = preset.prepare()
    rows = [noisy_rows(preset, data, "flip", 0.2, strength, SEED) for strength in strengths]
    return StackedCurve(
        preset,
        data,
        [one.train for one in rows],
        [one.matrix for one in rows],
        lambda method: arguments(preset, method, SEED, str(folder)),
        SEED,
        threads=threads,
    )


def _alone(preset: SmallPreset, method: str, strength: float, folder: Path) -> tuple:
    """The trainer of one run after training, and its percent error."""
    data = preset.prepare()
    rows = noisy_rows(preset, data, "flip", 0.2, strength, SEED)
    args = arguments(preset, method, SEED, str(folder))
    trainer = make_trainer(preset, data, rows, args, copy.deepcopy(preset.make_model(data, SEED)))
    trainer.train()
    return trainer, 100.0 * (1.0 - trainer.evaluate()["eval_accuracy"])


@pytest.mark.parametrize(
    "preset",
    [SmallImages(), SmallLinear(), SmallTexts(), SmallTextsLate(), SmallWindows()],
    ids=lambda preset: preset.name,
)
def test_each_replica_equals_the_run_trained_alone(preset: SmallPreset, tmp_path: Path) -> None:
    methods = METHODS if preset.name == "small_images" else ["no_correction", "glc", "distillation", "forward"]
    for result in _curve(preset, tmp_path).run(methods):
        for replica in (1, 2) if result.method == "glc" else (2,):
            trainer, error = _alone(preset, result.method, STRENGTHS[replica], tmp_path)
            found, expected = result.states[replica], trainer.model.state_dict()
            start = preset.make_model(preset.prepare(), SEED).state_dict()
            for name, values in found.items():
                assert torch.allclose(values, expected[name], rtol=1e-5, atol=1e-5), (result.method, name)
                assert not torch.allclose(values, start[name], atol=1e-3)
            assert result.errors[replica] == pytest.approx(error)
            if trainer.corruption_matrix is not None:
                torch.testing.assert_close(
                    torch.tensor(result.matrices[replica].probs),
                    torch.tensor(trainer.corruption_matrix.probs),
                    rtol=0,
                    atol=1e-5,
                )


def test_methods_can_ask_a_replica_for_the_numbers_of_items(tmp_path: Path) -> None:
    curve = _curve(SmallImages(), tmp_path, (0.4,))
    run: EstimationRun = _ReplicaRun(curve, 0, [])
    flags = curve.rows[0].trusted
    assert run.item_numbers("all").tolist() == list(range(len(flags)))
    assert run.item_numbers("trusted").tolist() == np.flatnonzero(flags).tolist()
    assert run.item_numbers("untrusted").tolist() == np.flatnonzero(~flags).tolist()
    labels = run.item_labels("all")
    assert run.item_labels("trusted").tolist() == labels[run.item_numbers("trusted")].tolist()


def test_replica_does_not_depend_on_the_others(tmp_path: Path) -> None:
    preset = SmallImages()
    (together,) = _curve(preset, tmp_path).run(["glc"])
    (alone,) = _curve(preset, tmp_path, STRENGTHS[1:2]).run(["glc"])
    for name, values in alone.states[0].items():
        torch.testing.assert_close(together.states[1][name], values, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(together.states[1]["classifier.weight"], together.states[2]["classifier.weight"])


@pytest.mark.parametrize("preset", [SmallImages(), SmallTextsLate()], ids=lambda preset: preset.name)
@pytest.mark.parametrize("threads", [2, 8])  # 8: more than replicas
def test_threads_train_the_same_replicas(preset: SmallPreset, threads: int, tmp_path: Path) -> None:
    methods = METHODS if preset.name == "small_images" and threads == 2 else ["glc"]
    seen: set[int] = set()
    curve = _curve(preset, tmp_path, threads=threads)
    curve.tick = lambda stages: seen.add(threading.get_ident())
    for result, expected in zip(curve.run(methods), _curve(preset, tmp_path).run(methods), strict=True):
        assert result.errors == pytest.approx(expected.errors)
        for found, state in zip(result.states, expected.states, strict=True):
            for name, values in state.items():
                torch.testing.assert_close(found[name], values, rtol=1e-4, atol=1e-5)
    assert seen != {threading.get_ident()}


def test_error_in_one_thread_stops_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curve, ended = _curve(SmallImages(), tmp_path, threads=2), []

    def train_stage(network, inputs, loss, rows, preset, args, min_updates, tick) -> None:
        if network.replicas == 1:
            raise FloatingPointError("not finite")
        try:
            for _ in range(1000):
                tick(0.0)
                time.sleep(0.01)
        except RuntimeError as error:
            ended.append(str(error))

    monkeypatch.setattr("glc_hf.experiments.replicas.stacked_curve.train_stage", train_stage)
    with pytest.raises(FloatingPointError, match="not finite"):
        next(curve.run(["glc"]))
    assert len(ended) == 1
    assert "stopped" in ended[0]


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_skipping_zero_columns_changes_nothing(activation: str) -> None:
    torch.manual_seed(0)
    features = torch.rand(24, 40) * (torch.rand(24, 40) < torch.linspace(0, 0.6, 40))  # some columns are never used
    layers = [torch.nn.Linear(40, 6), torch.nn.Linear(6, 3)]
    order = (features != 0).sum(dim=0).argsort(descending=True, stable=True)
    named = list(zip(("hidden", "classifier"), layers, strict=True))
    network = StackedPerceptron(named, activation, lambda tensors: tensors["rows"], 2, order)
    between = torch.relu if activation == "relu" else torch.nn.functional.gelu
    inputs = network.inputs({"rows": features})
    assert inputs[1].max() < 40
    # A wide batch, a narrow one (the gradient of the wide one must be cleared), and one with only zeros.
    batches = [features, features[features[:, order[3:]].abs().sum(dim=1).argsort()[:2]], torch.zeros(2, 40)]
    for batch in batches:
        logits = network.forward(network.inputs({"rows": batch}))
        expected = layers[1](between(layers[0](batch)))
        torch.testing.assert_close(logits[1], expected)
        network.backward(torch.ones(2, len(batch), 3))
        for layer in layers:
            layer.zero_grad()
        expected.sum().backward()
        found = network.parameters["hidden.weight"].grad[0]
        torch.testing.assert_close(found[:, order.argsort()], layers[0].weight.grad)
    assert torch.equal(network.state_of(1)["hidden.weight"], layers[0].weight)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-7, 1e-9])  # gradients around Adam's epsilon, 1e-8
def test_late_adam_equals_adam(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(40, 6, generator=generator)
    dense, late = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    other = torch.nn.Parameter(torch.zeros(1))
    optimizers = [torch.optim.Adam([one], lr=1e-2) for one in (dense, other)]
    table = LateAdam(late, optimizers[1])
    for step in range(600):
        # The first rows are read at every other step, the last ones rarely or never.
        rows = (torch.rand(40, generator=generator) < 0.5 ** torch.arange(1, 41).div(3)).nonzero().squeeze(1)
        gradient = scale * torch.randn(len(rows), 6, generator=generator)
        torch.testing.assert_close(table.read(rows), dense[rows].detach(), rtol=0, atol=5e-6)
        dense.grad = torch.zeros_like(dense).index_copy_(0, rows, gradient)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / 600)
        optimizers[0].step()
        table.step(gradient)
    table.finish()
    torch.testing.assert_close(late, dense, rtol=0, atol=5e-6)
    assert ((late - start).abs() > 1e-3).any(dim=1).sum() > 20


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("constant", [True, False])
def test_stacked_optimizer_equals_the_one_of_the_preset(
    optimizer: type[torch.optim.Optimizer], constant: bool, tmp_path: Path
) -> None:
    class Preset(SmallImages):
        def optimizer(self) -> tuple:
            return optimizer, {"lr": 1e-2}

        def decays(self, name: str) -> bool:
            return name.endswith("weight")

    preset = Preset()
    args = arguments(preset, "glc", SEED, str(tmp_path), weight_decay=0.1)
    layers = [("hidden", torch.nn.Linear(5, 4)), ("classifier", torch.nn.Linear(4, 3))]
    network = StackedPerceptron(layers, "relu", lambda tensors: tensors["rows"], 2)
    plain = {name: torch.nn.Parameter(values.detach().clone()) for name, values in network.parameters.items()}
    expected = optimizer(
        [{"params": [p], "weight_decay": 0.1 if preset.decays(name) else 0.0} for name, p in plain.items()], lr=1e-2
    )
    stacked = StackedOptimizer(network, preset, args, constant)
    for _ in range(5):
        for name, values in network.parameters.items():
            values.grad.copy_(torch.randn(values.shape))
            plain[name].grad = values.grad.clone()
        stacked.step()
        expected.step()
    for name, values in network.parameters.items():
        torch.testing.assert_close(values, plain[name])


def test_every_method_of_the_paper_except_reweight_can_be_stacked() -> None:
    assert {name for name in available_methods() if not can_stack(get_method(name))} == {"auto", "reweight"}


def test_gradient_clipping_is_rejected(tmp_path: Path) -> None:
    preset = SmallImages()
    curve = _curve(preset, tmp_path)
    curve.make_args = lambda method: arguments(preset, method, SEED, str(tmp_path), max_grad_norm=1.0)
    with pytest.raises(ValueError, match="max_grad_norm"):
        next(curve.run(["no_correction"]))


def test_equal_replicas_are_trained_once(tmp_path: Path) -> None:
    (result,) = _curve(SmallImages(), tmp_path).run(["trusted_only"])
    assert len(set(result.errors)) == 1
    assert result.states[0] is result.states[2]
