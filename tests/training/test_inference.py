# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Inference in the largest batches that fit into memory."""

from __future__ import annotations

import pytest
import torch

from glc_hf import GLCTrainer
from glc_hf.training import inference
from glc_hf.training.inference import LargestBatch, infer
from tests.training.tiny import bert, config, noisy_text_rows


class LimitedMemory(torch.nn.Module):
    """A model that runs out of memory with more than `max_rows` rows."""

    def __init__(self, max_rows: int) -> None:
        super().__init__()
        self.inner, self.max_rows, self.sizes = bert(), max_rows, []
        self.config = self.inner.config

    def forward(self, input_ids=None, attention_mask=None):
        self.sizes.append(len(input_ids))
        if len(input_ids) > self.max_rows:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def infer_all(folder, max_rows: int, batch: int) -> tuple[torch.Tensor, list[int]]:
    model = LimitedMemory(max_rows)
    trainer = GLCTrainer(model, config(folder, per_device_eval_batch_size=batch), train_dataset=noisy_text_rows(100))
    view = trainer.training_data.for_inference(trainer, "all", "all")
    return torch.cat([output.logits for output in infer(trainer, view, "all")]), model.sizes


def test_batch_that_does_not_fit_is_halved_for_the_rest_of_the_pass(tmp_path):
    expected, sizes = infer_all(tmp_path, max_rows=100, batch=40)
    assert sizes == [40, 40, 20]
    halved, sizes = infer_all(tmp_path, max_rows=15, batch=40)
    assert sizes == [40, 20, *[10] * 4, *[10] * 4, *[10] * 2]
    torch.testing.assert_close(halved, expected)


def test_batch_of_one_row_that_does_not_fit_raises(tmp_path):
    with pytest.raises(RuntimeError, match="out of memory"):
        infer_all(tmp_path, max_rows=0, batch=8)


def test_other_errors_are_raised_unchanged(tmp_path):
    trainer = GLCTrainer(LimitedMemory(8), config(tmp_path), train_dataset=noisy_text_rows(20))
    calls = []
    trainer.model.register_forward_pre_hook(lambda module, args: calls.append(args))
    with pytest.raises(TypeError):
        LargestBatch(trainer)({"pixel_values": torch.zeros(4, 3)})
    assert len(calls) == 1  # not tried again with a smaller batch


@pytest.mark.parametrize(
    ("fast", "settings", "in_bf16"),
    [(True, {}, True), (False, {}, False), (True, {"bf16": True}, True), (False, {"bf16": True}, True)],
)
def test_refinement_predicts_in_bf16_where_it_is_faster(tmp_path, monkeypatch, fast, settings, in_bf16):
    monkeypatch.setattr(inference, "has_fast_bf16", lambda device: fast)
    monkeypatch.setattr(inference, "_FEWEST_BF16_PARAMETERS", 1)
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=3, **settings), train_dataset=noisy_text_rows())
    trained, refined = set(), set()
    trainer.model.classifier.register_forward_hook(
        lambda module, inputs, output: (trained if module.training else refined).add(output.dtype)
    )
    trainer.train()
    assert trained == {torch.bfloat16 if settings else torch.float32}
    assert (torch.bfloat16 in refined) == in_bf16
