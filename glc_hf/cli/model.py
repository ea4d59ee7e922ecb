# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Loading a model, and preparing rows for it: token ids, or images decoded on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from datasets import Dataset, Image
from transformers import PreTrainedModel

from glc_hf.backbones.timm_network import pretrained_name, require_timm, timm_network
from glc_hf.cli.answer_file import columns_of_votes
from glc_hf.cli.data import CLEAN_COLUMN, Rows
from glc_hf.cli.digits import digits_model
from glc_hf.labels.columns import is_list_feature
from glc_hf.labels.reading import IGNORED_LABEL


if TYPE_CHECKING:
    from glc_hf.cli.options import ModelArguments
    from glc_hf.cli.parsing import TrainOptions
    from glc_hf.matrix import CorruptionMatrix


_LABELS = "labels"
_FALLBACK_LENGTH = 512
_KEPT_PIXELS = 2**28  # bytes
_AUTO_CLASSES = {
    "text": transformers.AutoModelForSequenceClassification,
    "image": transformers.AutoModelForImageClassification,
    "token": transformers.AutoModelForTokenClassification,
}
# Model types whose tokenizers treat a pre-split word as the continuation of the previous one by default.
_NEED_PREFIX_SPACE = ("bloom", "gpt2", "roberta", "deberta", "longformer", "bart")


@dataclass
class Prepared:
    """
    What the trainers of a run are built from.

    Attributes:
        rows: The rows as loaded, marked and corrupted.
        model: The model with its initial weights.
        processor: Its tokenizer or image processor.
        train: The training rows as the model takes them, with labels in the column `labels`.
        evaluation: The evaluation rows, likewise.
        collator: The data collator.
        label_column: The label column that the user named. The config of the trainers has none: they find `labels`.
        known_matrix: The matrix of `--corruption-matrix`.
        label_accuracy: Share of correct labels, if a weak classifier produced them.
    """

    rows: Rows
    model: PreTrainedModel
    processor: Any
    train: Dataset
    evaluation: Dataset | None
    collator: Callable
    label_column: str | None = None
    known_matrix: CorruptionMatrix | None = None
    label_accuracy: float | None = None


def prepare(rows: Rows, options: TrainOptions, carried: Sequence[str] = (), new_head: bool = True) -> Prepared:
    """
    Load the model and prepare the rows for it.

    Args:
        rows (`Rows`): The rows, with flags and noise, which are mapped to tokens like the labels.
        options (`TrainOptions`): The model, the maximum length, and the names of the columns.
        carried (`Sequence[str]`, *optional*): Additional columns to keep.
        new_head (`bool`, *optional*, defaults to `True`): As in [`load_model`].
    """
    task, inputs, label = rows.columns.task, rows.columns.inputs, rows.columns.label
    model, processor = load_model(options.model, task, rows.num_labels, rows.label_names, new_head)
    beside = [options.config.trusted_column, options.config.noisy_label_column, CLEAN_COLUMN, *carried]
    beside += columns_of_votes(options.config)
    if task == "image":
        collator: Callable = transformers.default_data_collator
    else:
        max_length = _max_length(options.data.max_length, processor, model)
        if task == "text":
            collator = transformers.DataCollatorWithPadding(processor)
            tokenize = partial(_tokenize_texts, tokenizer=processor, columns=inputs, max_length=max_length)
        else:
            collator = transformers.DataCollatorForTokenClassification(processor)
            tokenize = partial(
                _tokenize_words,
                tokenizer=processor,
                column=inputs[0],
                max_length=max_length,
                carried=[_LABELS, *beside],
            )

    def convert(dataset: Dataset, columns: Sequence[str | None]) -> Dataset:
        dataset = dataset.select_columns([name for name in (label, *columns) if name in dataset.column_names])
        if label != _LABELS:
            dataset = dataset.rename_column(label, _LABELS)
        if task != "image":
            return dataset.map(tokenize, batched=True, remove_columns=list(inputs), desc="Tokenizing")
        dataset = dataset.cast_column(inputs[0], Image(decode=False))
        return dataset.with_transform(_Pixels(processor, inputs[0]))

    with options.config.main_process_first(desc="preparing the data"):
        train = convert(rows.train, [*inputs, *beside])
        evaluation = convert(rows.evaluation, inputs) if rows.evaluation is not None else None
    label_column, options.config.label_column = options.config.label_column, None
    return Prepared(rows, model, processor, train, evaluation, collator, label_column)


def _max_length(given: int | None, tokenizer: Any, model: Any) -> int:
    """Return the number of tokens to truncate to: as given, else the smaller limit of tokenizer and model."""
    positions = None
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and isinstance(module, torch.nn.Embedding):
            # RoBERTa and related models count positions from the one after the padding index.
            positions = module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
            break
    if given is not None:
        if positions is not None and given > positions:
            raise ValueError(f"--max-length {given}: the model has positions for {positions} tokens.")
        return given
    limits = [positions or getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    return min((limit for limit in limits if limit is not None and 0 < limit < 1_000_000), default=_FALLBACK_LENGTH)


def _tokenize_texts(batch: dict[str, list], tokenizer: Any, columns: tuple[str, ...], max_length: int) -> dict:
    texts = [[text if text is not None else "" for text in batch[column]] for column in columns]
    return dict(tokenizer(*texts, truncation=True, max_length=max_length))


def _tokenize_words(
    batch: dict[str, list], tokenizer: Any, column: str, max_length: int, carried: Sequence[str | None]
) -> dict:
    """Tokenize words. The label and flag of a word go to its first token; other tokens get -100 and False."""
    encoded = tokenizer(batch[column], is_split_into_words=True, truncation=True, max_length=max_length)
    first_of_word = []  # per row and token: the index of the word that begins there
    for row in range(len(batch[column])):
        word_ids = encoded.word_ids(row)
        before = [None, *word_ids[:-1]]
        first_of_word.append([word if word != last else None for last, word in zip(before, word_ids, strict=True)])
    result = dict(encoded)
    for name in carried:
        values = [] if name is None else batch.get(name, [])
        lists = [row for row in values if row is not None]  # None: a source without votes on the row
        if not lists or not isinstance(lists[0], list):
            continue  # a flag for the whole row stays as it is
        example = next((value for row in lists for value in row if value is not None), 0)
        missing = {bool: False, str: None}.get(type(example), IGNORED_LABEL)
        result[name] = [
            None if row is None else [row[word] if word is not None else missing for word in words]
            for row, words in zip(values, first_of_word, strict=True)
        ]
    return result


class _Pixels:
    """
    Transform of image rows to the input of the network. What the processor returned is kept for the next epochs, up to
    256 MB: for small images, decoding and resizing can take as long as training.

    Args:
        processor: An image processor, which returns the same pixels for an image each time.
        column (`str`): Column of the encoded images.
    """

    def __init__(self, processor: Any, column: str) -> None:
        self.processor, self.column = processor, column
        self._kept: dict[bytes | str, torch.Tensor] = {}
        self._free = _KEPT_PIXELS

    def __getstate__(self) -> dict[str, Any]:
        # Fingerprints of datasets and other processes don't depend on what was kept.
        return {**vars(self), "_kept": {}, "_free": _KEPT_PIXELS}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Pixels:
        return self  # datasets copy their transform with each change of format

    def __call__(self, batch: dict[str, list]) -> dict[str, Any]:
        encoded = [self._key(image) for image in batch[self.column]]
        missing = {key: place for place, key in enumerate(encoded) if key not in self._kept}
        new: dict[bytes | str, torch.Tensor] = {}
        if missing:
            images = [Image().decode_example(batch[self.column][place]).convert("RGB") for place in missing.values()]
            pixels = self.processor(images, return_tensors="pt")["pixel_values"]
            new = dict(zip(missing, pixels, strict=True))
            size = pixels[0].nbytes
            room = 0 if torch.utils.data.get_worker_info() else self._free // size  # workers live for one epoch
            for key in list(new)[:room]:
                self._kept[key] = new[key].clone()
                self._free -= size
        result: dict[str, Any] = {
            "pixel_values": torch.stack([new[key] if key in new else self._kept[key] for key in encoded])
        }
        return {**result, _LABELS: batch[_LABELS]} if _LABELS in batch else result

    @staticmethod
    def _key(image: dict[str, Any]) -> bytes | str:
        encoded = image["bytes"]
        return image["path"] if encoded is None else hashlib.blake2b(encoded, digest_size=16).digest()


def check_labels_fit(rows: Rows) -> None:
    """Raise if words have one label per row, or texts and images have lists of labels."""
    label = rows.columns.label
    lists = is_list_feature(rows.train.features[label])
    if lists != (rows.columns.task == "token"):
        content = "lists" if lists else "single values"
        raise ValueError(
            f"column {label!r} contains {content}, which does not fit the task {rows.columns.task!r}: set "
            "--label-column and --task (token: one label per word; text and image: one label per row)."
        )


def load_model(
    arguments: ModelArguments, task: str, num_labels: int, label_names: list[str] | None, new_head: bool = True
) -> tuple[PreTrainedModel, Any]:
    """
    Load a model with a head for K classes, and its tokenizer or image processor.

    Args:
        arguments (`ModelArguments`): The model; with `from_scratch`, only its configuration is loaded.
        task (`str`): `"text"`, `"image"` or `"token"`.
        num_labels (`int`): K.
        label_names (`list[str]`, *optional*): Class names, for `id2label`.
        new_head (`bool`, *optional*, defaults to `True`): Whether a checkpoint without a head for these classes gets
            a new one, with random weights. Otherwise it is an error.
    """
    name = arguments.model
    if task == "image" and (name is None or name.startswith("timm/")):
        if name is None or arguments.from_scratch:
            names = label_names or [str(label) for label in range(num_labels)]
            if name is None:
                network = digits_model(names)
            else:
                network = timm_network(name.removeprefix("timm/"), names, arguments.image_size)
            config = network.config
            return network, transformers.TimmWrapperImageProcessor(config.pretrained_cfg, config.architecture)
        name = pretrained_name(name)
    elif name is None or name.startswith("timm/"):
        raise ValueError(f"the input is {task}, and networks of timm take images: choose another --model.")
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
        model.config._name_or_path = ""  # it would say that the model is pretrained
    else:
        loading = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True, **source}
        model, info = _load(auto_class.from_pretrained, name, **loading)
        if not new_head:
            _check_complete(name, num_labels, info)
    if task == "text" and model.config.pad_token_id is None:
        model.config.pad_token_id = processor.pad_token_id
    return model, processor


def _check_complete(name: str, num_labels: int, info: dict[str, Any]) -> None:
    """Raise if weights were not in the files of a model, or have another shape there."""
    for weight, found, expected in info["mismatched_keys"]:
        raise ValueError(
            f"{name}: {weight} has shape {tuple(found)} in the file, and the model needs {tuple(expected)}: the "
            f"weights are not those of a model for {num_labels} classes. Restore the files of the run, or train again."
        )
    for weight in sorted(info["missing_keys"]):
        raise ValueError(
            f"{name}: the weights lack {weight}, which would have random values. Restore the files of the run, or "
            "train again."
        )


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
            raise OSError(f"--model {name}: the folder does not contain the required files: {error}") from error
        raise OSError(
            f"--model: {name!r} can't be reached on the Hub ({type(error).__name__}), and there is no local folder "
            "of that name. For a local model give its folder: --model ./my-model."
        ) from error
