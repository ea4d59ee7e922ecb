# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Linear mode of `real_noise.py`: linear models on fixed features, fitted to convergence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from real_noise_tasks import Cell, Features
from torch import Tensor

from glc_hf import estimate_corruption_matrix
from glc_hf.correction.linear import FeatureTable, LinearHead, Prior
from glc_hf.correction.pool.members import fit_with_votes
from glc_hf.correction.pool.pool_data import FOLDS, PoolData
from glc_hf.correction.pool.pooling import POOL, fit_pool
from glc_hf.correction.verdict import Verdict, difference_interval, way_of
from glc_hf.labels.label_batch import Votes


_HELD_OUT = 0.1
# Strengths of the pull towards the head of no_correction.
_PULLS = tuple(10 ** (-exponent / 2) for exponent in range(0, 13))  # 1 … 1e-6


class LinearCell:
    """
    The linear models of one cell. What several methods need is computed once.

    Args:
        cell ([`Cell`]): The rows and their labels.
        features ([`Features`]): Their features.
        seed (`int`): Of the folds and of the rows that choose penalties.
        votes ([`Votes`], *optional*): The votes of several sources on the training rows.
    """

    def __init__(self, cell: Cell, features: Features, seed: int, votes: Votes | None = None) -> None:
        used = torch.from_numpy(np.sort(cell.rows))
        self.num_labels, self.seed, self.cell = cell.source.num_labels, seed, cell
        # Test rows follow the training rows. Standardization and prior are those of the training rows.
        number = len(cell.labels)
        training = FeatureTable(features.train[used], used)
        self.table = FeatureTable(
            torch.cat([features.train, features.test]), torch.arange(number + len(features.test))
        )
        self.table.mean, self.table.scale = training.mean, training.scale
        self.table.correlation = training.correlation
        self.labels = F.pad(torch.from_numpy(cell.labels).clamp(min=0), (0, len(features.test)))
        self.test = torch.arange(len(features.test)) + number
        self.test_labels = torch.from_numpy(cell.source.test_labels)
        self.rows, self.trusted = torch.from_numpy(cell.rows), torch.from_numpy(cell.trusted)
        self.untrusted = torch.from_numpy(cell.untrusted)
        self.votes = None if votes is None else pad_votes(votes, len(features.test))
        self.seconds: dict[str, float] = {}

    # ------------------------------------------------------------------ what methods share
    def _timed(self, name: str, compute: Callable):
        start = time.process_time()
        value = compute()
        self.seconds[name] = time.process_time() - start
        return value

    def _fit_path(self, rows: Tensor, labels: Tensor | None = None) -> tuple[LinearHead, float]:
        labels = self.labels[rows] if labels is None else labels
        held_out = torch.rand(len(rows), generator=torch.Generator().manual_seed(self.seed)) < _HELD_OUT
        return self.table.fit_path(rows, labels, self.num_labels, held_out)[:2]

    @cached_property
    def noisy(self) -> tuple[LinearHead, float]:
        """The head of the untrusted rows and its penalty."""
        return self._timed("noisy", lambda: self._fit_path(self.untrusted))

    @cached_property
    def plain(self) -> tuple[LinearHead, float]:
        """The head of all labels and its penalty."""
        return self._timed("plain", lambda: self._fit_path(self.rows))

    @cached_property
    def pool_data(self) -> PoolData:
        """The items of the pool."""
        cell = self.cell
        return PoolData.of(
            self.table, self.labels.numpy(), cell.trusted, cell.untrusted, self.num_labels, self.seed, self.votes
        )

    @cached_property
    def pool(self):
        """The pool of linear models."""
        return self._timed("pool", lambda: fit_pool(self.pool_data, *self.noisy))

    def folds(self, number: int) -> Tensor:
        """The fold of each of `number` rows, at random."""
        return torch.randperm(number, generator=torch.Generator().manual_seed(self.seed)) % FOLDS

    # ------------------------------------------------------------------ methods
    def no_correction(self) -> LinearHead:
        return self.plain[0]

    def all_gold(self) -> LinearHead:
        """Plain training on the gold labels of all rows, which no method has: what these features can reach."""
        gold = torch.from_numpy(self.cell.source.columns["label"])
        return self._fit_path(self.rows, gold[self.rows])[0]

    def finetune_on_trusted(self) -> LinearHead:
        """
        The head of all labels, fitted again to the trusted rows: mean loss plus pull · ‖head − head of all labels‖².
        The pull is the one with the lowest loss over folds of the trusted rows, which are left out of both fits.
        """
        start, penalty = self.plain
        folds, losses = self.folds(len(self.trusted)), torch.zeros(len(_PULLS), dtype=torch.float64)
        for fold in range(FOLDS):
            kept, left_out = self.trusted[folds != fold], self.trusted[folds == fold]
            rows = torch.cat([kept, self.untrusted])
            without = self.table.fit(rows, self.labels[rows], self.num_labels, penalty=penalty, start=start)
            head = without
            for index, pull in enumerate(_PULLS):
                head = self.fit_near(kept, without, pull, start=head)
                logits = self.table.logits(head, left_out)
                losses[index] += F.cross_entropy(logits, self.labels[left_out], reduction="sum").double()
        best = _PULLS[int(losses.argmin())]
        return self.fit_near(self.trusted, start, best, start=start)

    def fit_near(self, rows: Tensor, center: LinearHead, pull: float, start: LinearHead) -> LinearHead:
        """Fit these rows, close to a head."""
        return self.table.fit(rows, self.labels[rows], self.num_labels, penalty=pull, start=start, center=center)

    def glc_paper(self) -> LinearHead:
        """The corrected loss with the paper's estimate: no refinement, trusted rows in their natural share."""
        head, penalty = self.noisy
        probs = self.table.logits(head, self.trusted).double().softmax(dim=-1)
        matrix = estimate_corruption_matrix(probs, self.labels[self.trusted])
        return self.table.fit(
            self.rows,
            self.labels[self.rows],
            self.num_labels,
            penalty=penalty,
            matrix=torch.from_numpy(np.array(matrix)),
            trusted=torch.arange(len(self.rows)) < len(self.trusted),
        )

    def cleanlab(self) -> LinearHead:
        """All labels without those that cleanlab finds to be wrong."""
        return self._fit_path(self.rows[torch.from_numpy(~self.label_issues())])[0]

    def label_issues(self) -> np.ndarray:
        """Mask of `rows`: label issues by cross-validated probabilities of a head of all labels; no trusted rows."""
        from cleanlab.filter import find_label_issues

        start, penalty = self.plain
        folds = self.folds(len(self.rows))
        probs = torch.zeros(len(self.rows), self.num_labels, dtype=torch.float64)
        for fold in range(FOLDS):
            kept = self.rows[folds != fold]
            head = self.table.fit(kept, self.labels[kept], self.num_labels, penalty=penalty, start=start)
            probs[folds == fold] = self.table.logits(head, self.rows[folds == fold]).double().softmax(dim=-1)
        issues = find_label_issues(self.labels[self.rows].numpy(), probs.numpy(), n_jobs=1)
        return issues & (np.arange(len(self.rows)) >= len(self.trusted))

    def votes_only(self) -> LinearHead:
        """The likelihood of the votes, without trusted rows."""
        return fit_with_votes(self.pool_data, torch.empty(0, dtype=torch.int64), Prior(self.noisy[1]), rounds=4)[0]

    def verdict(self) -> Verdict:
        """The accuracy of the pool and its difference from the head of all labels, on trusted rows that neither was
        fitted to."""
        pool = self.pool
        correct = {name: right.numpy() for name, right in pool.held_out_correct.items()}
        low, high = difference_interval(correct[POOL], correct["plain"])
        helps = True if low > 0 else False if high < 0 else None
        return Verdict(
            chosen="auto",
            ways={
                "auto": way_of(correct[POOL], "pool of linear models, cross-fitted"),
                "no_correction": way_of(correct["plain"], "linear model of all labels, cross-fitted"),
            },
            sentence=f"The difference is {100 * low:+.1f} to {100 * high:+.1f} points.",
            helps=helps,
            trusted_rows=len(pool.labels),
            final=True,
        )

    # ------------------------------------------------------------------ results
    def run(self, methods: Iterable[str]) -> dict[str, dict]:
        """Accuracy, processor seconds and, for `auto`, the verdict of each method. The models of the pool are fitted
        together: each has the time of the whole pool."""
        results = {}
        for method in methods:
            needs = _NEEDS.get(method, ("plain",))
            for name in needs:
                getattr(self, name)  # so that its time is not part of the method's own
            start = time.process_time()
            if method in _FROM_POOL:
                logits, own = self.pool_logits(method), 0.0
            else:
                logits = self.table.logits(getattr(self, method)(), self.test)
                own = time.process_time() - start
            accuracy = float((logits.argmax(dim=-1) == self.test_labels).double().mean())
            seconds = own + sum(self.seconds[name] for name in needs)
            results[method] = {"accuracy": round(accuracy, 5), "processor_seconds": round(seconds, 2)}
            if method == "auto":
                results[method]["weights"] = dict(
                    zip(self.pool_data.members, (round(float(w), 3) for w in self.pool.weights), strict=True)
                )
                results[method]["verdict"] = self.verdict().to_dict()
        return results

    def pool_logits(self, method: str) -> Tensor:
        """Logits of the pool or of one of its members for the test rows."""
        if method == "auto":
            return self.pool.log_probs(self.test)
        return self.pool.members.log_probs(self.test)[:, list(self.pool_data.members).index(_FROM_POOL[method])]


# Methods that are the pool or a member of it.
_FROM_POOL = {"auto": POOL, "glc": "glc", "trusted_only": "trusted"}
# What the methods share with others; those that are not named need `plain`.
_NEEDS = {**dict.fromkeys(_FROM_POOL, ("noisy", "pool")), "glc_paper": ("noisy",), "all_gold": ()}


def pad_votes(votes: Votes, rows: int) -> Votes:
    """The votes, with more rows that have none."""
    offsets = np.concatenate([votes.offsets, np.full(rows, votes.offsets[-1])])
    return Votes(votes.names, offsets, votes.sources, votes.labels)
