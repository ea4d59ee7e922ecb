# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Base classes of methods: their stages, their options, and what they estimate between the stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from glc_hf.correction.accumulators import ConfusionAccumulator, GoldAccumulator
from glc_hf.correction.calibration import match_base_rates
from glc_hf.correction.linear import Probe
from glc_hf.correction.loss import corrected_cross_entropy
from glc_hf.correction.refinement import fill_missing_rows
from glc_hf.correction.reliability import matrix_warnings
from glc_hf.correction.sources import SourceModel
from glc_hf.correction.verdict import Verdict
from glc_hf.correction.votes_loss import VoteTable, votes_cross_entropy
from glc_hf.labels.label_batch import LabelBatch, SoftLabels, Votes
from glc_hf.labels.labeled_rows import Items
from glc_hf.matrix import CorruptionMatrix
from glc_hf.registry import Registry


# Which rows of a stage: all rows of the dataset, those the stage was trained on, or those it held out.
Part = Literal["all", "trained", "held_out"]
ONE_SOURCE = "label"  # the name of the matrix of a method with a single source of labels

_METHODS: Registry[Method] = Registry("method", "glc_hf.methods")
register = _METHODS.register
available_methods = _METHODS.names


def get_method(name: str) -> type[Method]:
    """The class of a method: one of [`available_methods`], or `module:Class` for your own."""
    return _METHODS.get(name, Method)


# ---------------------------------------------------------------------- options
def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise if an option is not one of its choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


@dataclass
class MethodOptions:
    """
    Base class of the options of methods. `GLCConfig` inherits from every options class, so each option is also a
    field of `GLCConfig` and an option of the command line. Subclasses check their fields in `__post_init__`.
    """

    def __post_init__(self) -> None:
        following = getattr(super(), "__post_init__", None)  # of `TrainingArguments`, in a `GLCConfig`
        if following is not None:
            following()


@dataclass
class SharedOptions(MethodOptions):
    """Options that several methods read."""

    trusted_share: float = field(
        default=0.15,
        metadata={"help": "Share of trusted rows in the last stage, by repeating them; 0 keeps the natural share."},
    )
    trusted_min_updates: int = field(
        default=2000, metadata={"help": "trusted_only, distillation: minimum number of updates on trusted rows only."}
    )
    stage1: str = field(
        default="full",
        metadata={
            "help": "First stage: a full training, a short one, or a linear probe on the pretrained features.",
            "choices": ["full", "short", "probe"],
        },
    )
    stage2_start: str = field(
        default="restart",
        metadata={
            "help": "Start the last stage from the initial weights or from those of stage 1.",
            "choices": ["restart", "continue"],
        },
    )
    match_base_rates: bool = field(
        default=False, metadata={"help": "Fit the estimate to the observed frequencies of noisy labels."}
    )
    base_rate_weight: float | None = field(
        default=None, metadata={"help": "λ of the base-rate correction (default: the squared norm of the rates)."}
    )
    missing_classes: str = field(
        default="average",
        metadata={
            "help": "Matrix row of a class without trusted rows.",
            "choices": ["average", "identity", "uniform"],
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.trusted_share < 1.0:
            raise ValueError(f"trusted_share must be in [0, 1), got {self.trusted_share!r}; 0 repeats no trusted row.")
        if self.trusted_min_updates < 0:
            raise ValueError(f"trusted_min_updates can't be negative, got {self.trusted_min_updates!r}.")
        check_choice("stage1", self.stage1, ("full", "short", "probe"))
        check_choice("stage2_start", self.stage2_start, ("restart", "continue"))
        check_choice("missing_classes", self.missing_classes, ("average", "identity", "uniform"))
        if self.stage1 == "probe" and self.stage2_start == "continue":
            raise ValueError(
                "stage1='probe' does not train the network, so stage2_start='continue' has no weights to start from. "
                "Use stage1='short', or stage2_start='restart'."
            )
        if self.base_rate_weight is not None and not self.base_rate_weight > 0:
            raise ValueError(f"base_rate_weight must be greater than 0, got {self.base_rate_weight!r}.")


# ---------------------------------------------------------------------- stages
@dataclass(frozen=True)
class Stage:
    """
    One training from start to end. Methods whose first stages are equal can share one training of it.

    Args:
        items (`str`): The labels that carry loss: `"all"`, `"trusted"` or `"untrusted"`. Other rows are left out.
        min_updates (`int`, *optional*, defaults to 0): Minimum number of optimizer steps.
        held_out (`float`, *optional*, defaults to 0.0): Share of these rows that the stage does not train on.
        start (`str`, *optional*, defaults to `"initial"`): `"initial"` to start from the initial weights, `"previous"`
            to start from the weights of the stage before.
        mode (`str`, *optional*, defaults to `"full"`): `"full"`, `"short"` or `"probe"`, as `GLCConfig.stage1`.
        fraction (`float`, *optional*, defaults to 1.0): Share of the epochs (or of `max_steps`) of the run.
        most_embedded (`float`, *optional*): With `mode="probe"`, embed the trusted items and at most this many
            untrusted ones, as a share of the items that plain training sees.
        trusted_share (`float`, *optional*): Share of trusted rows in every epoch. An epoch then has as many rows as
            the training set: trusted rows are repeated, and each epoch has its part of the untrusted rows.
        mixed_part (`float`, *optional*, defaults to 1.0): With a `trusted_share`, part of the stage that has this
            share; the rest has trusted rows only.
        untrusted_items (`torch.Tensor`, *optional*): Of the untrusted rows, train on those with these items only.
    """

    items: Items
    min_updates: int = 0
    held_out: float = 0.0
    start: Literal["initial", "previous"] = "initial"
    mode: Literal["full", "short", "probe"] = "full"
    fraction: float = 1.0
    trusted_share: float | None = None
    mixed_part: float = 1.0
    most_embedded: float | None = None
    untrusted_items: torch.Tensor | None = field(default=None, compare=False)

    @property
    def description(self) -> str:
        """What was trained and on which labels, for tables: `"full training on the noisy labels"`."""
        if self.mode == "probe":
            return "linear probe on pretrained features"
        length = self.mode if self.fraction == 1.0 else f"{self.fraction:.0%} of a full"
        labels = {"untrusted": "the noisy labels", "trusted": "the trusted labels", "all": "all labels"}[self.items]
        return f"{length} training on {labels}"


class Inferred(NamedTuple):
    """
    One batch of a stage's predictions for this process's rows, one entry per item; items labelled -100 are left out.

    Attributes:
        logits: `(n, K)` float32 on the CPU.
        labels: `(n,)`.
        items: `(n,)`, the number of each item among all counted items of the training set (-1 in streams).
    """

    logits: torch.Tensor
    labels: torch.Tensor
    items: torch.Tensor


class EstimationRun(Protocol):
    """
    What a method can ask for between the stages: predictions of the trained stages, labels, and sums over processes.
    Every process makes the same calls in the same order.
    """

    num_labels: int
    label_names: list[str] | None

    def infer(
        self, stage: int, items: Items, part: Part = "all", only: torch.Tensor | None = None
    ) -> Iterator[Inferred]:
        """
        Run the model of a first stage over rows once, in evaluation mode. Each process gets its share.

        Args:
            stage (`int`): Index of the stage in `first_stages()`.
            items (`str`): Which labels.
            part (`str`, *optional*, defaults to `"all"`): All rows of the dataset, or only those that the stage was
                `"trained"` on or `"held_out"`.
            only (`torch.Tensor`, *optional*): Numbers of the items to keep.
        """
        ...

    def probe(self, stage: int) -> Probe | None:
        """The linear head of a first stage with `mode="probe"`; `None` for other stages."""
        ...

    def sum_over_processes(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum of a tensor over all processes."""
        ...

    def gather_objects(self, value: Any) -> list[Any]:
        """The value of every process, in the order of the processes."""
        ...

    def item_numbers(self, items: Items) -> np.ndarray:
        """The numbers of these items, ascending. Not available for streams."""
        ...

    def item_labels(self, items: Items, column: str | None = None) -> np.ndarray:
        """The given labels of these items (or their values in another column), read from the dataset."""
        ...

    def class_counts(self, items: Items) -> torch.Tensor:
        """Number of these items per class, by the given labels (soft ones too): `(K,)` float64."""
        ...


# ---------------------------------------------------------------------- methods
class Method:
    """
    Plain cross-entropy on all rows in one stage. Subclasses override what they change.

    Args:
        args (`GLCConfig`): The options.
        num_labels (`int`): K.
        given_matrix ([`CorruptionMatrix`], *optional*): A known matrix.

    Attributes:
        matrices (`dict[str, CorruptionMatrix]`): The matrix of each source of labels. A method with one source stores
            it as `matrix`, which is the entry [`ONE_SOURCE`].
        verdict ([`Verdict`], *optional*): Whether correction helps, for methods that estimate it.
    """

    name: ClassVar[str]
    needs_trusted: ClassVar[bool] = True
    needs_untrusted: ClassVar[bool] = True
    # Whether the method uses a corruption matrix. A matrix given to any other method is an error.
    uses_matrix: ClassVar[bool] = False
    # Whether the last stage applies `GLCConfig.trusted_share`. Baselines use the rows as they are.
    upsamples_trusted: ClassVar[bool] = False
    # Tensors besides the matrices that a resumed run needs; see `state`.
    state_names: tuple[str, ...] = ()
    # Whether losses or weights need the number of each item, which a stream does not have.
    needs_item_numbers: bool = False

    def __init__(self, args: Any, num_labels: int, given_matrix: CorruptionMatrix | None = None) -> None:
        self.args = args
        self.num_labels = num_labels
        self.given_matrix = given_matrix
        self.matrices: dict[str, CorruptionMatrix] = {}
        self.matrix = given_matrix
        self.verdict: Verdict | None = None
        # Whether rows have numbers; those of a stream don't. Set by the trainer before the stages are asked for.
        self.numbered = True
        # Votes and soft labels of the items, and whether any is trusted; also set by the trainer.
        self.votes: Votes | None = None
        self.sources: SourceModel | None = None
        self.stream_sources: SourceModel | None = None  # of a stream, whose items carry the likelihood of their votes
        self.soft_labels: SoftLabels | None = None
        self.has_trusted = True
        # Why no linear model can be fitted on features of the network; `None` if one can. Set by the trainer.
        self.no_features: str | None = None
        if given_matrix is not None and not self.uses_matrix:
            raise ValueError(
                f"method {self.name!r} does not use a corruption matrix, but one is given: remove it, or use "
                "'true_matrix'."
            )
        self.check()

    @property
    def matrix(self) -> CorruptionMatrix | None:
        """The matrix of the only source."""
        return self.matrices.get(ONE_SOURCE)

    @matrix.setter
    def matrix(self, matrix: CorruptionMatrix | None) -> None:
        others = {source: known for source, known in self.matrices.items() if source != ONE_SOURCE}
        self.matrices = others if matrix is None else {ONE_SOURCE: matrix, **others}

    @property
    def title(self) -> str:
        """The method in the text of a model card."""
        return f"the method `{self.args.method}`"

    @property
    def counts_votes(self) -> bool:
        """Whether the method learns from the votes of several sources. Other methods train on the label that the votes
        make most probable."""
        return False

    @property
    def takes_soft_labels(self) -> bool:
        """Whether `item_losses` takes soft labels, as the plain loss does. If not, it gets the most probable class."""
        return type(self).item_losses is Method.item_losses

    def check(self) -> None:
        """Raise for options that the method can't work with. Called before any training."""

    def prepare_model(self, model: torch.nn.Module) -> None:
        """Raise for models that the method can't train, also with these options, and set up the others. Called before
        any training, and before the stages are asked for."""

    def first_stages(self) -> list[Stage]:
        """The stages before the last one, in order."""
        return []

    def last_stage(self) -> Stage:
        """The stage that trains the final model."""
        return Stage("all")

    def plain_last_stage(self) -> Stage | None:
        """The last stage if it is plain training from the initial weights, which can be another method's first."""
        cls, last = type(self), self.last_stage()
        plain = cls.item_losses is Method.item_losses and cls.item_weights is Method.item_weights
        return last if plain and last.start == "initial" else None

    def estimate(self, run: EstimationRun) -> None:
        """Estimate what the last stage needs, such as the matrix. Called after the first stages."""

    def warnings(self) -> list[str]:
        """Reasons not to rely on the run, from what was estimated so far. They are stored with the model."""
        # The matrix of one of several sources says little on its own: a rule for one class has the same row for all.
        return [] if self.matrix is None else matrix_warnings(self.matrix)

    def begin_step(self, done: int, total: int) -> None:
        """Called before each step of the last stage, of `total`, of which `done` are done. A resumed stage does not
        start with the first one."""

    def refinement_steps(self, total: int) -> tuple[int, ...]:
        """The steps of the last stage, of `total`, after which [`~Method.refine`] is called."""
        return ()

    def refine(self, run: EstimationRun, progress: float) -> None:
        """Improve the estimate during the last stage; stage 0 of `run` is the last stage as it is now, and `progress`
        the share of its steps that are done."""

    def restore_refined(self, matrices: dict[str, CorruptionMatrix]) -> None:
        """Restore the matrices that [`~Method.refine`] had produced, in a resumed last stage."""

    def restore_verdict(self, verdict: Verdict) -> None:
        """Restore the verdict of a checkpoint, in a resumed last stage."""
        self.verdict = verdict

    def item_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        """Loss of each item in the last stage, in the shape of the items; 0 for items that don't count."""
        return batch.cross_entropy(logits)

    def item_weights(
        self, trainer: Any, model: torch.nn.Module, inputs: dict, batch: LabelBatch
    ) -> torch.Tensor | None:
        """Weights of the items' losses in this step; `None` if all are 1."""
        return None

    def state(self) -> dict[str, torch.Tensor]:
        """Tensors besides the matrices that a resumed last stage needs, named by `state_names`."""
        return {}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Restore what [`~Method.state`] returned."""


class MatrixMethod(Method):
    """
    Train on all rows with `-log Σ_i softmax(logits)_i · C[i, label]`, and with plain cross-entropy on trusted rows. A
    given matrix is used as it is, without a first stage; otherwise a subclass estimates it.
    """

    uses_matrix = True
    upsamples_trusted = True
    takes_soft_labels = True
    # Whether trusted labels are known to be right, or corrected like all others.
    identity_on_trusted: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table: VoteTable | None = None  # what the loss uses of `sources`

    def first_stage(self) -> Stage | None:
        """The stage whose model the matrix is estimated from, if there is one."""
        return None

    def first_stages(self) -> list[Stage]:
        stage = self.first_stage() if self.given_matrix is None else None
        return [stage] if stage is not None else []

    def last_stage(self) -> Stage:
        continues = self.args.stage2_start == "continue" and self.first_stages()
        return Stage("all", start="previous" if continues else "initial")

    def set_sources(self, sources: SourceModel, label_names: list[str] | None = None) -> None:
        """Train with the votes of several sources instead of labels."""
        self.sources, self._table = sources, None
        self.matrices = sources.matrices(label_names)

    def item_losses(self, logits: torch.Tensor, batch: LabelBatch) -> torch.Tensor:
        if self.sources is not None:
            likelihood = batch.log_likelihood
            if likelihood is None:
                assert self.votes is not None
                assert batch.items is not None
                if self._table is None or self._table.rows.device != logits.device:
                    self._table = self.sources.vote_table(logits.device)
                likelihood = self._table.of_votes(self.votes.select(batch.items.reshape(-1).cpu().numpy()))
            return votes_cross_entropy(logits, likelihood.view(logits.shape), batch.labels, batch.trusted)
        trusted, matrix = batch.trusted if self.identity_on_trusted else None, self.matrix
        assert matrix is not None
        return corrected_cross_entropy(logits, batch.labels, matrix, trusted, reduction="none")


# ---------------------------------------------------------------------- steps that several methods share
_Matrix = TypeVar("_Matrix", GoldAccumulator, ConfusionAccumulator)


def accumulate_trusted(run: EstimationRun, accumulator: _Matrix, temperature: float = 1.0) -> _Matrix:
    """Add the first stage's softmax on every trusted item to an accumulator, over all processes."""
    for batch in run.infer(0, "trusted"):
        accumulator.update_logits(batch.logits, batch.labels, temperature)
    return accumulator.all_reduce(run.sum_over_processes)


def finish_matrix(run: EstimationRun, args: Any, probs: torch.Tensor, counts: torch.Tensor) -> CorruptionMatrix:
    """Fill the rows of classes without trusted items, match the base rates if asked, and add names and counts."""
    probs = fill_missing_rows(probs, counts, args.missing_classes, run.label_names)
    if args.match_base_rates:
        noisy = run.class_counts("untrusted")
        probs = match_base_rates(probs, counts / counts.sum(), noisy / noisy.sum(), args.base_rate_weight)
    return CorruptionMatrix(probs, run.label_names, counts)


def logits_of(outputs: Any) -> torch.Tensor:
    """The logits in a model's outputs: `.logits`, the first element of a tuple, or the tensor itself."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    if isinstance(outputs, dict) and "logits" not in outputs:
        fix = "load it with AutoModelFor…Classification, or return `logits` from its `forward`"
        raise ValueError(f"the model returns no `logits`, only {', '.join(map(repr, outputs))}: {fix}.")
    return outputs.logits if hasattr(outputs, "logits") else outputs["logits" if isinstance(outputs, dict) else 0]
