# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What a trainer says about the labels of a dataset: findings, and the rows to check next."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from logging import INFO, WARNING
from typing import Any

import datasets
import numpy as np
import torch
from datasets import Dataset, Value
from transformers import Trainer
from transformers.utils import logging

from glc_hf.audit.cross_fit import (
    FOLDS,
    agreement,
    cross_fit,
    fold_parts,
    network_before_training,
    trainer_of_fold,
    with_correct_rows,
)
from glc_hf.audit.findings import Evidence, GivenLabels, add_audit_columns, check_audit_columns, given_labels
from glc_hf.audit.suggest import disagreement_of, reasons, rows_to_check, value_of_checking
from glc_hf.correction.likelihood import posterior_over_true_labels
from glc_hf.correction.linear import FeatureTable
from glc_hf.correction.sources import SourceModel
from glc_hf.labels.columns import label_names_of
from glc_hf.labels.reading import IGNORED_LABEL
from glc_hf.labels.storage import with_format_of
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.base import Method


logger = logging.get_logger(__name__)

ROW, REASON = "row", "reason"


class AuditMixin(Trainer):
    """Audits of [`GLCTrainer`]."""

    # A `GLCConfig`, which a later folder defines.
    args: Any
    model: torch.nn.Module
    num_labels: int | None
    method: Method | None
    # What the votes of a trained folder say, for audits without training; see `load_sources`.
    given_sources: SourceModel | None = None

    def audit(self, dataset: datasets.Dataset, folds: int | None = None, refit: bool = False) -> datasets.Dataset:
        """
        Find the labels of a dataset that look wrong, and suggest better ones, from the posterior over true labels,
        p(true = y | x, given) ∝ p(y | x) · Ĉ[y, given], or p(y | x) · Π_s p(vote_s | y) for votes of several sources.
        The given label of an untrusted row with votes is the class that the votes make most probable. With several
        processes, each computes the whole result.

        Args:
            dataset (`datasets.Dataset`):
                Rows with the columns of `train_dataset`: inputs, labels or votes and, if some rows are trusted, their
                flags. They can be the training rows or other rows of the same noisy sources. The given label of an
                untrusted row with a soft label is its most probable class.
            folds (`int`, *optional*):
                A network that has memorized a wrong label does not find it. With folds, p(y | x) comes from linear
                models on the features of the network (before training, if it can be loaded) that were fitted on the
                other folds and on the trusted rows. 0 uses the predictions of the network. By default 5 folds are used
                if the network has learned more than half of the wrong labels, with one line in the log.
            refit (`bool`, *optional*, defaults to `False`):
                Train a network per fold instead of linear models (5 by default), from the network before training,
                with the same arguments, in `output_dir/audit_fold_1` and so on.

        Returns:
            `datasets.Dataset`: The same rows in the same order, with the columns `given_label`, `suggested_label` (the
            most probable label), `p_wrong` (the probability that the given label is wrong; 0 for trusted rows),
            `is_label_issue` (whether another label is more probable) and `label_score` (1 − `p_wrong`). These are
            lists if labels are lists; a token labeled -100 keeps this label. An untrusted row without votes has the
            given label -100, p_wrong 0, and the prediction of the model as suggestion.
        """
        return self._audit(dataset, folds, refit).audited()

    def suggest(self, dataset: datasets.Dataset, n: int, folds: int | None = None) -> datasets.Dataset:
        """
        Choose the rows whose labels should be checked next: rows that the model is not sure of, of classes with few
        trusted rows, and on which sources disagree. They are spread over the data: each stands for many such rows, and
        differs from the trusted rows and from the others. The choice depends on `n`: train again with the checked rows
        before asking for more.

        Args:
            dataset, folds: As in [`~GLCTrainer.audit`].
            n (`int`): How many rows.

        Returns:
            `datasets.Dataset`: At most `n` untrusted rows, best first, with the columns of an audit, `row` (the number
            of the row in the dataset) and `reason`.
        """
        return self._audit(dataset, folds).suggested(n)

    def _audit(self, dataset: datasets.Dataset, folds: int | None, refit: bool = False) -> LabelAudit:
        audit = audit_labels(self, dataset, folds, refit)
        if audit.note is not None:
            logger.log(WARNING if audit.is_surprising else INFO, audit.note)
        return audit

    # ------------------------------------------------------------------ what the trainer provides
    @property
    def corruption_matrix(self) -> CorruptionMatrix | None:
        """The matrix of a single source; `None` if there is none."""
        raise NotImplementedError

    def item_logits(self, labels: GivenLabels) -> torch.Tensor:
        """The logits of the rows of an audit, `(N, K)`, one row per label that is not -100."""
        raise NotImplementedError

    def item_features(self, network: torch.nn.Module, labels: GivenLabels) -> Any:
        """The features of the same rows, `(N, D)`, from another network, which gets hooks that stay."""
        raise NotImplementedError

    def why_no_features(self) -> str | None:
        """Why the network can't compute features; `None` if it can."""
        raise NotImplementedError


@dataclass
class LabelAudit:
    """
    The probabilities of the true labels of a dataset.

    Attributes:
        trainer: The trainer, whose network computes features.
        dataset: The rows.
        labels: Their labels and votes.
        log_probs: `(N, K)`, log p(true label | x), up to a constant per row, for each label that is not -100.
        names: Names of the classes.
        note: Where the probabilities come from, if not from the predictions of the network.
        is_surprising: Whether the note is about something that was not asked for.
    """

    trainer: AuditMixin
    dataset: Dataset
    labels: GivenLabels
    log_probs: torch.Tensor
    names: list[str] | None
    note: str | None = None
    is_surprising: bool = False

    # ------------------------------------------------------------------ findings
    def audited(self) -> Dataset:
        """The rows with the columns of an audit; see [`~audit.findings.add_audit_columns`]."""
        return add_audit_columns(self.dataset, self.labels, self.log_probs, self.names)

    def evidence(self) -> Evidence:
        """What is known about the number of wrong labels, besides the columns of the audit."""
        chosen, (known, noisy) = self._untrusted_with_label(), self.labels.noisy.T
        p_given = self.log_probs[chosen].double().softmax(dim=-1)[torch.arange(len(chosen)), self.given[chosen]]
        return Evidence(float((1 - p_given).sum()), len(known), int((known != noisy).sum()))

    @cached_property
    def posterior(self) -> torch.Tensor:
        """`(N, K)`, p(true label | x, given label or votes)."""
        labels = self.labels
        if labels.votes is not None:
            assert labels.sources is not None
            return torch.from_numpy(labels.sources.posterior(labels.votes, self.log_probs.double().numpy()))
        assert labels.matrix is not None
        return posterior_over_true_labels(self.log_probs.double(), torch.from_numpy(self.given), labels.matrix)

    @property
    def given(self) -> np.ndarray:
        """`(N,)`, the given labels."""
        return self.labels.rows.item_labels("all")

    # ------------------------------------------------------------------ cross-fitting
    def _trusted(self) -> np.ndarray:
        return self.labels.rows.trusted[self.labels.rows.counted]

    def _untrusted_with_label(self) -> np.ndarray:
        return np.setdiff1d(np.flatnonzero(~self._trusted()), self.labels.missing)

    def has_memorized(self) -> bool:
        """Whether the network predicts more than half of the wrong labels; see [`~audit.cross_fit.agreement`]."""
        labels, chosen = self.labels, self._untrusted_with_label()
        predicted, given = self.log_probs[chosen].argmax(dim=-1).numpy(), self.given[chosen]
        correct = None
        if labels.votes is not None:
            assert labels.sources is not None
            correct = labels.sources.posterior(labels.votes.select(chosen))[np.arange(len(chosen)), given]
        known = None if labels.matrix is None else labels.matrix.probs
        return agreement(predicted, given, known, correct).has_memorized

    def cross_fit(self, folds: int) -> None:
        """Replace the predictions of the network by those of linear models that have not seen the label."""
        labels = self.labels
        self.log_probs = cross_fit(
            self.table,
            self.given,
            self._trusted(),
            self.log_probs.shape[1],
            folds,
            self.trainer.args.seed,
            matrix=None if labels.matrix is None else torch.from_numpy(np.array(labels.matrix.probs)),
            sources=labels.sources,
            votes=labels.votes,
            missing=labels.missing,
        ).log_probs
        if labels.matrix is not None:
            self.labels = labels._replace(matrix=with_correct_rows(labels.matrix))
        self.note = (
            f"The predictions are cross-fitted in {folds} folds: each comes from linear models that have not seen the "
            f"label of the row, on features of {self.features_of}."
        )

    def refit(self, folds: int) -> None:
        """Replace the predictions of the network by those of networks that were trained without the row. Rows with
        trusted labels are in all of them; their own predictions, which have no effect, are those of the trainer."""
        trainer, rows = self.trainer, self.labels.rows
        noisy = np.unique(rows.row_of(self._untrusted_with_label()))
        parts = fold_parts(noisy, folds, trainer.args.seed)
        for number, part in enumerate(parts, start=1):
            fitted = trainer_of_fold(
                trainer, self.dataset.select(np.setdiff1d(np.arange(rows.num_rows), part)), number
            )
            fitted.train()
            here = given_labels(
                self.dataset.select(part),
                trainer.args,
                trainer.model,
                trainer.num_labels,
                self.labels.matrix,
                self.labels.sources,
            )
            items = np.isin(rows.row_of(rows.numbers_of("all")), part)
            self.log_probs[items] = fitted.item_logits(here)
        self.note = f"The predictions are those of {folds} networks, each trained without the rows that it predicts."

    @cached_property
    def _network(self) -> tuple[torch.nn.Module, str]:
        before = network_before_training(self.trainer)
        if before is not None:
            return before, "the network before training"
        return copy.deepcopy(self.trainer.model), "the trained network"

    @property
    def features_of(self) -> str:
        """Which network the features are of."""
        return self._network[1]

    @cached_property
    def table(self) -> FeatureTable:
        """The features of all labels. Every process computes them."""
        features = self.trainer.item_features(self._network[0], self.labels)
        return FeatureTable(features, torch.arange(len(self.log_probs)), device=self.trainer.args.device)

    # ------------------------------------------------------------------ the rows to check next
    def suggested(self, n: int) -> Dataset:
        """
        The `n` rows whose labels should be checked next, best first, with their number (`row`), the columns of an
        audit, and the `reason`; see [`~audit.suggest.rows_to_check`]. If rows have several labels, the one whose check
        has the highest value stands for the row.
        """
        if n < 1:
            raise ValueError(f"n={n}: the number of rows to check is at least 1.")
        for name in (ROW, REASON):
            if name in self.dataset.column_names:
                raise ValueError(f"the dataset already has a column {name!r}: rename it.")
        rows, trusted = self.labels.rows, self._trusted()
        items, known = np.flatnonzero(~trusted), np.flatnonzero(trusted)
        if len(items) == 0:
            raise ValueError("every label of these rows is trusted, so there is nothing left to check.")
        log_probs = self.log_probs.double().log_softmax(dim=-1).numpy()
        num_labels = log_probs.shape[1]
        counts = np.bincount(self.given[known], minlength=num_labels)
        matrix, votes = self.labels.matrix, self.labels.votes
        if len(known) == 0 and matrix is not None and matrix.trusted_rows is not None:
            counts = matrix.trusted_rows
        disagreement = np.zeros(len(trusted)) if votes is None else disagreement_of(votes, num_labels)
        value = value_of_checking(log_probs, counts, disagreement)
        # The item of each row with the highest value.
        order = items[np.argsort(-value[items], kind="stable")]
        items = np.sort(order[np.unique(rows.row_of(order), return_index=True)[1]])
        features = self._features_of_probs if self.trainer.why_no_features() else self._standardized
        places = rows_to_check(
            value[items], lambda some: features(items[some]), features(known), n=n, seed=self.trainer.args.seed
        )
        chosen = items[places]
        given = self.given.copy()
        given[self.labels.missing] = IGNORED_LABEL
        numbers = rows.row_of(chosen)
        posterior = self.posterior[chosen].numpy()
        why = reasons(
            log_probs[chosen], posterior, given[chosen], counts, self.class_name, disagreement=disagreement[chosen]
        )
        if rows.labels.offsets is not None:
            tokens = np.flatnonzero(rows.counted)[chosen] - rows.labels.offsets[numbers]
            why = [f"token {token}: {line}" for token, line in zip(tokens.tolist(), why, strict=True)]
        suggested = self.audited().with_format(None).select(numbers)
        suggested = suggested.add_column(ROW, numbers.tolist(), feature=Value("int64"))
        return with_format_of(self.dataset, suggested.add_column(REASON, why, feature=Value("string")))

    def _standardized(self, items: np.ndarray) -> np.ndarray:
        """Features without the part that all items share."""
        table = self.table
        features = table.features[torch.from_numpy(items)].to(table.device)
        return ((features - table.mean) / table.scale).cpu().numpy()

    def _features_of_probs(self, items: np.ndarray) -> np.ndarray:
        """√p(true label | x), in place of features of the network."""
        return self.log_probs[items].double().softmax(dim=-1).sqrt().numpy()

    def class_name(self, label: int) -> str | None:
        """The name of a class, or its number if there are no names; `None` for -100."""
        if label == IGNORED_LABEL:
            return None
        return str(label) if self.names is None else self.names[label]


def audit_labels(trainer: AuditMixin, dataset: Dataset, folds: int | None = None, refit: bool = False) -> LabelAudit:
    """
    Compute the probabilities of the true labels of a dataset.

    Args:
        trainer ([`AuditMixin`]): With a corruption matrix, or with what the votes of several sources say.
        dataset (`datasets.Dataset`): The rows.
        folds (`int`, *optional*):
            Number of folds of cross-fitted predictions; 0 or 1 for the predictions of the network. By default 5 if the
            network has learned more than half of the wrong labels, and otherwise 0.
        refit (`bool`, *optional*, defaults to `False`): Train networks instead of linear models.
    """
    matrix = trainer.corruption_matrix
    sources = trainer.given_sources if trainer.method is None else trainer.method.sources
    if matrix is None and sources is None:
        raise ValueError(
            f"an audit needs the corruption matrix, but method {trainer.args.method!r} has none (or is not trained "
            "yet): train with 'auto' or 'glc', or pass a known one as `GLCTrainer(…, corruption_matrix=…)`."
        )
    if not isinstance(dataset, datasets.Dataset):
        raise TypeError(f"an audit needs a `datasets.Dataset`, not a {type(dataset).__name__}.")
    if len(dataset) == 0:
        raise ValueError("there are no rows to audit: the dataset is empty.")
    if folds is not None and folds < 0:
        raise ValueError(f"folds={folds}: the number of folds can't be negative; 0 turns cross-fitting off.")
    check_audit_columns(dataset)
    labels = given_labels(dataset, trainer.args, trainer.model, trainer.num_labels, matrix, sources)
    names = label_names_of(labels.dataset, labels.rows.label_column, trainer.model)
    if names is None and matrix is not None:
        names = matrix.label_names
    why_not = trainer.why_no_features()
    if folds is not None and folds > 1 and why_not and not refit:
        raise ValueError(f"folds={folds}: predictions can't be cross-fitted, because {why_not}.")
    audit = LabelAudit(trainer, dataset, labels, trainer.item_logits(labels), names)
    if refit:
        audit.refit(FOLDS if folds is None else folds)
    elif folds is None and audit.has_memorized():
        learned = "The network has learned more than half of the wrong labels"
        if why_not:
            audit.note = f"{learned}, so the audit finds few of them: predictions can't be cross-fitted ({why_not})."
        else:
            audit.cross_fit(FOLDS)
            audit.note = f"{learned}. {audit.note}"
        audit.is_surprising = True
    elif folds is not None and folds > 1:
        audit.cross_fit(folds)
    return audit
