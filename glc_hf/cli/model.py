# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""From rows to what the model takes: tokens, or images decoded as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import transformers
from datasets import Dataset, Image
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    default_data_collator,
)

from glc_hf.backbones.timm_network import pretrained_name, require_timm, timm_network
from glc_hf.cli.data import CLEAN_COLUMN, Rows
from glc_hf.cli.digits import digits_model
from glc_hf.cli.options import ModelArguments
from glc_hf.labels.columns import is_list_feature
from glc_hf.labels.reading import IGNORED_LABEL


if TYPE_CHECKING:
    from glc_hf.cli.parsing import TrainOptions


_LABELS = "labels"
_FALLBACK_LENGTH = 512


class Prepared(NamedTuple):
    """What a Trainer takes: datasets whose labels are called `labels`, and a collator."""

    train: Dataset
    evaluation: Dataset | None
    collator: Callable


def prepare(rows: Rows, processor: Any, model: Any, options: TrainOptions, carried: Sequence[str] = ()) -> Prepared:
    """
    Prepares both datasets for the task.

    Args:
        rows (`Rows`): With flags and noise in place: both are carried along to the tokens.
        processor: The tokenizer or image processor.
        model: For the number of tokens it can take.
        options (`TrainOptions`): For the columns that go with the labels, and the number of tokens wanted.
        carried (`Sequence[str]`, *optional*): Further columns to carry along.
    """
    task, inputs = rows.columns.task, rows.columns.inputs
    beside = [options.config.trusted_column, options.config.noisy_label_column, CLEAN_COLUMN, *carried]
    if task == "image":
        collator: Callable = default_data_collator
        transform = _ImageTransform(processor, inputs[0])

        def make(dataset: Dataset) -> Dataset:
            if not isinstance(dataset.features[inputs[0]], Image):
                dataset = dataset.cast_column(inputs[0], Image())
            return dataset.with_transform(transform)
    else:
        length = _length(options.data.max_length, processor, model)
        if task == "text":
            collator = DataCollatorWithPadding(processor)
            tokenize: Callable = _TextTokenizer(processor, inputs, length)
        else:
            collator = DataCollatorForTokenClassification(processor)
            tokenize = _WordTokenizer(processor, inputs[0], length, [_LABELS, *beside])

        def make(dataset: Dataset) -> Dataset:
            return dataset.map(tokenize, batched=True, remove_columns=list(inputs), desc="Tokenizing")

    train = make(_with_labels(rows.train, rows.columns.label, [*inputs, *beside]))
    evaluation = rows.evaluation
    if evaluation is not None:
        evaluation = make(_with_labels(evaluation, rows.columns.label, list(inputs)))
    return Prepared(train, evaluation, collator)


def _with_labels(dataset: Dataset, label: str, kept: list[str | None]) -> Dataset:
    dataset = dataset.select_columns([name for name in (label, *kept) if name in dataset.column_names])
    return dataset if label == _LABELS else dataset.rename_column(label, _LABELS)


def _length(wanted: int | None, tokenizer: Any, model: Any) -> int:
    """How many tokens a text may have: as many as are wanted, or as tokenizer and model both can take."""
    places = _places(model)
    if wanted is not None:
        if places is not None and wanted > places:
            raise ValueError(f"--max-length {wanted}: the model has places for {places} tokens.")
        return wanted
    limits = [places or getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [limit for limit in limits if limit is not None and 0 < limit < 1_000_000]
    return min(known, default=_FALLBACK_LENGTH)


def _places(model: Any) -> int | None:
    """The size of the table of position embeddings, if the model has one. RoBERTa and its kin count positions from
    the one after that of padding."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and isinstance(module, torch.nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


class _TextTokenizer:
    """Texts, or pairs of them, to token ids."""

    def __init__(self, tokenizer: Any, columns: tuple[str, ...], max_length: int) -> None:
        self.tokenizer, self.columns, self.max_length = tokenizer, columns, max_length

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        texts = [[text if text is not None else "" for text in batch[column]] for column in self.columns]
        return dict(self.tokenizer(*texts, truncation=True, max_length=self.max_length))


class _WordTokenizer:
    """
    Words to token ids. What belongs to a word (label, flag) goes to its first token; the others, and special tokens,
    have the label -100 and the flag False.
    """

    def __init__(self, tokenizer: Any, column: str, max_length: int, carried: list[str | None]) -> None:
        self.tokenizer, self.column, self.max_length, self.carried = tokenizer, column, max_length, carried

    def __call__(self, batch: dict[str, list]) -> dict[str, list]:
        encoded = self.tokenizer(
            batch[self.column], is_split_into_words=True, truncation=True, max_length=self.max_length
        )
        first_of_word = [_first_tokens(encoded.word_ids(row)) for row in range(len(batch[self.column]))]
        result = dict(encoded)
        for name in self.carried:
            values = batch.get(name)
            if not values or not isinstance(values[0], list):
                continue  # one flag for the whole row stays as it is
            missing = False if isinstance(next((v for row in values for v in row), 0), bool) else IGNORED_LABEL
            result[name] = [
                [row[word] if word is not None else missing for word in words]
                for row, words in zip(values, first_of_word, strict=True)
            ]
        return result


def _first_tokens(word_ids: list[int | None]) -> list[int | None]:
    """The word of each token that is the first of one."""
    return [word if word != before else None for before, word in zip([None, *word_ids[:-1]], word_ids, strict=True)]


class _ImageTransform:
    """Images to pixels, batch by batch as the Trainer asks for them."""

    def __init__(self, processor: Any, column: str) -> None:
        self.processor, self.column = processor, column

    def __call__(self, batch: dict[str, list]) -> dict[str, Any]:
        images = [image.convert("RGB") for image in batch[self.column]]
        result = {"pixel_values": self.processor(images, return_tensors="pt")["pixel_values"]}
        if _LABELS in batch:
            result[_LABELS] = batch[_LABELS]
        return result


def check_labels_fit(rows: Rows) -> None:
    """Refuses one label a row for words, and lists of labels for texts and images."""
    label = rows.columns.label
    lists = is_list_feature(rows.train.features[label])
    if lists != (rows.columns.task == "token"):
        held = "lists" if lists else "single values"
        raise ValueError(
            f"column {label!r} holds {held}, which does not fit the task {rows.columns.task!r}: name --label-column "
            "and --task (token: one label a word; text and image: one label a row)."
        )


_AUTO_CLASSES = {
    "text": transformers.AutoModelForSequenceClassification,
    "image": transformers.AutoModelForImageClassification,
    "token": transformers.AutoModelForTokenClassification,
}
# Tokenizers that see a word split off beforehand as the continuation of another, unless told.
_NEED_PREFIX_SPACE = ("bloom", "gpt2", "roberta", "deberta", "longformer", "bart")


class LoadedModel(NamedTuple):
    """
    A model and its tokenizer or image processor.

    Attributes:
        model: With a head for the classes.
        processor: What prepares the inputs.
        saved_processor: The same, where it is saved as files of its own; timm keeps it in the model's configuration.
    """

    model: PreTrainedModel
    processor: Any
    saved_processor: Any | None


def load_model(arguments: ModelArguments, task: str, num_labels: int, label_names: list[str] | None) -> LoadedModel:
    """
    Loads a model, or only its configuration (`from_scratch`), with a head for K classes.

    Args:
        arguments (`ModelArguments`): Which model.
        task (`str`): `"text"`, `"image"` or `"token"`.
        num_labels (`int`): K.
        label_names (`list[str]`, *optional*): The classes' names, for `id2label`.
    """
    name = arguments.model
    if task == "image" and (name is None or name.startswith("timm/")):
        names = label_names or [str(label) for label in range(num_labels)]
        if name is None:
            return _with_timm_processor(digits_model(names))
        if arguments.from_scratch:
            return _with_timm_processor(timm_network(name.removeprefix("timm/"), names, arguments.image_size))
        name = pretrained_name(name)
    elif name is None or name.startswith("timm/"):
        raise ValueError(f"the input is {task}, and networks of timm take images: name another --model.")
    head: dict[str, Any] = {"num_labels": num_labels}
    if label_names is not None:
        head["id2label"] = dict(enumerate(label_names))
        head["label2id"] = {label_name: label for label, label_name in enumerate(label_names)}
    source = {"revision": arguments.model_revision or "main", "trust_remote_code": arguments.trust_remote_code}
    config = _load(transformers.AutoConfig.from_pretrained, name, **head, **source)
    processor = _load_processor(name, task, config, source)
    auto_class = _AUTO_CLASSES[task]
    if arguments.from_scratch:
        model = auto_class.from_config(config, trust_remote_code=arguments.trust_remote_code)
    else:
        # A checkpoint with a head for other classes gets a new one.
        model = _load(auto_class.from_pretrained, name, config=config, ignore_mismatched_sizes=True, **source)
    if task == "text" and model.config.pad_token_id is None:
        model.config.pad_token_id = processor.pad_token_id
    is_timm = type(processor).__name__ == "TimmWrapperImageProcessor"
    return LoadedModel(model, processor, None if is_timm else processor)


def _with_timm_processor(model: PreTrainedModel) -> LoadedModel:
    processor = transformers.TimmWrapperImageProcessor(model.config.pretrained_cfg, model.config.architecture)
    return LoadedModel(model, processor, None)


def _load_processor(name: str, task: str, config: Any, source: dict[str, Any]) -> Any:
    if task == "image":
        if config.model_type == "timm_wrapper":
            require_timm()
        return _load(transformers.AutoImageProcessor.from_pretrained, name, **source)
    extra = {"add_prefix_space": True} if task == "token" and config.model_type in _NEED_PREFIX_SPACE else {}
    tokenizer = _load(transformers.AutoTokenizer.from_pretrained, name, **extra, **source)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise ValueError(f"the tokenizer of --model {name} has no padding token, which batches need.")
        tokenizer.pad_token = tokenizer.eos_token
    if task == "token" and not tokenizer.is_fast:
        raise ValueError(f"--model {name} has no fast tokenizer, which is needed to match tokens with words.")
    return tokenizer


def _load(loader: Callable[..., Any], name: str, **options: Any) -> Any:
    try:
        return loader(name, **options)
    except OSError as error:
        if Path(name).is_dir():
            raise OSError(f"--model {name}: the folder does not hold what is needed: {error}") from error
        raise OSError(
            f"--model: {name!r} can't be reached on the Hub ({type(error).__name__}), and there is no such folder "
            "here. For a local model name its folder: --model ./my-model."
        ) from error
