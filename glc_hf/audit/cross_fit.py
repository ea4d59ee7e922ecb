# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Out-of-sample probabilities of true labels: models fitted without the label, and the network before training."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel

from glc_hf.correction.linear import FeatureTable, LinearHead
from glc_hf.correction.pool.members import Members
from glc_hf.correction.pool.pool_data import PoolData
from glc_hf.correction.pool.pooling import fit_pool
from glc_hf.correction.sources import SourceModel
from glc_hf.hub.facts import read_facts
from glc_hf.labels.label_batch import Votes
from glc_hf.matrix import CorruptionMatrix
from glc_hf.randomness import random_uint64
from glc_hf.run_files import FACTS_FILE


FOLDS = 5
# Trusted items that a pool of linear models needs.
FEWEST_TRUSTED = 10
# Untrusted items that are enough to say whether a network has learned their wrong labels.
_FEWEST_UNTRUSTED = 50
_HELD_OUT = 0.1
_CORRECT_ROWS = 2


class CrossFit(NamedTuple):
    """
    Attributes:
        log_probs: `(N, K)`, log p(true label | x) of each item. Trusted items, and items without a label, are
            predicted by the models of all items.
        matrix: The corruption matrix that the pool has refined; `None` without a pool, and for votes.
    """

    log_probs: Tensor
    matrix: Tensor | None


def cross_fit(
    table: FeatureTable,
    labels: np.ndarray,
    trusted: np.ndarray,
    num_labels: int,
    folds: int = FOLDS,
    seed: int = 0,
    *,
    matrix: Tensor | None = None,
    sources: SourceModel | None = None,
    votes: Votes | None = None,
    missing: np.ndarray | None = None,
) -> CrossFit:
    """
    Split the untrusted items into folds, and predict the true labels of each fold with linear models that were fitted
    on the other folds and on all trusted items.

    With at least 10 trusted items the models are the pool of [`~correction.pool.pooling.fit_pool`]; its weights and
    penalties are chosen once, on trusted items. With fewer, it is one linear model with the loss corrected by
    `matrix`, or by what the `votes` say.

    Args:
        table ([`FeatureTable`]): The features of all N items.
        labels (`np.ndarray` of shape `(N,)`): Their given labels.
        trusted (`np.ndarray` of shape `(N,)`): Flags of correct labels.
        num_labels (`int`): K.
        folds (`int`, *optional*, defaults to 5): Number of folds.
        seed (`int`, *optional*, defaults to 0): Chooses the folds.
        matrix (`Tensor` of shape `(K, K)`, *optional*): The corruption matrix, for few trusted items.
        sources ([`SourceModel`], *optional*): What the votes say, for few trusted items.
        votes ([`Votes`], *optional*): The votes of several sources on all items.
        missing (`np.ndarray`, *optional*): Numbers of untrusted items without a label.
    """
    known = np.flatnonzero(trusted)
    noisy = np.setdiff1d(np.flatnonzero(~trusted), [] if missing is None else missing)
    parts = fold_parts(noisy, folds, seed)
    kind = _PoolFit if len(known) >= FEWEST_TRUSTED else _HeadFit
    fit = kind(table, labels, known, noisy, num_labels, seed, votes, matrix, sources)
    log_probs = torch.empty(len(labels), num_labels)
    others = np.setdiff1d(np.arange(len(labels)), noisy)
    log_probs[others] = fit.predict(others)
    for held_out in parts:
        log_probs[held_out] = fit.predict(held_out, np.setdiff1d(noisy, held_out))
    return CrossFit(log_probs, fit.refined_matrix)


def fold_parts(numbers: np.ndarray, folds: int, seed: int) -> list[np.ndarray]:
    """Split numbers at random into folds, each ascending."""
    if not 2 <= folds <= max(len(numbers), 2):
        raise ValueError(
            f"folds={folds}: an audit of {len(numbers):,} untrusted labels needs at least 2 folds, and at most one "
            "per label."
        )
    order = np.argsort(random_uint64("audit fold", seed, numbers), kind="stable")
    return [np.sort(numbers[order[fold::folds]]) for fold in range(folds)]


@dataclass
class _Fit:
    """Linear models of the true labels, fitted on the `known` items, and on the untrusted ones, `noisy`, or on some of
    them; see [`cross_fit`]."""

    table: FeatureTable
    labels: np.ndarray
    known: np.ndarray
    noisy: np.ndarray
    num_labels: int
    seed: int
    votes: Votes | None
    matrix: Tensor | None
    sources: SourceModel | None
    refined_matrix: Tensor | None = None

    def __post_init__(self) -> None:
        self.position = torch.empty(len(self.labels), dtype=torch.int64)  # table row of each item
        self.position[self.table.numbers] = torch.arange(len(self.labels))
        self.data = self._data(self.noisy)
        self.head, self.penalty = self._fit_noisy_labels()

    def _data(self, noisy: np.ndarray) -> PoolData:
        return PoolData.of(self.table, self.labels, self.known, noisy, self.num_labels, self.seed, self.votes)

    def _fit_noisy_labels(self) -> tuple[LinearHead, float]:
        rows = self.data.untrusted if len(self.data.untrusted) else self.data.trusted
        draws = random_uint64("audit penalty", self.seed, self.table.numbers[rows].numpy())
        held_out = torch.from_numpy(draws < np.uint64(_HELD_OUT * 2**64))
        return self.table.fit_path(rows, self.data.labels[rows], self.num_labels, held_out)[:2]


class _PoolFit(_Fit):
    """A pool of linear models."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pool = fit_pool(self.data, self.head, self.penalty)
        self.refined_matrix = self.pool.matrix

    def predict(self, numbers: np.ndarray, noisy: np.ndarray | None = None) -> Tensor:
        """Log-probabilities of items, with the untrusted items `noisy` (default: all of them)."""
        rows = self.position[numbers]
        if noisy is None:
            return self.pool.log_probs(rows)
        data, classes = self._data(noisy), self.num_labels
        labels = data.labels[data.untrusted]
        head = self.table.fit(data.untrusted, labels, classes, penalty=self.penalty, start=self.head)
        members = Members(data, head, *self.pool.members.priors)
        fitted = self.pool.members
        members.complete(fitted.scales, self.pool.first_weights, fitted.given_weight)
        return self.pool.log_probs(rows, members)


class _HeadFit(_Fit):
    """One linear model with a corrected loss."""

    def __post_init__(self) -> None:
        if self.matrix is None and self.sources is None:
            raise ValueError(
                f"{len(self.known)} trusted labels are too few to fit a model of the true labels without a corruption "
                f"matrix: at least {FEWEST_TRUSTED} are needed."
            )
        super().__post_init__()

    def predict(self, numbers: np.ndarray, noisy: np.ndarray | None = None) -> Tensor:
        """Log-probabilities of items, with the untrusted items `noisy` (default: all of them)."""
        data = self.data if noisy is None else self._data(noisy)
        rows = torch.cat([data.trusted, data.untrusted])
        likelihood = None
        if self.sources is not None:
            assert self.votes is not None
            votes = self.votes.select(self.table.numbers[rows].numpy())
            likelihood = torch.from_numpy(self.sources.log_likelihood(votes))
        head = self.table.fit(
            rows,
            data.labels[rows],
            self.num_labels,
            penalty=self.penalty,
            matrix=None if self.sources is not None else self.matrix,
            log_likelihood=likelihood,
            trusted=torch.arange(len(rows)) < len(data.trusted),
        )
        return self.table.logits(head, self.position[numbers]).log_softmax(dim=-1)


def with_correct_rows(matrix: CorruptionMatrix) -> CorruptionMatrix:
    """The matrix as if two more trusted rows of each class had shown a correct label. The refined row of a class with
    few trusted rows may say that its label is hardly ever given; all labels of the class would then come first."""
    if matrix.trusted_rows is None:
        return matrix
    share = (_CORRECT_ROWS / (_CORRECT_ROWS + matrix.trusted_rows))[:, None]
    probs = (1 - share) * matrix.probs + share * np.eye(matrix.num_labels)
    return CorruptionMatrix(probs, matrix.label_names, matrix.trusted_rows)


# ---------------------------------------------------------------------- memorized labels
class Agreement(NamedTuple):
    """
    How many given labels a network predicts.

    Attributes:
        measured: Share of the untrusted labels that it predicts.
        expected: Share that a perfect model would predict: that of correct labels.
        rows: Number of untrusted labels.
    """

    measured: float
    expected: float
    rows: int

    @property
    def has_memorized(self) -> bool:
        """Whether the network has learned more than half of the wrong labels."""
        excess = self.measured - self.expected
        return self.rows >= _FEWEST_UNTRUSTED and excess > 0.5 * (1.0 - self.expected)


def agreement(
    predicted: np.ndarray,
    given: np.ndarray,
    matrix: np.ndarray | None = None,
    correct: np.ndarray | None = None,
) -> Agreement:
    """
    Compare the predictions of a network for untrusted items with their given labels.

    Args:
        predicted, given (`np.ndarray` of shape `(n,)`): Classes.
        matrix (`np.ndarray` of shape `(K, K)`, *optional*): The corruption matrix: the share of correct labels is the
            mean of C[y, y] over the predicted classes y.
        correct (`np.ndarray` of shape `(n,)`, *optional*): Probabilities that the given labels are correct, without
            the network, in place of `matrix`.
    """
    if len(given) == 0:
        return Agreement(0.0, 1.0, 0)
    expected = correct
    if expected is None:
        assert matrix is not None  # one of them is given
        expected = np.diag(matrix)[predicted]
    return Agreement(float((predicted == given).mean()), float(np.mean(expected)), len(given))


# ---------------------------------------------------------------------- the network before training
def network_before_training(trainer: Any) -> torch.nn.Module | None:
    """
    The network that training started from, if it can be loaded without the internet: from `model_init`, without the
    adapters of PEFT, or the pretrained model by its name. `None` if it can't. Weights that are drawn at random, such
    as those of a new classifier, depend only on the seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(trainer.args.seed)
        return trainer.call_model_init() if trainer.model_init is not None else _without_training(trainer.model)


def _without_training(model: torch.nn.Module) -> torch.nn.Module | None:
    if hasattr(model, "peft_config") and hasattr(model.base_model, "disable_adapter_layers"):
        adapted: Any = copy.deepcopy(model)
        adapted.base_model.disable_adapter_layers()
        return adapted
    if not isinstance(model, PreTrainedModel):
        return None
    for name in _names_of_base(model):
        network = _load_base(model, name)
        if network is not None:
            return network
    return None


def _names_of_base(model: PreTrainedModel) -> list[str]:
    """Where the pretrained model may be: its folder or Hub id. Folders of runs say which model they started from."""
    name = getattr(model.config, "_name_or_path", None)
    if not name:
        return []
    if not (Path(name) / FACTS_FILE).is_file():
        return [str(name)]
    facts = read_facts(name)
    base = facts.get("base_model") or {}
    names = [base.get("name"), facts.get("arguments", {}).get("model")] if base else []
    return [str(name) for name in names if name]


def _load_base(model: PreTrainedModel, name: str) -> PreTrainedModel | None:
    options: dict[str, Any] = {
        "config": copy.deepcopy(model.config),
        "ignore_mismatched_sizes": True,
        "output_loading_info": True,
    }
    try:
        loaded: Any = type(model).from_pretrained(name, local_files_only=True, **options)
        network, info = loaded  # with `output_loading_info`
    except (OSError, ValueError, RuntimeError):
        return None  # not there, or another kind of model
    # A pretrained model has no classifier of these classes, and may have no pooler. Anything else is another network.
    prefix = f"{model.base_model_prefix}."
    absent = [*info["missing_keys"], *(key[0] if isinstance(key, tuple) else key for key in info["mismatched_keys"])]
    if any(key.startswith(prefix) and ".pooler." not in key for key in absent):
        return None
    return network


def trainer_of_fold(trainer: Any, rows: Dataset, number: int) -> Any:
    """A trainer with the same arguments, on other rows, which starts from the network before training."""
    is_adapter = hasattr(trainer.model, "peft_config") and trainer.model_init is None
    network = None if is_adapter else network_before_training(trainer)
    if network is None:
        raise ValueError(
            "refit=True trains from the network before training, which can't be found: create the trainer with "
            "`model_init=…`, or audit with `folds=…` alone."
        )
    args = copy.copy(trainer.args)
    args.output_dir = str(Path(args.output_dir) / f"audit_fold_{number}")
    args.eval_strategy, args.load_best_model_at_end, args.push_to_hub = "no", False, False
    return type(trainer)(
        network,
        args,
        data_collator=trainer.data_collator.collator,
        train_dataset=rows,
        processing_class=trainer.processing_class,
        optimizer_cls_and_kwargs=trainer.optimizer_cls_and_kwargs,
        corruption_matrix=trainer.given_matrix,
    )
