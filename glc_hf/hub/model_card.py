# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The model card: facts of a run and its matrix put into the template, with metadata that the Hub understands."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import TrainerCallback
from transformers.utils import logging

from glc_hf.hub.facts import base_model_of, dataset_of, gather_facts, read_facts, write_facts
from glc_hf.matrix import MATRIX_FILE, CorruptionMatrix, largest_confusions


if TYPE_CHECKING:
    from glc_hf.training.trainer import GLCTrainer


CARD_FILE = "README.md"
PICTURE_FILE = "corruption_matrix.png"
_STAGE1 = {"probe": "stage 1, a linear probe", "short": "stage 1, shortened"}
_TEMPLATE = "model_card_template.md"
_TAGS = ("glc_hf", "label-noise", "gold-loss-correction")
_SHOWN_CONFUSIONS = 3
# Tables of more classes than this say nothing to a reader; the totals and the matrix do.
_MAX_CLASSES_IN_TABLE = 60


def card_of(folder: str | Path) -> ModelCard:
    """The card of a folder that a run saved its model in, made from the files there."""
    folder = Path(folder)
    matrix = CorruptionMatrix.from_pretrained(folder) if (folder / MATRIX_FILE).is_file() else None
    return make_card(read_facts(folder), matrix)


def write_card(folder: str | Path) -> Path:
    """Writes the card, and the picture of the matrix that it shows, into the folder; returns the card's path."""
    folder = Path(folder)
    if (folder / MATRIX_FILE).is_file():
        CorruptionMatrix.from_pretrained(folder).plot().savefig(folder / PICTURE_FILE, bbox_inches="tight")
    card_of(folder).save(folder / CARD_FILE)
    return folder / CARD_FILE


def make_card(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> ModelCard:
    """
    The card of a run.

    Args:
        facts (`dict`): As [`glc_hf.hub.facts.gather_facts`] gives them, with what was told beside.
        matrix ([`CorruptionMatrix`], *optional*): The one that the run used.
    """
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["cell"] = _in_a_line
    content = environment.from_string(_template_text()).render(
        card_data=metadata_of(facts).to_yaml(),
        model_name=facts["model_name"],
        introduction=_introduction(facts),
        labels=_labels(facts),
        table=_class_table(facts, matrix),
        has_matrix=matrix is not None,
        matrix_origin="It was given to the run." if facts.get("matrix_given") else "It was estimated in this run.",
        mean_noise=f"{matrix.noise_rates.mean():.1%}" if matrix is not None else "",
        confusions=[
            {**entry, "share": f"{entry['probability']:.0%}"}
            for entry in (largest_confusions(matrix, _SHOWN_CONFUSIONS) if matrix is not None else [])
        ],
        **_measured(facts),
        comparison=_comparison(facts),
        usage=_usage(facts, matrix),
        base=_base(facts),
        seed=facts["seed"],
        steps=_steps(facts),
        arguments=facts["arguments"],
        versions=", ".join(f"{name} {value}" for name, value in facts["versions"].items()),
        limits=_limits(facts, matrix),
    )
    return ModelCard(re.sub(r"\n{3,}", "\n\n", content))


def metadata_of(facts: dict[str, Any]) -> ModelCardData:
    """The part that the Hub reads: base model, datasets, measures as a model index, tags."""
    base, dataset = facts.get("base_model") or {}, facts.get("dataset") or {}
    after = (facts["evaluation"] or {}).get("after", {})
    measures = {name: value for name, value in after.items() if not name.endswith("loss")}
    results = [
        EvalResult(
            task_type=facts["task"] or "other",
            dataset_type=dataset["name"] if dataset.get("on_hub") else _slug(dataset.get("name") or "local"),
            dataset_name=dataset.get("name") or "rows of the run",
            dataset_split=dataset.get("eval_split"),
            metric_type=name,
            metric_name=name.replace("_", " "),
            metric_value=round(float(value), 4),
        )
        for name, value in measures.items()
    ]
    return ModelCardData(
        language=facts.get("language"),
        license=facts.get("license") or base.get("license"),
        library_name=facts["library"],
        pipeline_tag=facts["task"],
        tags=[*_TAGS, *(tag for tag in facts.get("tags", ()) if tag not in _TAGS)],
        base_model=base["name"] if base.get("on_hub") else None,
        datasets=[dataset["name"]] if dataset.get("on_hub") else None,
        metrics=list(measures) or None,
        model_name=facts["model_name"],
        eval_results=results or None,
    )


def _slug(name: str) -> str:
    """A name as the Hub writes identifiers, for a dataset that is not on it."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-") or "local"


def _template_text() -> str:
    return files("glc_hf.hub").joinpath(_TEMPLATE).read_text(encoding="utf-8")


def _introduction(facts: dict[str, Any]) -> str:
    task = (facts["task"] or "classification").replace("-", " ")
    base = facts.get("base_model") or {}
    made = f", made from {_named(base)}" if base.get("name") else ""
    method = facts["method"]
    how = "Gold Loss Correction (`glc`)" if method == "glc" else f"the method `{method}`"
    return (
        f"A model for {task} into {facts['num_labels']} classes{made}. It was trained on noisy labels and a few "
        f"trusted ones with {how} of `glc_hf`."
    )


def _named(origin: dict[str, Any]) -> str:
    name = origin["name"]
    return f"[{name}](https://huggingface.co/{name})" if origin.get("on_hub") else f"a local model (`{name}`)"


def _labels(facts: dict[str, Any]) -> str:
    rows, dataset = facts["rows"], facts.get("dataset") or {}
    parts = []
    if dataset.get("on_hub"):
        parts.append(f"Dataset: [{dataset['name']}](https://huggingface.co/datasets/{dataset['name']}).")
    elif dataset.get("name"):
        parts.append(f"Dataset: `{dataset['name']}`.")
    if rows is None:
        parts.append("The rows came as a stream, which was not counted.")
    else:
        tokens = rows["labels"] != rows["train_rows"]
        unit = (
            f"{rows['labels']:,} labels in {rows['train_rows']:,} rows" if tokens else f"{rows['train_rows']:,} rows"
        )
        share = rows["trusted"] / max(rows["labels"], 1)
        parts.append(f"{unit}, of which {rows['trusted']:,} ({share:.1%}) are trusted: labelled with care.")
    noise = facts.get("simulated_noise")
    if noise:
        strength = f" of strength {noise['strength']:g}" if noise.get("strength") is not None else ""
        changed = f"; it made {noise['changed_labels']:,} labels wrong" if noise.get("changed_labels") else ""
        parts.append(f"The noise was simulated: {noise['kind']}{strength}{changed}.")
    return " ".join(parts)


def _class_table(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> list[dict[str, Any]]:
    rows = facts["rows"]
    if rows is None or facts["num_labels"] > _MAX_CLASSES_IN_TABLE:
        return []
    return [
        {
            "name": _class_name(facts, label),
            "given": f"{given:,}",
            "trusted": f"{trusted:,}",
            "noise": f"{matrix.noise_rates[label]:.1%}" if matrix is not None else "",
        }
        for label, (given, trusted) in enumerate(zip(rows["given_by_class"], rows["trusted_by_class"], strict=True))
    ]


def _class_name(facts: dict[str, Any], label: int) -> str:
    return facts["label_names"][label] if facts["label_names"] else str(label)


def _measured(facts: dict[str, Any]) -> dict[str, Any]:
    evaluation = facts["evaluation"]
    if evaluation is None:
        return {"measures": [], "has_before": False, "stage1": "", "evaluated_on": ""}
    before, after = evaluation["before"], evaluation["after"]
    rows = (facts["rows"] or {}).get("eval_rows")
    counted = f"{rows:,} rows" if rows else "the evaluation rows"
    when = "" if evaluation["step"] in (None, facts["step"]) else f", at step {evaluation['step']:,}"
    return {
        "measures": [
            {"name": name.replace("_", " "), "before": _number(before.get(name)), "after": _number(value)}
            for name, value in after.items()
        ],
        "has_before": bool(before),
        "stage1": _STAGE1.get(facts["arguments"].get("stage1"), "stage 1"),
        "evaluated_on": f"On {counted}, against their labels as given{when}.",
    }


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _comparison(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "method": f"`{row['method']}`",
            "accuracy": f"{row['accuracy']:.4f}",
            "this": row["method"] == facts["method"],
        }
        for row in facts.get("comparison", ())
    ]


def _usage(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> str:
    name = facts.get("hub_model_id") or facts["model_name"]
    lines = ["```python"]
    if facts.get("needs"):
        lines += [f"import {facts['needs']}  # makes the network known to transformers"]
    if facts["task"] is not None:
        lines += ["from transformers import pipeline", "", f'classifier = pipeline("{facts["task"]}", model="{name}")']
    if matrix is not None:
        lines += [] if len(lines) == 1 else [""]
        lines += ["from glc_hf import CorruptionMatrix  # only to read what the noise was like", ""]
        lines += [f'matrix = CorruptionMatrix.from_pretrained("{name}")']
    if len(lines) == 1:
        return "A plain PyTorch model: load its weights into the class that it was made from."
    return "\n".join([*lines, "```"])


def _base(facts: dict[str, Any]) -> str:
    base = facts.get("base_model") or {}
    if not base.get("name"):
        start = "It started from random weights."
        return start + (f" Licence of this model: {facts['license']}." if facts.get("license") else "")
    known = (
        f"licence {base['license']}" if base.get("license") else "whose licence is not stated here: see its own card"
    )
    text = f"Base model: {_named(base)}, {known}."
    return text + (f" Licence of this model: {facts['license']}." if facts.get("license") else "")


def _steps(facts: dict[str, Any]) -> str:
    epochs = f" ({facts['epoch']:.4g} epochs)" if facts["epoch"] else ""
    return f"{facts['step']:,} steps{epochs} of the last stage"


def _limits(facts: dict[str, Any], matrix: CorruptionMatrix | None) -> list[str]:
    limits = []
    rows = facts["rows"]
    missing = [label for label, count in enumerate(rows["trusted_by_class"]) if count == 0] if rows else []
    if missing and matrix is not None and not facts.get("matrix_given"):
        named = ", ".join(_in_a_line(_class_name(facts, label)) for label in missing[:10])
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        limits.append(f"No trusted row has the class {named}{more}: their rows of the matrix are filled in, not seen.")
    if matrix is not None:
        limits.append(
            "The matrix holds for a class as a whole: noise that depends on the single example is averaged out."
        )
    if facts["evaluation"] is not None:
        limits.append("The figures are as good as the labels they were measured against.")
    if facts.get("simulated_noise"):
        limits.append("The noise was put on clean labels for a trial; noise in the wild is less regular.")
    return limits or ["It knows the classes and the kind of input that it was trained on, and no others."]


def _in_a_line(value: Any) -> str:
    """Text that stays within its cell of a table and is no markup, whatever a class is called."""
    text = " ".join(str(value).split())
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


logger = logging.get_logger(__name__)


class ModelCardCallback(TrainerCallback):
    """
    Writes the card of a [`GLCTrainer`] beside every model it saves: with each checkpoint of the last stage, with
    `save_model`, and before a push.

    Args:
        trainer ([`GLCTrainer`]): The trainer of the last stage.
    """

    def __init__(self, trainer: GLCTrainer) -> None:
        self.trainer = trainer
        self.told: dict[str, Any] = {}
        self.finished_at: int | None = None
        self._origins: dict[str, Any] | None = None

    def tell(self, **facts: Any) -> None:
        """Adds what a trainer can't know (`dataset`, `license`, `simulated_noise`, …); it wins over what it found."""
        self.told.update(facts)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new run: nothing has come of it yet."""
        if state is self.trainer.state:
            self.finished_at = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What is logged from here on is about the model that training ended with."""
        if state is self.trainer.state:
            self.finished_at = len(state.log_history)

    def facts(self) -> dict[str, Any]:
        """All that the card tells, beside the matrix."""
        if self._origins is None:
            self._origins = {
                "base_model": base_model_of(self.trainer.model)._asdict(),
                "dataset": dataset_of(self.trainer.train_dataset)._asdict(),
                "matrix_given": self.trainer._given_matrix is not None,
            }
        known = {**gather_facts(self.trainer, self.finished_at), **self._origins}
        if self.trainer.hub_model_id is not None:
            known["hub_model_id"] = self.trainer.hub_model_id
            known["model_name"] = self.trainer.hub_model_id.split("/")[-1]
        return {**known, **self.told}

    def save(self, folder: str | Path) -> None:
        """Writes facts, card and picture into a folder that holds the model and its matrix."""
        if self.trainer.training_data is None:
            return  # nothing was trained here, so there is nothing to tell
        try:
            write_facts(folder, self.facts())
            write_card(folder)
        except Exception as error:  # a run of many hours must not end for its card
            logger.warning(
                f"the model card could not be written into {folder} ({type(error).__name__}: {error}); the model is "
                f"saved. `glc-hf card {folder}` makes it again."
            )
