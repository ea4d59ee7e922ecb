# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glc_hf.labels.label_batch import LabelBatch, SoftLabelBatch, label_batch


@pytest.mark.parametrize("shape", [(6,), (3, 4)])
def test_classes_have_the_cross_entropy_of_torch_and_ignored_ones_have_none(shape):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*shape, 5, generator=generator)
    labels = torch.randint(0, 5, shape, generator=generator)
    ignored = torch.rand(shape, generator=generator) < 0.4
    batch = label_batch(labels).ignoring(ignored)
    assert type(batch) is LabelBatch
    assert batch.shape == shape
    assert torch.equal(batch.counted, ~ignored)
    expected = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(shape)
    torch.testing.assert_close(batch.cross_entropy(logits), expected.masked_fill(ignored, 0.0))
    assert not (labels == -100).any()  # the batch that was given is not changed


def test_probabilities_that_are_certain_have_the_loss_of_their_class():
    logits = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(12).view(3, 4) % 5
    soft = label_batch(F.one_hot(labels, 5).float())
    assert type(soft) is SoftLabelBatch
    assert soft.shape == (3, 4)
    torch.testing.assert_close(soft.cross_entropy(logits), label_batch(labels).cross_entropy(logits))


def test_ignored_probabilities_do_not_count():
    targets = torch.tensor([[0.2, 0.8], [0.5, 0.5]])
    batch = label_batch(targets).ignoring(torch.tensor([False, True]))
    assert batch.counted.tolist() == [True, False]
    losses = batch.cross_entropy(torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    assert losses[1] == 0
    expected = -(
        0.2 * torch.log_softmax(torch.tensor([0.0, 1.0]), 0)[0]
        + 0.8 * torch.log_softmax(torch.tensor([0.0, 1.0]), 0)[1]
    )
    torch.testing.assert_close(losses[0], expected)


def test_flags_and_item_numbers_stay_with_the_labels():
    trusted, items = torch.tensor([True, False]), torch.tensor([7, 3])
    batch = label_batch(torch.tensor([0, 1]), trusted, items).ignoring(torch.tensor([True, False]))
    assert batch.trusted is trusted
    assert batch.items is items
