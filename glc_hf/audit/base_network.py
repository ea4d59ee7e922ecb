# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The network that training started from, and trainers that start from it again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from glc_hf.hub.facts import FACTS_FILE, read_facts


def network_before_training(trainer: Any) -> torch.nn.Module | None:
    """
    The network that training started from, if it can be had without the internet: from `model_init`, without the
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
