# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Rows of the corruption matrix for classes of which no trusted row is at hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import Tensor


MISSING_ROWS = {
    "average": "the mean diagonal of the other classes, and the rest spread evenly",
    "identity": "the row of the identity: their labels are taken as right",
    "uniform": "the uniform row: their labels are taken as saying nothing",
}
_MOST_NAMED = 20


def fill_missing_rows(
    probs: Tensor, counts: Tensor, missing: str = "average", label_names: Sequence[str] | None = None
) -> Tensor:
    """
    A copy of the estimate in which each class without trusted rows has a row, after one warning that lists them.

    Args:
        probs (`Tensor` of shape `(K, K)`): The estimate; its rows for unseen classes are not read.
        counts (`Tensor` of shape `(K,)`): Number of trusted rows of each class.
        missing (`str`, *optional*, defaults to `"average"`):
            `"average"`: C[k, k] is the mean diagonal d of the classes seen, and the other entries (1 − d)/(K − 1), as
            if the class were as noisy as the average one. `"identity"`: C[k, k] = 1. `"uniform"`: 1/K everywhere.
        label_names (`Sequence[str]`, *optional*): For the warning.
    """
    if missing not in MISSING_ROWS:
        raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING_ROWS))}, got {missing!r}.")
    unseen = (counts == 0).nonzero().squeeze(-1)
    num_labels = len(probs)
    if len(unseen) == num_labels:
        raise ValueError("the corruption matrix can't be estimated: no class has a trusted row.")
    if len(unseen) == 0:
        return probs
    named = [str(label_names[k]) if label_names is not None else str(k) for k in unseen.tolist()]
    listed = ", ".join(named[:_MOST_NAMED]) + (
        f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    )
    warnings.warn(
        f"no trusted row for {len(named)} of {num_labels} classes: {listed}. Their rows of the corruption matrix are "
        f"{MISSING_ROWS[missing]} (missing={missing!r}).",
        stacklevel=3,
    )
    if missing == "identity":
        stay = 1.0
    elif missing == "uniform":
        stay = 1.0 / num_labels
    else:
        stay = float(probs.diagonal()[counts > 0].mean())
    filled = probs.clone()
    filled[unseen] = (1 - stay) / max(num_labels - 1, 1)
    filled[unseen, unseen] = stay
    return filled
