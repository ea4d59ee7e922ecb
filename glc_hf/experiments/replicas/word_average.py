# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Replicas of the mean of word vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glc_hf.experiments.replicas.late_adam import LateAdam
from glc_hf.experiments.replicas.networks import repeated, with_buffer


class StackedWordAverage:
    """
    The mean of a text's word vectors, and an affine output.

    The vectors of a word lie side by side for all replicas, (V, R·D): one look-up serves all of them. A step reads the
    words of its batch alone, so that their vectors can be left to [`LateAdam`]. Where they can't, because a penalty
    draws on all of them, their gradient is zero but for those words, whose rows are cleared after the step.

    Args:
        vectors, output (`tuple[str, nn.Module]`): The model's embedding and output layer, with their names.
        divide_by (`int` or `None`): What a text's sum of vectors is divided by; `None`: the number of its words.
        replicas (`int`): R.
    """

    def __init__(
        self,
        vectors: tuple[str, nn.Embedding],
        output: tuple[str, nn.Linear],
        divide_by: int | None,
        replicas: int,
    ) -> None:
        self.replicas, self.divide_by = replicas, divide_by
        self.vectors_name, embedding = vectors
        self.output_name, layer = output
        self.parameters = {
            f"{self.vectors_name}.weight": with_buffer(embedding.weight.detach().repeat(1, replicas)),
            f"{self.output_name}.weight": repeated(layer.weight, replicas),
            f"{self.output_name}.bias": repeated(layer.bias, replicas),
        }
        self._late: LateAdam | None = None
        self._kept: tuple[Tensor, ...] = ()

    def inputs(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Word numbers, and the weight of each: one over what their sum is divided by, 0 on padding."""
        mask = tensors["attention_mask"].to(torch.float32)
        return tensors["input_ids"], mask / (self.divide_by or mask.sum(dim=1, keepdim=True).clamp(min=1.0))

    @torch.no_grad()
    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """See [`StackedNetwork`]."""
        words, shares = inputs
        longest = int((shares > 0).sum(dim=1).max()) if len(words) else 0
        words, shares = words[:, :longest].contiguous(), shares[:, :longest].contiguous()
        vectors, weight, bias = self.parameters.values()
        if self._late is not None:
            rows, words = words.unique(return_inverse=True)
            vectors = self._late.read(rows)
        if longest:
            means = F.embedding_bag(words, vectors, mode="sum", per_sample_weights=shares)
        else:
            means = vectors.new_zeros(len(words), vectors.shape[1])
        means = means.view(len(words), self.replicas, -1).transpose(0, 1)
        self._kept = (words, shares, means, vectors)
        return torch.baddbmm(bias.unsqueeze(1), means, weight.transpose(1, 2))

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """See [`StackedNetwork`]."""
        words, shares, means, vectors = self._kept
        _, weight, bias = self.parameters.values()
        torch.bmm(gradient.transpose(1, 2), means, out=weight.grad)
        torch.sum(gradient, dim=1, out=bias.grad)
        of_means = torch.bmm(gradient, weight).transpose(0, 1).reshape(len(words), -1)
        text, place = shares.nonzero(as_tuple=True)
        self._touched = words[text, place]
        self._of_vectors = torch.zeros_like(vectors) if self._late is not None else vectors.grad
        self._of_vectors.index_add_(0, self._touched, of_means[text] * shares[text, place].unsqueeze(1))

    def late_parameter(self) -> str:
        """See [`StackedNetwork`]: the vectors."""
        return f"{self.vectors_name}.weight"

    def start(self, late: LateAdam | None) -> None:
        """See [`StackedNetwork`]."""
        self._late = late

    def after_step(self) -> None:
        """The vectors take their step too, or the gradient of the batch's words goes back to zero."""
        if self._late is not None:
            self._late.step(self._of_vectors)
        else:
            self._of_vectors.index_fill_(0, self._touched, 0.0)

    def finish(self) -> None:
        """See [`StackedNetwork`]."""
        if self._late is not None:
            self._late.finish()
            self._late = None

    def state_of(self, replica: int) -> dict[str, Tensor]:
        """See [`StackedNetwork`]."""
        vectors, weight, bias = (parameter.detach() for parameter in self.parameters.values())
        width = vectors.shape[1] // self.replicas
        return {
            f"{self.vectors_name}.weight": vectors[:, replica * width : (replica + 1) * width].clone(),
            f"{self.output_name}.weight": weight[replica].clone(),
            f"{self.output_name}.bias": bias[replica].clone(),
        }
