# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Helpers for tests of methods: a fake run between the stages, and losses on two rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from glc_hf import GLCConfig
from glc_hf.labels.label_batch import label_batch
from glc_hf.methods import get_method
from glc_hf.methods.base import Inferred


class FakeRun:
    """An `EstimationRun` with given softmax rows per stage instead of trained models, labels and flags per item."""

    label_names = None

    def __init__(self, probs, labels, trusted, held_out=(), noisy=None) -> None:
        self.probs = [torch.as_tensor(np.asarray(p), dtype=torch.float64) for p in probs]
        self.labels, self.trusted = np.asarray(labels), np.asarray(trusted, dtype=bool)
        self.held_out = np.isin(np.arange(len(self.labels)), held_out)
        self.noisy = noisy
        self.num_labels = self.probs[0].shape[1] if probs else int(self.labels.max()) + 1

    def _mask(self, items, part="all"):
        mask = {"all": np.ones_like(self.trusted), "trusted": self.trusted, "untrusted": ~self.trusted}[items]
        return mask if part == "all" else mask & (self.held_out if part == "held_out" else ~self.held_out)

    def infer(self, stage, items, part="all", only=None) -> Iterator[Inferred]:
        numbers = np.flatnonzero(self._mask(items, part))
        if only is not None:
            numbers = np.intersect1d(numbers, only.numpy())
        for chunk in np.array_split(numbers, 2):
            yield Inferred(
                self.probs[stage][chunk].log().float(), torch.tensor(self.labels[chunk]), torch.from_numpy(chunk)
            )

    def probe(self, stage):
        return None

    def sum_over_processes(self, tensor):
        return tensor

    def gather_objects(self, value):
        return [value]

    def item_labels(self, items, column=None):
        return (self.labels if column is None else np.asarray(self.noisy))[self._mask(items)]

    def class_counts(self, items):
        return torch.from_numpy(np.bincount(self.item_labels(items), minlength=self.num_labels)).double()


def make_method(name, tmp_path, num_labels=3, matrix=None, **settings):
    return get_method(name)(GLCConfig(str(tmp_path), method=name, use_cpu=True, **settings), num_labels, matrix)


def two_losses(method, trusted):
    """The losses of two rows, their logits and their labels."""
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.2, 0.1]])
    labels = torch.tensor([1, 2])
    return method.item_losses(logits, label_batch(labels, torch.tensor(trusted), torch.tensor([0, 1]))), logits, labels
