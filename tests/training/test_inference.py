# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Passes without gradients, as large as the memory allows."""

from __future__ import annotations

import pytest
import torch

from glc_hf import GLCTrainer
from glc_hf.training.inference import LargestBatch, infer
from tests.training.tiny import bert, config, noisy_text_rows


class Limited(torch.nn.Module):
    """A network on a device with room for so many rows."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.inner, self.room, self.sizes = bert(), room, []
        self.config = self.inner.config

    def forward(self, input_ids=None, attention_mask=None):
        self.sizes.append(len(input_ids))
        if len(input_ids) > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def run(folder, room: int, batch: int) -> tuple[torch.Tensor, list[int]]:
    model = Limited(room)
    trainer = GLCTrainer(model, config(folder, per_device_eval_batch_size=batch), train_dataset=noisy_text_rows(100))
    view = trainer.training_data.for_inference(trainer, "all", "all")
    return torch.cat([found.logits for found in infer(trainer, view, "all")]), model.sizes


def test_a_batch_that_does_not_fit_is_halved_once_and_for_all(tmp_path):
    whole, sizes = run(tmp_path, room=100, batch=40)
    assert sizes == [40, 40, 20]
    halved, sizes = run(tmp_path, room=15, batch=40)
    assert sizes == [40, 20, *[10] * 4, *[10] * 4, *[10] * 2]
    torch.testing.assert_close(halved, whole)


def test_what_never_fits_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="out of memory"):
        run(tmp_path, room=0, batch=8)


def test_other_errors_pass_through_at_once(tmp_path):
    trainer = GLCTrainer(Limited(8), config(tmp_path), train_dataset=noisy_text_rows(20))
    with pytest.raises(TypeError):
        LargestBatch(trainer)({"pixel_values": torch.zeros(4, 3)})
