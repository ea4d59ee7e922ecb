# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Model card: text and Hub metadata from the facts of a run and its corruption matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import TrainerCallback
from transformers.utils import logging

from glc_hf.hub.card_parts import (
    code,
    draw_worst_sources,
    escape,
    has_picture,
    has_tag,
    hub_link,
    one_line,
    picture_of,
    sources_section,
    usage_section,
    verdict_section,
)
from glc_hf.hub.facts import (
    base_model_of,
    check_classes,
    dataset_of,
    gather_facts,
    read_facts,
    write_facts,
)
from glc_hf.intervals import (
    ACCURACY_LEVEL,
    MATRIX_LEVEL,
    accuracies_differ,
    format_count,
    format_interval,
    format_level,
    mean_interval,
    wilson_interval,
)
from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix


logger = logging.get_logger(__name__)

CARD_FILE = "README.md"
PICTURE_FILE = "corruption_matrix.png"
_TEMPLATE = "model_card_template.md"
_TAGS = ("glc_hf", "label-noise", "gold-loss-correction")
_SHOWN_CONFUSIONS = 3
# With more classes, the card has no table per class.
_MAX_CLASSES_IN_TABLE = 60
_MAX_ENTRIES_OF_A_SETTING = 20


def write_card(folder: str | Path) -> Path:
    """
    Write the card, and the picture of the matrix that it shows, from the files in the folder of a model. Without
    matplotlib there is no picture.

    Returns:
        `Path`: Path of the card.
    """
    folder = Path(folder)
    matrix, facts = None, read_facts(folder)
    # Folders of earlier versions don't say whether the matrix is that of the run.
    if (folder / MATRIX_FILE).is_file() and facts.get("has_matrix", True):
        matrix = CorruptionMatrix.from_pretrained(folder)
        check_classes(folder / MATRIX_FILE, matrix.num_labels, facts)
    if matrix is not None and has_picture(matrix):
        (folder / PICTURE_FILE).write_bytes(picture_of(matrix))
    else:
        (folder / PICTURE_FILE).unlink(missing_ok=True)  # of an earlier run in the same folder
    make_card(facts, matrix, draw_worst_sources(folder, facts)).save(folder / CARD_FILE)
    return folder / CARD_FILE


def make_card(facts: dict[str, Any], matrix: CorruptionMatrix | None, drawn: Sequence[str] = ()) -> ModelCard:
    """
    Return the card of a run.

    Args:
        facts (`dict`):
            Facts from [`glc_hf.hub.facts.gather_facts`] and those added with [`ModelCardCallback.add_facts`].
        matrix ([`CorruptionMatrix`], *optional*):
            The matrix that the run used.
        drawn (`Sequence[str]`, *optional*):
            Names of the sources of votes whose matrices are in the picture beside the card.
    """
    facts = one_line(facts)
    epochs = f" ({facts['epoch']:.4g} epochs)" if facts["epoch"] else ""
    content = _template().render(
        card_data=_metadata(facts).to_yaml(),
        model_name=escape(facts["model_name"]),
        introduction=_introduction(facts),
        labels=_labels(facts),
        table=_class_table(facts, matrix),
        has_matrix=matrix is not None,
        has_picture=has_picture(matrix),
        matrix_origin="The matrix was provided by the user."
        if facts.get("matrix_given")
        else "The matrix was estimated during training.",
        noise_level=format_level(MATRIX_LEVEL) if matrix is not None and matrix.trusted_rows is not None else "",
        mean_noise=_mean_noise(matrix) if matrix is not None else "",
        confusions=[
            {**entry, "share": f"{entry['probability']:.0%}"}
            for entry in (matrix.largest_confusions(_SHOWN_CONFUSIONS) if matrix is not None else [])
        ],
        facts=facts,
        sources=sources_section(facts, list(drawn)),
        verdict=verdict_section(facts),
        **_evaluation(facts),
        accuracy_level=format_level(ACCURACY_LEVEL),
        **_comparison(facts),
        usage=usage_section(facts, matrix is not None),
        base=_base(facts),
        seed=facts["seed"],
        steps=f"{facts['step']:,} steps{epochs} in the last stage",
        decisions=[escape(decision) for decision in (facts.get("verdict") or {}).get("decisions", ())],
        arguments={code(name): _shortened(value) for name, value in facts["arguments"].items()},
        versions=", ".join(re.sub(r"[^\w .+-]", "", f"{name} {value}") for name, value in facts["versions"].items()),
        limits=_limits(facts, matrix),
    )
    return ModelCard(re.sub(r"\n{3,}", "\n\n", content))


def _metadata(facts: dict[str, Any]) -> ModelCardData:
    """Metadata for the Hub: base model, datasets, metrics as a model index, tags."""
    base, dataset = facts.get("base_model") or {}, facts.get("dataset") or {}
    name: str | None = dataset.get("name")
    on_hub = name is not None and dataset.get("on_hub")
    # For a dataset that is not on the Hub: its name in the form of a Hub identifier.
    slug = re.sub(r"[^a-z0-9._]+", "-", (name or "").lower()).strip("-") or "local"
    after = (facts["evaluation"] or {}).get("after", {})
    metrics = {metric: value for metric, value in after.items() if not metric.endswith("loss")}
    results = [
        EvalResult(
            task_type=facts["task"] or "other",
            dataset_type=name if name is not None and on_hub else slug,
            dataset_name=name or "local dataset",
            dataset_split=dataset.get("eval_split"),
            metric_type=metric,
            metric_name=metric.replace("_", " "),
            metric_value=round(float(value), 4),
        )
        for metric, value in metrics.items()
    ]
    return ModelCardData(
        language=facts.get("language"),
        license=facts.get("license") or base.get("license"),
        library_name=facts["library"],
        pipeline_tag=facts["task"],
        tags=[*_TAGS, *(tag for tag in facts.get("tags", ()) if tag not in _TAGS)],
        base_model=base["name"] if base.get("on_hub") else None,
        datasets=[name] if name is not None and on_hub else None,
        metrics=list(metrics) or None,
        model_name=facts["model_name"],
        eval_results=results or None,
    )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["cell"] = escape
    return environment.from_string(files("glc_hf.hub").joinpath(_TEMPLATE).read_text(encoding="utf-8"))


def _introduction(facts: dict[str, Any]) -> str:
    task = escape(facts["task"] or "classification").replace("-", " ")
    base = facts.get("base_model") or {}
    start = f", fine-tuned from {_link(base)}" if base.get("name") else ""
    # Folders of earlier versions don't have the title.
    title = "Gold Loss Correction (`glc`)" if facts["method"] == "glc" else f"the method {code(facts['method'])}"
    method = re.sub(r"[\\*|<>\[\]]", "", facts.get("method_title", title))  # it may contain code
    trusted = (facts["rows"] or {}).get("trusted") != 0
    labels = "noisy labels and a small number of trusted labels" if trusted else "noisy labels"
    return (
        f"A model for {task} with {facts['num_labels']} classes{start}. It was trained on {labels} with {method} from "
        "the library `glc_hf`."
    )


def _link(origin: dict[str, Any]) -> str:
    name = origin["name"]
    return hub_link(name) if origin.get("on_hub") else f"a local model ({code(name)})"


def _labels(facts: dict[str, Any]) -> str:
    rows, dataset, noise = facts["rows"], facts.get("dataset") or {}, facts.get("simulated_noise")
    sentences = []
    if dataset.get("on_hub"):
        sentences.append(f"Dataset: {hub_link(dataset['name'], 'datasets/')}.")
    elif dataset.get("name"):
        sentences.append(f"Dataset: {code(dataset['name'])}.")
    if rows is None:
        sentences.append("The training set was streamed, so its rows were not counted.")
    else:
        size = f"{rows['train_rows']:,} rows"
        if rows["labels"] != rows["train_rows"]:  # labels per token
            size = f"{rows['labels']:,} labels in {size}"
        share = rows["trusted"] / max(rows["labels"], 1)
        sentences.append(
            f"Training set: {size}. Trusted (carefully checked) labels: {rows['trusted']:,} ({share:.1%})."
        )
    if facts.get("sources"):
        sentences.append(
            f"Labels that are not trusted follow from the votes of {format_count(len(facts['sources']), 'sources')}."
        )
    if noise:
        strength = f", strength {noise['strength']:g}" if noise.get("strength") is not None else ""
        changed = f", {noise['changed_labels']:,} labels changed" if noise.get("changed_labels") else ""
        sentences.append(f"The label noise is simulated: {escape(noise['kind'])}{strength}{changed}.")
    return " ".join(sentences)


def _class_table(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> list[dict[str, Any]]:
    rows = facts["rows"]
    if rows is None or facts["num_labels"] > _MAX_CLASSES_IN_TABLE:
        return []
    noise = [""] * facts["num_labels"]
    if matrix is not None:
        noise = [f"{rate:.1%}" for rate in matrix.noise_rates]
        if matrix.trusted_rows is not None:
            intervals = zip(*matrix.noise_rate_interval(), strict=True)
            noise = [f"{rate} ({format_interval(*bounds)})" for rate, bounds in zip(noise, intervals, strict=True)]
    return [
        {
            "name": _class_name(facts, label),
            "given": f"{given:,}",
            "trusted": f"{trusted:,}",
            "noise": noise[label],
        }
        for label, (given, trusted) in enumerate(zip(rows["given_by_class"], rows["trusted_by_class"], strict=True))
    ]


def _mean_noise(matrix: CorruptionMatrix) -> str:
    mean = f"{matrix.noise_rates.mean():.1%}"
    if matrix.trusted_rows is None:
        return mean
    bounds = mean_interval(matrix.noise_rates, *matrix.noise_rate_interval())
    return f"{mean} ({format_level(MATRIX_LEVEL)} interval: {format_interval(*bounds)})"


def _shortened(value: Any) -> Any:
    """A setting, without the middle of a long list such as the names of all annotators."""
    if not isinstance(value, list) or len(value) <= _MAX_ENTRIES_OF_A_SETTING:
        return value
    half = _MAX_ENTRIES_OF_A_SETTING // 2
    entries = [*map(repr, value[:half]), f"… {len(value) - 2 * half:,} more …", *map(repr, value[-half:])]
    return f"[{', '.join(entries)}]"


def _class_name(facts: dict[str, Any], label: int) -> str:
    return facts["label_names"][label] if facts["label_names"] else str(label)


def _evaluation(facts: dict[str, Any]) -> dict[str, Any]:
    evaluation = facts["evaluation"]
    if evaluation is None:
        return {"measures": [], "has_before": False, "stage1": "", "evaluated_on": ""}
    before, after, counts = evaluation["before"], evaluation["after"], _counts(facts)
    rows = (facts["rows"] or {}).get("eval_rows")
    size = f"{rows:,} rows" if rows else "the evaluation set"
    step = "" if evaluation["step"] in (None, facts["step"]) else f" at step {evaluation['step']:,}"
    note = f" Brackets contain {format_level(ACCURACY_LEVEL)} intervals." if counts.keys() & after.keys() else ""
    return {
        "measures": [
            {
                "name": name.replace("_", " ")
                + (f" ({format_count(counts[name], _unit(facts))})" if name in counts else ""),
                "before": _figure(before[name], counts.get(name)) if name in before else "–",
                "after": _figure(value, counts.get(name)),
            }
            for name, value in after.items()
        ],
        "has_before": bool(before),
        "stage1": escape(facts.get("stage1") or "stage 1"),
        "evaluated_on": f"Evaluated on {size}{step}, against the labels in the dataset.{note}",
    }


def _counts(facts: dict[str, Any]) -> dict[str, int]:
    """Number of rows or labels behind each accuracy."""
    counts = (facts["evaluation"] or {}).get("measured_on", {})
    return {name: count for name, count in counts.items() if count}


def _unit(facts: dict[str, Any]) -> str:
    return facts["evaluation"].get("unit", "rows")


def _figure(value: float, rows: int | None) -> str:
    """A metric, and its interval if it is an accuracy on a known number of rows."""
    if not rows or not 0 <= value <= 1:
        return f"{value:.4f}"
    low, high = wilson_interval(value, rows, ACCURACY_LEVEL)
    return f"{value:.4f} ({low:.3f} to {high:.3f})"


def _comparison(facts: dict[str, Any]) -> dict[str, Any]:
    """The accuracies of all methods of a comparison, and whether the best other method really differs."""
    compared, rows, own = facts.get("comparison", ()), _counts(facts).get("accuracy"), facts["method"]
    others = sorted((row for row in compared if row["method"] != own), key=lambda row: -row["accuracy"])
    mine = [row["accuracy"] for row in compared if row["method"] == own]
    sentence = ""
    if rows and mine and others and not accuracies_differ(mine[0], others[0]["accuracy"], rows):
        sentence = (
            f"The difference between this model and the best other one ({code(others[0]['method'])}) means nothing "
            f"on {format_count(rows, _unit(facts))}: it can be due to chance."
        )
    return {
        "comparison": [
            {
                "method": code(row["method"]),
                "accuracy": _figure(row["accuracy"], rows),
                "this": row["method"] == own,
            }
            for row in compared
        ],
        "comparison_has_intervals": bool(rows),
        "comparison_note": sentence,
    }


def _base(facts: dict[str, Any]) -> str:
    base = facts.get("base_model") or {}
    if base.get("name"):
        license = base.get("license") or "not stated here, see its model card"
        text = f"Base model: {_link(base)} (license: {escape(license)})."
    else:
        text = "The model was trained from random initial weights."
    return text + (f" License of this model: {escape(facts['license'])}." if facts.get("license") else "")


def _limits(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> list[str]:
    limits = [escape(warning[:1].upper() + warning[1:]) for warning in facts.get("warnings", ())]
    if matrix is not None:
        limits.append("The matrix describes noise per class: noise that depends on the example is averaged out.")
    if facts["evaluation"] is not None:
        limits.append("The metrics are only as reliable as the labels of the evaluation set.")
    if facts.get("simulated_noise"):
        limits.append("The noise was simulated on clean labels: real label noise is less regular.")
    return limits or ["The model only covers the classes and the type of input it was trained on."]


class ModelCardCallback(TrainerCallback):
    """
    Write the card of a [`GLCTrainer`] beside every model it saves: each checkpoint of the last stage, `save_model`,
    and before a push.

    Args:
        trainer ([`GLCTrainer`]):
            The trainer of the last stage. Copies of this callback in earlier stages do nothing.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.added_facts: dict[str, Any] = {}
        # Whether to replace a README.md that this library has not written.
        self.overwrites = False
        self.finished_at: int | None = None

    def add_facts(self, **facts: Any) -> None:
        """Add facts that the trainer can't know (`dataset`, `license`, `simulated_noise`, …). They take precedence."""
        self.added_facts.update(facts)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state is self.trainer.state:
            self.finished_at = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state is self.trainer.state:
            self.finished_at = len(state.log_history)

    @cached_property
    def _origins(self) -> dict[str, Any]:
        return {
            "base_model": base_model_of(self.trainer.model)._asdict(),
            "dataset": dataset_of(self.trainer.train_dataset)._asdict(),
            "matrix_given": self.trainer.given_matrix is not None,
        }

    def facts(self) -> dict[str, Any]:
        """Return all facts for the card."""
        facts = {**gather_facts(self.trainer, self.finished_at), **self._origins}
        if self.trainer.hub_model_id is not None:
            facts["hub_model_id"] = self.trainer.hub_model_id
            facts["model_name"] = self.trainer.hub_model_id.split("/")[-1]
        return {**facts, **self.added_facts}

    def save(self, folder: str | Path) -> None:
        """Write facts, card and picture into a folder with a saved model and its matrix."""
        if self.trainer.training_data is None:
            return  # no training, no facts
        try:
            write_facts(folder, self.facts())
            card = Path(folder) / CARD_FILE
            if self.overwrites or not card.is_file() or has_tag(card, _TAGS[0]):
                write_card(folder)
            else:
                logger.warning(f"{card} is not a card of glc_hf and is kept; `glc-hf card {folder}` replaces it.")
        except Exception as error:  # training must not fail because of the card
            logger.warning(
                f"the model card could not be written to {folder} ({type(error).__name__}: {error}). The model is "
                f"saved; `glc-hf card {folder}` writes the card."
            )
