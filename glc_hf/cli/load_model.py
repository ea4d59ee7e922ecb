# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The model by the name that a user gives, and what prepares its inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import transformers
from transformers import PreTrainedModel

from glc_hf.backbones.timm_network import pretrained_name, require_timm, timm_network
from glc_hf.cli.arguments import ModelArguments
from glc_hf.cli.digits import digits_model


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
