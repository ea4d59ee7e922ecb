# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`auto`, the default: linear models decide how far the network uses the noisy labels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from glc_hf.correction.linear import LinearHead
from glc_hf.correction.pool.evidence import classes_without_trusted_items, noise_evidence
from glc_hf.correction.pool.pool_data import PoolData
from glc_hf.correction.pool.pooling import POOL, Pool, fit_pool
from glc_hf.correction.reliability import listed, missing_classes_warning
from glc_hf.correction.verdict import (
    FINAL,
    Verdict,
    difference_with_control,
    final_verdict,
    first_verdict,
    no_verdict,
    way_of,
    way_with_control,
)
from glc_hf.labels.label_batch import LabelBatch
from glc_hf.matrix import CorruptionMatrix
from glc_hf.methods.auto_decision import (
    ALL_ROWS,
    CORRECTED_SHARE,
    MIN_TRUSTED,
    PLAIN_SHARE,
    decide,
    is_better,
)
from glc_hf.methods.base import EstimationRun, MethodOptions, Stage, finish_matrix, register
from glc_hf.methods.glc import GOLD_LOSS_CORRECTION, GoldLossCorrection, of_soft_labels, refine_estimate
from glc_hf.randomness import random_uint64


logger = logging.get_logger(__name__)

# Untrusted items that are embedded, as a share of the items that plain training sees.
_EMBEDDED = 0.6
# Untrusted items that refine the matrix, as a share of the items that the last stage trains on.
_REFINING = 0.15
# Trusted items that judge the final model: they are not trained on in the first two thirds of the last stage.
_JUDGES = 0.2
_MIN_TRUSTED_FROM_SCRATCH = 200
_MAX_JUDGES = 1000
# Items × classes of the probabilities of true labels that are kept.
_MAX_POSTERIORS = 50_000_000
# With more classes, fitting the linear models takes too long.
_MAX_CLASSES = 1000
# Options of `glc` that the stages with a pretrained network don't have, and options of its estimate.
_STAGE_OPTIONS = (
    "stage1",
    "stage1_fraction",
    "stage1_num_train_epochs",
    "stage1_max_steps",
    "stage1_learning_rate",
    "stage2_start",
    "trusted_share",
    "calibrate",
)
_ESTIMATE_OPTIONS = ("match_base_rates", "base_rate_weight", "missing_classes")
# Names in the verdict, and the linear models whose accuracies they have: in general, and with votes.
_LINEAR_WAYS = (("trusted_only", "trusted"), ("glc", "glc"), ("pool", POOL))
_VOTES_WAYS = (("trusted_only", "trusted"), ("majority_vote", "majority"), ("all_sources", "glc"), ("pool", POOL))
_LINEAR, _LINEARS = "linear model", "linear models"
_NOT_PRETRAINED = "the network is not pretrained"
_JUDGED = "network after two thirds of the last stage"


@dataclass
class AutoOptions(MethodOptions):
    """Options of `auto`."""

    pretrained: bool | None = field(
        default=None,
        metadata={"help": "auto: whether the network is pretrained (default: if its configuration names a model)."},
    )


@register("auto")
class Auto(GoldLossCorrection):
    """
    Use the noisy labels for what they are worth.

    With a pretrained network:

    1. Stage 1 computes the features of the network, and fits linear models of the true labels on them: on trusted rows
       only, on all labels, with the corrected loss, to the labels that the others make probable, and others (see
       [`~correction.pool.members.Members`]). Each predicts the trusted rows that it was not fitted to. The matrix is
       the one that explains the noisy labels best.
    2. The last stage trains the network, for the epochs of the run. The first case that applies:

       - No model predicts trusted labels clearly better than a model of all labels as they are: the noisy labels are
         good. The stage trains on all rows, of which 15 % are trusted. The network learns how probable each label of
         the embedded rows is, given the linear models and the given label (see
         [`~correction.pool.pooling.Pool.posterior`]). Other rows have the corrected loss.
       - The errors depend on the class: the matrix explains the noisy labels clearly better than a model of them (see
         [`~correction.pool.evidence.noise_evidence`]). For two thirds of the stage, the network learns these
         probabilities, and then all rows have the corrected loss. 30 % of the rows are trusted.
       - The models predict trusted labels only a little better, and the errors are random: a model of the noisy labels
         predicts trusted labels better than noisy ones. The stage trains on all rows with the corrected loss, at first
         with the same noise rate for all classes.
       - The errors probably depend on the class: the matrix is better, but not clearly. The network learns these
         probabilities to the end.
       - Otherwise the errors depend on the example, or nothing is clear. The corrected loss would repeat such errors.
         The first 60 % of the stage trains on probabilities in which the given label has less weight, and the rest
         on trusted rows. If the models predict trusted labels only a little better, and a model of the noisy labels
         has not learned their errors, the whole stage trains on these probabilities.

    With the votes of several sources, the last stage learns these probabilities instead of the corrected loss, given
    the linear models and the votes. The likelihood of the votes alone would teach it to repeat rules that are wrong:
    like the network, rules see the words of the text.

    Without a pretrained network, features mean nothing before training: the stages are those of `glc`, with its
    options. So they are with a stream, with a given matrix, if the network can't be probed, and if an option of `glc`
    is set that the stages above don't have.

    One trusted row in five joins the last stage only after two thirds of it, and judges the model until then. The
    result is the `verdict`.
    """

    state_names: tuple[str, ...] = (
        "judges",
        "mixed_part",
        "trusted_share",
        "class_errors",
        "corrects",
        "numbers",
        "control",
        "plain",
        "posterior_items",
        "posteriors",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Whether the stages are those with a pretrained network, and why they are those of `glc` otherwise.
        self.pretrained = False
        self.why_glc = _NOT_PRETRAINED
        # Part of the last stage that trains on all rows; the rest trains on trusted rows.
        self.mixed_part = ALL_ROWS
        self.trusted_share = CORRECTED_SHARE
        # Whether errors depend on the class at most.
        self.class_errors = False
        # Whether estimated labels are left for the corrected loss after two thirds of the last stage, and whether they
        # have been.
        self.corrects = self.leaves_estimated = False
        # Trusted items that judge the final model; empty once they have.
        self.judges = torch.empty(0, dtype=torch.int64)
        # Numbers of trusted items, and whether models that were not trained on them predicted their labels: the pool
        # of linear models, and plain training on the noisy labels.
        self.numbers = torch.empty(0, dtype=torch.int64)
        self.control = self.plain = torch.empty(0, dtype=torch.bool)
        # Numbers of untrusted items, and the probabilities of their true labels; empty without estimated labels.
        self.posterior_items, self.posteriors = torch.empty(0, dtype=torch.int64), torch.empty(0, 0)

    def prepare_model(self, model: torch.nn.Module) -> None:
        super().prepare_model(model)
        named = bool(getattr(getattr(model, "config", None), "_name_or_path", None))
        pretrained = named if self.args.pretrained is None else self.args.pretrained
        self.pretrained = pretrained and self.numbered and self.given_matrix is None
        self.needs_item_numbers = self.numbered
        problem = self.no_features or self._options_of_glc()
        if self.num_labels > _MAX_CLASSES:
            problem = f"with {self.num_labels:,} classes, fitting linear models on its features takes too long"
        if not self.has_trusted:
            problem = "no row is trusted"
        if self.pretrained and problem is not None:
            self.pretrained, self.why_glc = False, problem
            logger.warning_once(f"method 'auto' uses the stages of 'glc': {problem}.")
        if not self.pretrained:
            # As for `glc`, a checkpoint needs only the matrix beside its weights.
            self.state_names = tuple(name for name in self.state_names if name not in Auto.state_names)

    @property
    def _fewest(self) -> int:
        """Fewest trusted items to evaluate the final model."""
        return MIN_TRUSTED if self.pretrained else _MIN_TRUSTED_FROM_SCRATCH

    def _options_of_glc(self) -> str | None:
        """The options that were set and that only the stages of `glc` have, as a reason to use these stages."""
        names = _STAGE_OPTIONS if self.args.estimator == "paired" else (*_STAGE_OPTIONS, *_ESTIMATE_OPTIONS)
        defaults = {option.name: option.default for option in dataclasses.fields(self.args)}
        values = {name: getattr(self.args, name) for name in names}
        changed = [f"{name}={value!r}" for name, value in values.items() if value != defaults[name]]
        return f"{' and '.join(changed)} can be set for them only" if changed else None

    @property
    def title(self) -> str:
        return (
            f"the method `{self.args.method}`" if self.pretrained else f"{GOLD_LOSS_CORRECTION} (`{self.args.method}`)"
        )

    # ------------------------------------------------------------------ stages
    def first_stages(self) -> list[Stage]:
        if not self.pretrained:
            return super().first_stages()
        return [Stage("untrusted", mode="probe", most_embedded=_EMBEDDED)]

    def last_stage(self) -> Stage:
        if not self.pretrained:
            return super().last_stage()
        return Stage(
            "all",
            trusted_share=self.trusted_share,
            mixed_part=self.mixed_part,
            untrusted_items=self.posterior_items if self._only_posteriors else None,
        )

    @property
    def _only_posteriors(self) -> bool:
        """Whether untrusted items without probabilities are left out. Otherwise they have the corrected loss."""
        return len(self.posterior_items) > 0 and not self.class_errors

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        steps = super().refinement_steps(total)
        if self.pretrained:
            # The matrix was refined on the features before, and so were the tables of several sources.
            steps = () if self.counts_votes else steps[-1:]
        if len(self.judges) or self.corrects:
            steps = (*steps, _two_thirds(total))
        return tuple(sorted({step for step in steps if step > 0}))

    def begin_step(self, done: int, total: int) -> None:
        self.leaves_estimated = self.corrects and done >= _two_thirds(total)

    # ------------------------------------------------------------------ between the stages
    def estimate(self, run: EstimationRun) -> None:
        if self.pretrained:
            self._estimate_on_features(run)
        else:
            super().estimate(run)
        if not self.numbered or not self.first_stages():
            return
        if not self.pretrained:
            self.numbers = torch.from_numpy(run.item_numbers("trusted"))
            self.plain = self.control = correct_predictions(run, 0, self.numbers)
            reason = f"The stages are those of glc: {self.why_glc}."
            self.verdict = first_verdict(self.plain.numpy(), {}, [reason], fewest=self._fewest)
        if len(self.numbers) >= self._fewest:
            order = np.argsort(random_uint64("judges", self.args.seed, self.numbers.numpy()), kind="stable")
            chosen = order[: min(round(_JUDGES * len(order)), _MAX_JUDGES)]
            self.judges = self.numbers[torch.from_numpy(np.sort(chosen))]

    def _estimate_on_features(self, run: EstimationRun) -> None:
        """Fit the linear models, estimate the matrix, and decide what the last stage trains on."""
        probe = run.probe(0)
        assert probe is not None
        data = PoolData.of(
            probe.table,
            np.asarray(run.item_labels("all")),
            run.item_numbers("trusted"),
            probe.untrusted_numbers,
            self.num_labels,
            self.args.seed,
            self.votes if self.counts_votes else None,
        )
        why = self._why_no_pool(data, probe.head, run.label_names)
        if why is not None:
            super().estimate(run)
            self.trusted_share, self.class_errors = PLAIN_SHARE, True
            reason = f"The last stage trains on all rows with the corrected loss, because {why}."
            logger.warning(reason)
            self.verdict = no_verdict(data.num_trusted, why, reason)
            return
        pool = fit_pool(data, probe.head, probe.penalty)
        if self.counts_votes:
            assert pool.members.sources is not None
            self.set_sources(pool.members.sources, run.label_names)
        elif self.args.estimator == "paired":
            counted = finish_matrix(run, self.args, *self._count_pairs(run).compute())
            self.matrix = of_soft_labels(counted, self.soft_labels)
            noisy = torch.from_numpy(run.item_labels("trusted", self.args.noisy_label_column))
            places = np.searchsorted(run.item_numbers("trusted"), data.trusted_numbers.numpy())
            pool.weigh_given_labels(noisy[torch.from_numpy(places)])
        else:
            matrix = CorruptionMatrix(pool.matrix, run.label_names, run.class_counts("trusted"))
            self.matrix = of_soft_labels(matrix, self.soft_labels)
            missing = missing_classes_warning(self.matrix)
            if missing is not None:
                logger.warning(missing)
        self.numbers = data.trusted_numbers
        correct = pool.held_out_correct
        decision = decide(correct, pool.gain, None if self.counts_votes else noise_evidence(data, probe.penalty))
        self.mixed_part, self.trusted_share = decision.mixed_part, decision.trusted_share
        self.class_errors, self.corrects = decision.class_errors, decision.corrects
        logger.info(decision.reason)
        if decision.class_errors and self.args.estimator != "paired":
            pool.given_weight = 1.0
        if decision.estimates:
            self._set_posteriors(pool, probe.untrusted_numbers)
        elif self.args.estimator != "paired" and self.soft_labels is None:
            super().estimate(run)  # the pool, whose labels are no use, has refined its matrix with them
            assert self.matrix is not None
            self.matrix = with_one_noise_rate(self.matrix)
        self.control, self.plain = correct[POOL], correct["plain"]
        linear = _VOTES_WAYS if self.counts_votes else _LINEAR_WAYS
        ways = {
            name: way_of(correct[member].numpy(), _LINEARS if member == POOL else _LINEAR) for name, member in linear
        }
        ways[FINAL] = way_of(self.control.numpy(), _LINEARS)
        self.verdict = first_verdict(self.plain.numpy(), ways, [decision.reason], _LINEAR, self._fewest)

    @staticmethod
    def _why_no_pool(data: PoolData, noisy: LinearHead, names: list[str] | None) -> str | None:
        """Why trusted items can't choose and judge models; `None` if they can."""
        if data.num_trusted < 2:
            return "one trusted label can't judge a model that was trained on it"
        missing = classes_without_trusted_items(data, noisy)
        if not missing:
            return None
        classes = listed(str(label) if names is None else names[label] for label in missing)
        return (
            f"no trusted row has the class {classes}, and few look like rows with this label, so the trusted rows are "
            "no random sample. Check some rows of every class"
        )

    def _set_posteriors(self, pool: Pool, numbers: np.ndarray) -> None:
        """Keep what the pool and the given labels or votes say about the embedded untrusted items."""
        order = np.argsort(random_uint64("posteriors", self.args.seed, numbers), kind="stable")
        numbers = np.sort(numbers[order[: _MAX_POSTERIORS // self.num_labels]])
        table = pool.members.data.table

        def predict(rows: torch.Tensor) -> torch.Tensor:
            soft = None if self.soft_labels is None else self.soft_labels.targets[table.numbers[rows]]
            return pool.posterior(rows, soft)

        self.posterior_items = torch.from_numpy(numbers)
        self.posteriors = table.gather(numbers, self.num_labels, predict)

    def refine(self, run: EstimationRun, progress: float) -> None:
        if not self.pretrained:
            super().refine(run, progress)
        elif self._refines and not self.counts_votes:
            epochs = self.args.epochs_with(len(run.item_numbers("all")))
            most = int(_REFINING * epochs * len(run.item_numbers("untrusted")))
            assert self.matrix is not None
            self.matrix = refine_estimate(run, self.matrix, self.args.seed, most, self.soft_labels) or self.matrix
        if progress < 0.5:
            return
        if len(self.judges):
            self._judge(run)

    def _judge(self, run: EstimationRun) -> None:
        """Complete the verdict with the predictions of the last stage for the items that judge it, and let it train on
        these items from now on."""
        assert self.verdict is not None
        final = correct_predictions(run, 0, self.judges)
        positions = torch.searchsorted(self.numbers, self.judges)
        way = way_with_control(final.numpy(), positions.numpy(), self.control.numpy(), _JUDGED)
        interval = difference_with_control(
            final.numpy(), positions.numpy(), self.control.numpy(), self.plain.numpy(), self.verdict.level
        )
        # Plain training is a linear model here: that the network is better does not show that correction helps.
        no_linear_gain = self.pretrained and not is_better(self.control, self.plain)
        self.verdict = final_verdict(self.verdict, way, interval, no_linear_gain)
        self.judges = self.judges[:0]

    def restore_verdict(self, verdict: Verdict) -> None:
        super().restore_verdict(verdict)
        if verdict.final:
            self.judges = self.judges[:0]

    def state(self) -> dict[str, torch.Tensor]:
        return {
            **super().state(),
            "judges": self.judges,
            "mixed_part": torch.tensor(self.mixed_part, dtype=torch.float64),
            "trusted_share": torch.tensor(self.trusted_share, dtype=torch.float64),
            "class_errors": torch.tensor(self.class_errors),
            "corrects": torch.tensor(self.corrects),
            "numbers": self.numbers,
            "control": self.control,
            "plain": self.plain,
            "posterior_items": self.posterior_items,
            "posteriors": self.posteriors,
        }

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        super().load_state(state)
        self.judges, self.numbers = state["judges"], state["numbers"]
        self.control, self.plain = state["control"], state["plain"]
        self.mixed_part, self.trusted_share = float(state["mixed_part"]), float(state["trusted_share"])
        self.class_errors, self.corrects = bool(state["class_errors"]), bool(state["corrects"])
        self.posterior_items, self.posteriors = state["posterior_items"], state["posteriors"]

    # ------------------------------------------------------------------ the last stage
    def item_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        # In the last third the network is better than the linear models.
        if len(self.posterior_items) and not self.leaves_estimated:
            losses = self._posterior_losses(logits, batch)
        else:
            losses = super().item_losses(logits, batch)
        if not len(self.judges):
            return losses
        assert batch.items is not None
        judging = torch.isin(batch.items, self.judges.to(batch.items.device))
        return losses.masked_fill(judging.to(losses.device), 0.0)

    def _posterior_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        """Cross-entropy with the labels of trusted items and with the probabilities of the true labels of others. The
        likelihood of noisy labels would teach the network to repeat them where they are wrong."""
        assert batch.items is not None
        assert batch.trusted is not None
        items = batch.items.reshape(-1).cpu()
        places = torch.searchsorted(self.posterior_items, items).clamp(max=len(self.posterior_items) - 1)
        targets = self.posteriors[places] * (self.posterior_items[places] == items)[:, None]
        targets = targets.to(logits.device).view(logits.shape)
        trusted, labels = (batch.trusted & batch.counted)[..., None], batch.labels
        if not labels.is_floating_point():
            labels = torch.nn.functional.one_hot(labels.clamp(min=0), self.num_labels)
        targets = torch.where(trusted, labels.to(targets), targets) * batch.counted[..., None]
        losses = -(targets * logits.float().log_softmax(dim=-1)).sum(dim=-1)
        if self._only_posteriors:
            return losses
        return torch.where(targets.sum(dim=-1) > 0, losses, super().item_losses(logits, batch))


def with_one_noise_rate(matrix: CorruptionMatrix) -> CorruptionMatrix:
    """Uniform noise with the mean noise rate of trusted items. If errors are random, its one number says as much as a
    matrix, and few trusted items can't confuse two classes."""
    counts = np.ones(matrix.num_labels) if matrix.trusted_rows is None else np.maximum(matrix.trusted_rows, 1e-9)
    rate = float(np.average(matrix.noise_rates, weights=counts))
    strength = min(rate * matrix.num_labels / (matrix.num_labels - 1), 1.0)
    uniform = CorruptionMatrix.uniform(matrix.num_labels, strength)
    return CorruptionMatrix(uniform.probs, matrix.label_names, matrix.trusted_rows)


def _two_thirds(total: int) -> int:
    """The step of the last stage after which its model is judged, and the corrected loss follows."""
    return max(2 * total // 3, 1)


def correct_predictions(run: EstimationRun, stage: int, numbers: torch.Tensor) -> torch.Tensor:
    """Whether a stage predicts the label of each of these trusted items, on every process."""
    right = torch.zeros(len(numbers))
    for batch in run.infer(stage, "trusted", only=numbers):
        right[torch.searchsorted(numbers, batch.items)] = (batch.logits.argmax(dim=-1) == batch.labels).float()
    return run.sum_over_processes(right) > 0.5
