# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Networks that hold R replicas of one model, with their gradients in closed form.

The gradients are written into buffers made once: at these sizes, asking the system for fresh memory at each step would
cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glc_hf.backbones import (
    ImageMLPForImageClassification,
    WindowTaggerForTokenClassification,
    WordAverageForSequenceClassification,
)
from glc_hf.experiments.replicas.late_adam import LateAdam


_ROWS_AT_ONCE = 1000


class StackedNetwork(Protocol):
    """R replicas of one model. `parameters` are named as in the model; their `grad` is a buffer of their shape."""

    replicas: int
    parameters: dict[str, nn.Parameter]

    def inputs(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What the replicas read, from the inputs of the model: tensors whose first dimension is the rows."""
        ...

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Logits (R, B, K) of a batch; what the gradient needs is kept until the next call."""
        ...

    def backward(self, gradient: Tensor) -> None:
        """Fills `grad` of every parameter from d loss / d logits of the batch last seen."""
        ...

    def late_parameter(self) -> str | None:
        """Name of the parameter that [`LateAdam`] may update in the optimizer's place, if there is one."""
        ...

    def start(self, late: LateAdam | None) -> None:
        """Called before the first step of a training."""
        ...

    def after_step(self) -> None:
        """Called after each step of the optimizer."""
        ...

    def finish(self) -> None:
        """Called after the last step."""
        ...

    def state_of(self, replica: int) -> dict[str, Tensor]:
        """The trained parameters of one replica, as the model names them."""
        ...


class StackedPerceptron:
    """
    Fully connected layers on fixed features: ReLU or GELU in between, weights (R, out, in).

    All replicas read the same features, so the first layer, which has most of the weights, is one matrix product for
    all of them. It leaves out the columns at the end that are zero in the whole batch: with `order` those are many
    (a quarter of the pixels of MNIST), and neither the values nor the gradients differ.

    Args:
        layers (`list[tuple[str, nn.Linear]]`): The model's layers in order, with their names.
        activation (`str`): `"relu"` or `"gelu"`.
        features (`Callable`): The features (N, F) from the inputs of the model.
        replicas (`int`): R.
        order (`Tensor` of shape `(F,)`, *optional*): The features' columns as they are kept, those that are zero most
            often last.
    """

    def __init__(
        self,
        layers: list[tuple[str, nn.Linear]],
        activation: str,
        features: Callable[[Mapping[str, Tensor]], Tensor],
        replicas: int,
        order: Tensor | None = None,
    ) -> None:
        if activation not in ("relu", "gelu"):
            raise ValueError(f"replicas of layers with {activation!r} between them are not supported: relu, gelu.")
        self.replicas = replicas
        self.features = features
        self.order = torch.arange(layers[0][1].in_features) if order is None else order
        self.relu = activation == "relu"
        self.names = [name for name, _ in layers]
        self.parameters: dict[str, nn.Parameter] = {}
        for place, (name, layer) in enumerate(layers):
            weight = layer.weight[:, self.order] if place == 0 else layer.weight
            self.parameters[f"{name}.weight"] = repeated(weight, replicas)
            self.parameters[f"{name}.bias"] = repeated(layer.bias, replicas)
        # How many columns of the first layer's gradient may not be zero.
        self._filled = 0
        # What each layer read, and before what activation that was; the first one's is kept flat, (B, R·out).
        self._kept: list[tuple[Tensor, Tensor | None]] = []

    def inputs(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """See [`StackedNetwork`]."""
        features = self.features(tensors)[:, self.order]
        places = torch.arange(1, features.shape[1] + 1, dtype=torch.int32)
        used = [((part != 0) * places).amax(dim=1) for part in features.split(_ROWS_AT_ONCE)]
        return features, torch.cat(used)

    @torch.no_grad()
    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """See [`StackedNetwork`]."""
        rows, used = inputs
        weight, bias = self._layer(0)
        rows = rows[:, : self._rounded(int(used.max()))]
        flat = weight.view(-1, weight.shape[-1])
        values = torch.addmm(bias.view(-1), rows, flat[:, : rows.shape[1]].t())
        self._kept = [(rows, None)]
        for place in range(1, len(self.names)):
            weight, bias = self._layer(place)
            hidden, before = (values.relu_(), None) if self.relu else (F.gelu(values), values)
            self._kept.append((hidden, before))
            hidden = self._by_replica(hidden) if place == 1 else hidden
            values = torch.baddbmm(bias.unsqueeze(1), hidden, weight.transpose(1, 2))
        return self._by_replica(values) if len(self.names) == 1 else values

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """See [`StackedNetwork`]."""
        for place in range(len(self.names) - 1, 0, -1):
            weight, bias = self._layer(place)
            hidden, before = self._kept[place]
            torch.bmm(gradient.transpose(1, 2), self._by_replica(hidden) if place == 1 else hidden, out=weight.grad)
            torch.sum(gradient, dim=1, out=bias.grad)
            gradient = torch.bmm(gradient, weight)
            if place == 1:
                gradient = self._flat(gradient)
            if self.relu:  # what is kept is above 0 where the values before ReLU were
                torch.ops.aten.threshold_backward.grad_input(gradient, hidden, 0, grad_input=gradient)
            else:
                gradient = torch.ops.aten.gelu_backward(gradient, before)
        if len(self.names) == 1:
            gradient = self._flat(gradient)
        weight, bias = self._layer(0)
        rows = self._kept[0][0]
        width = rows.shape[1]
        flat = weight.grad.view(-1, weight.shape[-1])
        torch.mm(gradient.t(), rows, out=flat[:, :width])
        flat[:, width : self._filled] = 0.0
        self._filled = width
        torch.sum(gradient, dim=0, out=bias.grad.view(-1))

    def _rounded(self, columns: int) -> int:
        """Matrix products are fastest with a whole number of vector registers."""
        return min(-(-columns // 16) * 16, len(self.order))

    def _by_replica(self, values: Tensor) -> Tensor:
        """(B, R·out) as (R, B, out)."""
        return values.view(len(values), self.replicas, -1).transpose(0, 1)

    def _flat(self, values: Tensor) -> Tensor:
        """(R, B, out) as (B, R·out)."""
        return values.transpose(0, 1).reshape(values.shape[1], -1)

    def late_parameter(self) -> None:
        """See [`StackedNetwork`]: a step reads all weights."""

    def start(self, late: LateAdam | None) -> None:
        """See [`StackedNetwork`]."""

    def after_step(self) -> None:
        """Nothing to do: every gradient is written anew."""

    def finish(self) -> None:
        """See [`StackedNetwork`]."""

    def state_of(self, replica: int) -> dict[str, Tensor]:
        """See [`StackedNetwork`]."""
        state = {name: parameter.detach()[replica].clone() for name, parameter in self.parameters.items()}
        first = f"{self.names[0]}.weight"
        return {**state, first: state[first][:, self.order.argsort()]}

    def _layer(self, place: int) -> tuple[nn.Parameter, nn.Parameter]:
        name = self.names[place]
        return self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]


def repeated(parameter: Tensor, replicas: int) -> nn.Parameter:
    """A parameter R times over, (R, …)."""
    return with_buffer(parameter.detach().unsqueeze(0).repeat(replicas, *[1] * parameter.dim()))


def with_buffer(values: Tensor) -> nn.Parameter:
    """A parameter of these values, with a `grad`."""
    parameter = nn.Parameter(values.float().contiguous())
    parameter.grad = torch.zeros_like(parameter)
    return parameter


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


def stack(model: torch.nn.Module, replicas: int, order: Tensor | None = None) -> StackedNetwork:
    """
    Replicas of a model, each with its weights.

    Args:
        model (`torch.nn.Module`): A fully connected network, the mean of word vectors, or the window tagger with fixed
            vectors (of rows that are one window each, labelled in the middle).
        replicas (`int`): How many.
        order (`Tensor`, *optional*): Of [`column_order`].
    """
    if isinstance(model, ImageMLPForImageClassification):
        return StackedPerceptron(_layers(model), "relu", _pixels, replicas, order)
    if isinstance(model, WordAverageForSequenceClassification):
        parts = ("embeddings", model.embeddings), ("classifier", model.classifier)
        return StackedWordAverage(*parts, model.config.divide_by, replicas)
    if isinstance(model, WindowTaggerForTokenClassification) and not model.config.train_vectors:
        features = partial(_windows, model.word_vectors)
        return StackedPerceptron(_layers(model), model.config.hidden_act, features, replicas, order)
    raise ValueError(f"a {type(model).__name__} can't be trained in replicas.")


def column_order(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The columns of the features of these rows, those that are zero most often last: what `stack` takes. `None` for
    networks without fixed features."""
    network = stack(model, 1)
    if not isinstance(network, StackedPerceptron):
        return None
    return (network.features(tensors) != 0).sum(dim=0).argsort(descending=True, stable=True)


def _layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    hidden = [(f"layers.{place}", layer) for place, layer in enumerate(model.layers)]
    return [*hidden, ("classifier", model.classifier)]


def _pixels(tensors: Mapping[str, Tensor]) -> Tensor:
    return tensors["pixel_values"].flatten(1)


def _windows(vectors: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """The vectors of a row's words, one after the other: what the middle word's layer sees."""
    found = F.embedding(tensors["input_ids"], vectors)
    return (found * tensors["attention_mask"].to(found.dtype).unsqueeze(-1)).flatten(1)
