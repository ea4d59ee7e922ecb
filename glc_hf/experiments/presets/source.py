# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Where a preset's dataset comes from: a folder laid out as on the Hub, or the Hub."""

from __future__ import annotations

from pathlib import Path

from datasets import DatasetDict, load_dataset


def load_source(
    dataset: str, data_root: str | None, config: str | None, preset: str
) -> tuple[DatasetDict, str | None]:
    """
    Every split of a dataset.

    Args:
        dataset (`str`): Its id on the Hub.
        data_root (`str`, *optional*): The folder that holds `data_root/ID`, or else `data_root/ID-subset`.
        config (`str`, *optional*): The configuration, where the dataset has several.
        preset (`str`): For messages.

    Returns:
        The splits, and the name of the subset where that was taken.
    """
    if data_root is None:
        try:
            return load_dataset(dataset, config), None
        except OSError as error:
            raise OSError(
                f"preset {preset!r}: the dataset {dataset!r} can't be reached on the Hub ({type(error).__name__}). "
                f"For a local copy name the folder that holds it: data_root='./data' for ./data/{dataset}/*.parquet."
            ) from error
    root = Path(data_root).expanduser()
    for name in (dataset, f"{dataset}-subset"):
        folder = root / name
        if folder.is_dir():
            if config is not None and (folder / config).is_dir():
                folder = folder / config
            return load_dataset(str(folder)), None if name == dataset else name
    raise FileNotFoundError(
        f"preset {preset!r}: there is no folder {root / dataset} for the dataset {dataset!r}. data_root is the folder "
        f"that holds it, named as on the Hub ({dataset}/*.parquet); without data_root it is loaded from the Hub."
    )
