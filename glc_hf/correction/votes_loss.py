# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The cross-entropy with the votes of several sources.

Source s votes for class v with probability J_s[y, v] if the true class is y, and does not vote with probability
J_s[y, none]. With p = softmax(x), x the K logits of an item, its loss is

    -log Σ_y p_y exp(ℓ_y),   ℓ_y = t Σ_s w_s log J_s[y, vote_s]                                 (the log-likelihood)
    d loss/d x = softmax(x) - softmax(x + ℓ)

where vote_s may be none, w_s is the weight of the source and t the temperature of all sources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from glc_hf._compat import functorch_check
from glc_hf.correction.likelihood import IMPOSSIBLE_LABEL_LOSS
from glc_hf.labels.label_batch import Votes


_transforms_active = functorch_check()
_NUMBERS_PER_CHUNK = 2**22


class VoteTable(NamedTuple):
    """
    What each vote says about the true class, with the weights and the temperature in it.

    Args:
        rows (`Tensor` of shape `(S·K, K)`):
            `rows[s·K + v, y] = t · w_s · (log J_s[y, v] - log J_s[y, none])`; -inf if class y never gives this vote.
        constant (`Tensor` of shape `(K,)`): `t · Σ_s w_s log J_s[y, none]`: the log-likelihood of no vote at all.
        always (`Tensor` of shape `(S, K)`, *optional*):
            1 where J_s[y, none] is 0 for class y but not for all classes. There `rows` and `constant` leave it out,
            and class y is impossible if the source does not vote. `None` if there is no such entry.
    """

    rows: Tensor
    constant: Tensor
    always: Tensor | None

    @classmethod
    def of(
        cls,
        given_vote: np.ndarray | Tensor,
        coverage: np.ndarray | Tensor,
        weights: np.ndarray | Tensor | None = None,
        temperature: float = 1.0,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> VoteTable:
        """
        Make the table. Beyond the result it needs memory for a part of the sources only.

        If a source votes whatever the class (coverage 1 for all classes), its missing vote says nothing.

        Args:
            given_vote (`np.ndarray` or `Tensor` of shape `(S, K, K)`): `given_vote[s, v, y] = p(vote v | y, s votes)`.
                The true class is the last dimension.
            coverage (`np.ndarray` or `Tensor` of shape `(S, K)`): `coverage[s, y] = p(s votes | y)`.
            weights (`np.ndarray` or `Tensor` of shape `(S,)`, *optional*): w. A source of weight 0 is left out.
            temperature (`float`, *optional*, defaults to 1.0): t.
            device (`torch.device`, *optional*, defaults to `"cpu"`): Device of the table.
            dtype (`torch.dtype`, *optional*, defaults to `torch.float32`): float32 or float64.
        """
        given_vote, coverage = torch.as_tensor(given_vote), torch.as_tensor(coverage).double()
        if given_vote.dim() != 3 or given_vote.shape[1] != given_vote.shape[2]:
            raise ValueError(f"given_vote has the shape (sources, K, K), got {tuple(given_vote.shape)}.")
        num_sources, num_labels, _ = given_vote.shape
        if coverage.shape != (num_sources, num_labels):
            raise ValueError(f"coverage has the shape {(num_sources, num_labels)} here, got {tuple(coverage.shape)}.")
        powers = torch.ones(num_sources) if weights is None else torch.as_tensor(weights)
        if powers.shape != (num_sources,):
            raise ValueError(f"weights has one number per source, {num_sources}; got shape {tuple(powers.shape)}.")
        powers = (temperature * powers.double()).unsqueeze(1)
        silent = (1.0 - coverage).clamp(min=0.0)
        always = (silent == 0) & (powers != 0)
        log_silent = torch.where(silent == 0, 0.0, silent.log())
        rows = torch.empty(num_sources * num_labels, num_labels, dtype=dtype, device=device)
        step = max(1, _NUMBERS_PER_CHUNK // num_labels**2)
        for start in range(0, num_sources, step):
            part = slice(start, start + step)
            logs = given_vote[part].double().log() + (coverage[part].log() - log_silent[part]).unsqueeze(1)
            logs = torch.where(powers[part, None] == 0, 0.0, logs * powers[part, None])  # not 0 · -inf
            rows[start * num_labels : (start + len(logs)) * num_labels] = logs.reshape(-1, num_labels)
        always &= ~always.all(dim=1, keepdim=True)
        return cls(
            rows,
            (powers * log_silent).sum(dim=0).to(device=device, dtype=dtype),
            always.to(device=device, dtype=dtype) if bool(always.any()) else None,
        )

    @property
    def num_labels(self) -> int:
        """K."""
        return self.rows.shape[1]

    def log_likelihood(self, sources: Tensor, labels: Tensor, offsets: Tensor) -> Tensor:
        """
        ℓ of each item, `(B, K)`. No tensor is larger than that.

        Args:
            sources (`Tensor` of shape `(votes,)`): Number of the source of each vote, item by item.
            labels (`Tensor` of shape `(votes,)`): The class that it voted for.
            offsets (`Tensor` of shape `(B + 1,)`): Item i has the votes `offsets[i]` to `offsets[i + 1]`.
        """
        sources, labels, offsets = (part.to(self.rows.device).long() for part in (sources, labels, offsets))
        if sources.device.type == "cpu":  # on other devices the check would synchronize; there the lookup fails
            self._check(sources, labels)
        if len(offsets) <= 1 or len(sources) == 0:
            found = self.constant.expand(max(len(offsets) - 1, 0), -1).clone()
        else:
            index = labels.add(sources, alpha=self.num_labels)
            found = F.embedding_bag(index, self.rows, offsets, mode="sum", include_last_offset=True)
            found += self.constant
        if self.always is None:
            return found
        needed = self.always.sum(dim=0)
        given = torch.zeros_like(found)
        if len(offsets) > 1 and len(sources):
            given = F.embedding_bag(sources, self.always, offsets, mode="sum", include_last_offset=True)
        return found.masked_fill_(given < needed, -torch.inf)

    def of_votes(self, votes: Votes) -> Tensor:
        """ℓ of each item of `votes`, `(items, K)`."""
        return self.log_likelihood(*(torch.from_numpy(part) for part in (votes.sources, votes.labels, votes.offsets)))

    def _check(self, sources: Tensor, labels: Tensor) -> None:
        num_sources = len(self.rows) // self.num_labels
        for name, numbers, limit in (("source", sources, num_sources), ("class", labels, self.num_labels)):
            if numbers.numel() and not (numbers.min().item() >= 0 and numbers.max().item() < limit):
                vote = int(((numbers < 0) | (numbers >= limit)).nonzero()[0])
                raise ValueError(
                    f"vote {vote} of the batch has the {name} {int(numbers[vote])}; the table has {limit}, "
                    f"numbered 0…{limit - 1}. Leave missing votes out."
                )


def votes_cross_entropy(
    logits: Tensor,
    log_likelihood: Tensor,
    labels: Tensor,
    trusted: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """
    -log Σ_y softmax(logits)_y · exp(ℓ_y) of each item, ℓ the log-likelihood of its votes; for trusted items the plain
    cross-entropy, -log softmax(logits)_label.

    Exact for any finite logits, with its analytic gradient. float16 and bfloat16 logits are computed in float32, also
    under autocast, and give a float32 loss. Zeros of the sources' tables (ℓ = -inf) are exact. An item whose ℓ is the
    same for all classes, such as one without votes about which nothing is known, has the loss 0 and no gradient. An
    item with votes that no class can produce has no gradient and the constant loss 87.34, as in
    [`corrected_cross_entropy`].

    Args:
        logits (`Tensor` of shape `(..., K)`): Scores of the K true classes.
        log_likelihood (`Tensor` of shape `(..., K)`): ℓ, from [`VoteTable`]. A constant without gradient.
        labels (`Tensor` of shape `(...)`):
            Labels of trusted items; for other items only `ignore_index` has a meaning.
        trusted (`Tensor` of shape `(...)`, *optional*): Boolean. `None`: no item is trusted.
        ignore_index (`int`, *optional*, defaults to -100): Items with this label have no loss and no gradient.

    Returns:
        `Tensor` of shape `(...)`: the loss of each item.
    """
    _check_arguments(logits, log_likelihood, labels, trusted)
    num_labels = logits.shape[-1]
    dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
    flat_labels = labels.reshape(-1).long()
    flat_trusted = trusted.reshape(-1) if trusted is not None else None
    transformed = _transforms_active() or forward_ad.unpack_dual(logits).tangent is not None
    if flat_trusted is not None and labels.device.type == "cpu" and not (transformed or torch.compiler.is_compiling()):
        _check_labels(flat_labels, flat_trusted, ignore_index, num_labels)
    weights = log_likelihood.reshape(-1, num_labels).to(dtype)
    problem = _masks(weights, flat_labels, flat_trusted, ignore_index)
    if transformed or torch.compiler.is_compiling():
        losses = _losses(_log_probs(logits.reshape(-1, num_labels).to(dtype)), problem)
    elif logits.requires_grad and torch.is_grad_enabled():
        losses = _VotesCrossEntropy.apply(logits.reshape(-1, num_labels), problem)
    else:
        losses = _losses(_log_probs(logits.detach().reshape(-1, num_labels).to(dtype)), problem)
    return losses.reshape(labels.shape)


class _Problem(NamedTuple):
    """The inputs of the loss other than the logits."""

    weights: Tensor  # ℓ, or 0 at the label and -inf elsewhere for trusted items, less its largest entry; (N, K)
    shift: Tensor  # the largest entry, (N,)
    impossible: Tensor
    without_loss: Tensor


class _VotesCrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the loss, so that backward is one multiplication."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, problem: _Problem) -> Tensor:
        log_probs = _log_probs(logits.to(problem.weights.dtype))
        ctx.save_for_backward(logits, _gradient(log_probs, problem))
        ctx.problem = problem
        return _losses(log_probs, problem)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            gradient = _gradient(_log_probs(logits.to(gradient.dtype)), ctx.problem)
        return (gradient * upstream.unsqueeze(-1)).to(logits.dtype), None


def _masks(weights: Tensor, labels: Tensor, trusted: Tensor | None, ignore_index: int) -> _Problem:
    """The weights of each item less their maximum, which keeps the precision of very unlikely votes."""
    shift = weights.amax(dim=-1)
    impossible = torch.isneginf(shift)
    ignored = labels == ignore_index
    unknown = (shift == weights.amin(dim=-1)) & ~impossible
    if trusted is not None:
        impossible, unknown, shift = impossible & ~trusted, unknown & ~trusted, shift.masked_fill(trusted, 0)
        classes = torch.arange(weights.shape[-1], device=weights.device)
        certain = torch.zeros_like(weights).masked_fill(labels.unsqueeze(-1) != classes, -torch.inf)
        weights = torch.where(trusted.unsqueeze(-1), certain, weights)
    without_loss = ignored | unknown
    nothing = impossible | without_loss
    shift = shift.masked_fill(nothing, 0)
    return _Problem(
        (weights - shift.unsqueeze(-1)).masked_fill(nothing.unsqueeze(-1), 0), shift, impossible, without_loss
    )


def _losses(log_probs: Tensor, problem: _Problem) -> Tensor:
    losses = -torch.logsumexp(log_probs + problem.weights, dim=-1) - problem.shift
    return losses.masked_fill(problem.impossible, IMPOSSIBLE_LABEL_LOSS).masked_fill(problem.without_loss, 0)


def _gradient(log_probs: Tensor, problem: _Problem) -> Tensor:
    gradient = log_probs.exp() - torch.softmax(log_probs + problem.weights, dim=-1)
    return gradient.masked_fill((problem.impossible | problem.without_loss).unsqueeze(-1), 0)


def _log_probs(x: Tensor) -> Tensor:
    """log softmax(x) with -inf replaced by the lowest finite number."""
    return torch.log_softmax(x, dim=-1).clamp(min=torch.finfo(x.dtype).min)


def _check_arguments(logits: Tensor, log_likelihood: Tensor, labels: Tensor, trusted: Tensor | None) -> None:
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating point, got {logits.dtype}.")
    if log_likelihood.shape != logits.shape or logits.dim() == 0:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need a log-likelihood of the same shape, got "
            f"{tuple(log_likelihood.shape)}."
        )
    if log_likelihood.requires_grad:
        raise ValueError("the log-likelihood of the votes is a constant of the loss, but it requires grad: detach it.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integers, got {labels.dtype}.")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need labels of shape {tuple(logits.shape[:-1])}, got "
            f"{tuple(labels.shape)}."
        )
    if trusted is not None and trusted.dtype != torch.bool:
        raise TypeError(f"trusted must be boolean, got {trusted.dtype}; for 0 and 1 pass trusted.bool().")
    if trusted is not None and trusted.shape != labels.shape:
        raise ValueError(f"trusted has shape {tuple(trusted.shape)}, and the labels have {tuple(labels.shape)}.")


def _check_labels(labels: Tensor, trusted: Tensor, ignore_index: int, num_labels: int) -> None:
    bad = trusted & (labels != ignore_index) & ((labels < 0) | (labels >= num_labels))
    if bool(bad.any()):
        item = int(bad.nonzero()[0])
        raise ValueError(
            f"item {item} of the batch is trusted and has the label {int(labels[item])}; with {num_labels} classes it "
            f"must be in 0…{num_labels - 1}, or {ignore_index} to be ignored."
        )
