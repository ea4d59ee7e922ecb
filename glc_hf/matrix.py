# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`CorruptionMatrix`: the probabilities of noisy labels given the true labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.heat_map import draw_matrix, new_figure, panel_size
from glc_hf.intervals import MATRIX_LEVEL, wilson_interval
from glc_hf.randomness import uniform_bits
from glc_hf.run_files import read_json, read_probs


if TYPE_CHECKING:
    from matplotlib.figure import Figure


MATRIX_FILE = "corruption_matrix.json"
MATRIX_TENSOR_FILE = "corruption_matrix.safetensors"
# Larger matrices are stored in the safetensors file.
MAX_CLASSES_IN_JSON = 2000
_MAX_CLASSES_WITH_INTERVALS_IN_JSON = 200
_FORMAT_VERSION = 1
_ROW_SUM_TOLERANCE = 1e-5


class CorruptionMatrix:
    """
    A row-stochastic K×K matrix of label noise: `probs[i, j] = p(noisy label = j | true label = i)`.

    The array is float64 and read-only, so a matrix can be shared between transforms, losses and threads.

    Args:
        probs (`array-like` of shape `(K, K)`):
            Non-negative rows that sum to one within 1e-5. They are then normalized exactly.
        label_names (`Sequence[str]`, *optional*):
            The K class names, in label order. Used in messages, plots and the JSON file.
        trusted_rows (`Sequence[int]`, *optional*):
            The number of trusted rows per class that the matrix was estimated from. `None` for a known matrix.

    Example:

    ```python
    >>> from glc_hf import CorruptionMatrix
    >>> CorruptionMatrix.uniform(2, 0.5).probs
    array([[0.75, 0.25],
           [0.25, 0.75]])
    ```
    """

    def __init__(self, probs: Any, label_names: Sequence[str] | None = None, trusted_rows: Any = None) -> None:
        if isinstance(probs, CorruptionMatrix):
            label_names = probs.label_names if label_names is None else label_names
            trusted_rows = probs.trusted_rows if trusted_rows is None else trusted_rows
        probs = to_float64(probs)
        sums = _checked_row_sums(probs)[:, None]
        # Rows that sum to one up to rounding are kept: dividing them again would change their last bits, and a matrix
        # loaded from its file would differ from the saved one.
        probs /= np.where(np.abs(sums - 1) <= len(probs) * np.finfo(np.float64).eps, 1.0, sums)
        probs.flags.writeable = False
        self._probs = probs
        self._label_names = tuple(map(str, label_names)) if label_names is not None else None
        if self._label_names is not None and len(self._label_names) != len(probs):
            raise ValueError(f"{len(self._label_names)} label names for a corruption matrix of {len(probs)} classes.")
        self._trusted_rows = _checked_counts(trusted_rows, len(probs)) if trusted_rows is not None else None

    # ------------------------------------------------------------------ noise families of the paper
    @classmethod
    def identity(cls, num_labels: int, label_names: Sequence[str] | None = None) -> CorruptionMatrix:
        """No noise: every label is correct."""
        return cls(np.eye(_check_num_labels(num_labels)), label_names)

    @classmethod
    def uniform(cls, num_labels: int, strength: float, label_names: Sequence[str] | None = None) -> CorruptionMatrix:
        """(1 − strength)·I + strength/K: with probability `strength` the label is drawn uniformly from all K classes,
        including the true one."""
        num_labels, strength = _check_num_labels(num_labels), _check_strength(strength)
        probs = np.full((num_labels, num_labels), strength / num_labels)
        np.fill_diagonal(probs, (1 - strength) + strength / num_labels)
        return cls(probs, label_names)

    @classmethod
    def flip(
        cls, num_labels: int, strength: float, seed: int = 0, label_names: Sequence[str] | None = None
    ) -> CorruptionMatrix:
        """With probability `strength` class i becomes one fixed other class t(i). The targets depend only on `seed`,
        so they are the same for every strength. They are not a permutation: several classes may share a target."""
        num_labels, strength = _check_num_labels(num_labels), _check_strength(strength)
        if num_labels < 2:
            raise ValueError("flip noise needs at least 2 classes: with 1 there is no other class to flip to.")
        classes = np.arange(num_labels)
        fraction = uniform_bits("flip", seed, classes, bits=32) / 2.0**32
        targets = np.floor(fraction * (num_labels - 1)).astype(np.int64)
        targets += targets >= classes  # skip the class itself
        probs = (1 - strength) * np.eye(num_labels)
        probs[classes, targets] += strength
        return cls(probs, label_names)

    @classmethod
    def hierarchical(
        cls, groups: Sequence[Any], strength: float, label_names: Sequence[str] | None = None
    ) -> CorruptionMatrix:
        """Confusion between similar classes: 1 − strength on the diagonal, and `strength` spread evenly over the
        **other** classes of the same group. A class alone in its group keeps its label.

        Args:
            groups (`Sequence`):
                Either the group of each class (`[0, 0, 1, 1]`, any hashable names) or the classes of each group
                (`[[0, 1], [2, 3]]`).
            strength (`float`): Probability, in [0, 1], that a label leaves its class.
        """
        strength = _check_strength(strength)
        group_of = _group_of_each_class(groups)
        num_labels = _check_num_labels(len(group_of))
        same = np.equal.outer(group_of, group_of) & ~np.eye(num_labels, dtype=bool)
        others = same.sum(axis=1)
        stay = np.where(others > 0, 1 - strength, 1.0)
        probs = np.diag(stay) + same * (strength / np.maximum(others, 1))[:, None]
        return cls(probs, label_names)

    # ------------------------------------------------------------------ properties
    @property
    def probs(self) -> np.ndarray:
        """The read-only float64 array of shape `(K, K)`."""
        return self._probs

    @property
    def label_names(self) -> list[str] | None:
        """The class names, or `None`."""
        return list(self._label_names) if self._label_names is not None else None

    @property
    def num_labels(self) -> int:
        """K, the number of classes."""
        return len(self._probs)

    @property
    def trusted_rows(self) -> np.ndarray | None:
        """The read-only number of trusted rows per class behind the estimate, or `None` for a known matrix."""
        return self._trusted_rows

    @property
    def noise_rates(self) -> np.ndarray:
        """The probability of a wrong label per class: 1 − C[i, i]."""
        return 1.0 - np.diag(self._probs)

    def interval(self, level: float = MATRIX_LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """
        The Wilson interval of each entry, `(low, high)`, as if each of the `trusted_rows` of class i had contributed
        one observed label to row i. This is conservative: the predictions of a network, and a refinement with the
        untrusted labels, contribute more. A class without trusted rows has the interval (0, 1).

        Raises:
            `ValueError`: `trusted_rows` is `None`, so the matrix was not estimated from trusted rows.
        """
        return wilson_interval(self._probs, self._known_counts()[:, None], level)

    def noise_rate_interval(self, level: float = MATRIX_LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """The interval of each of the `noise_rates`, `(low, high)`; see [`~CorruptionMatrix.interval`]."""
        return wilson_interval(np.clip(self.noise_rates, 0.0, 1.0), self._known_counts(), level)

    def _known_counts(self) -> np.ndarray:
        if self._trusted_rows is None:
            raise ValueError(
                "the corruption matrix has no intervals: it does not say how many trusted rows it was estimated from "
                "(trusted_rows is None)."
            )
        return self._trusted_rows

    def name_of(self, label: int) -> str:
        """The name of a class, or its number if there are no names."""
        return self._label_names[label] if self._label_names is not None else str(label)

    def distance(self, other: CorruptionMatrix | np.ndarray) -> float:
        """Mean over rows of the total variation distance, ½ Σ_j |C[i, j] − D[i, j]|: 0 if equal, 1 if disjoint."""
        probs = getattr(other, "probs", other)
        if np.shape(probs) != self._probs.shape:
            raise ValueError(
                f"can't compare a matrix of {self.num_labels} classes with one of shape {np.shape(probs)}."
            )
        return float(0.5 * np.abs(self._probs - probs).sum(axis=1).mean())

    def indistinguishable_classes(self, threshold: float = 0.05) -> list[tuple[int, int]]:
        """Pairs of classes whose rows differ by less than `threshold` in total variation: their noisy labels look the
        same, so no correction can separate them. Empty for more than 2,000 classes, where the search is too slow."""
        if self.num_labels > MAX_CLASSES_IN_JSON:
            return []
        pairs: list[tuple[int, int]] = []
        probs, diagonal = self._probs, np.diag(self._probs)
        for i in range(self.num_labels - 1):
            # The total variation is at least the difference of any entry. Two entries already rule most classes out.
            others = np.arange(i + 1, self.num_labels)
            apart = np.maximum(np.abs(probs[others, i] - probs[i, i]), np.abs(probs[i, others] - diagonal[others]))
            others = others[apart < threshold]
            near = 0.5 * np.abs(probs[others] - probs[i]).sum(axis=1) < threshold
            pairs.extend((i, int(j)) for j in others[near])
        return pairs

    def largest_confusions(self, number: int = 10) -> list[dict[str, Any]]:
        """The largest off-diagonal entries, in descending order, as `{"true": …, "noisy": …, "probability": …}`."""
        confusions = self._probs.copy()
        np.fill_diagonal(confusions, 0.0)
        flat = confusions.ravel()
        if number < self.num_labels:
            # Sorting all entries of thousands of classes would take minutes. At least `number` of them reach `least`.
            least = np.sort(confusions.max(axis=1))[-number]
            candidates = np.append(np.flatnonzero(flat > least), np.flatnonzero(flat == least)[:number])
        else:
            candidates = np.arange(len(flat))
        order = candidates[np.lexsort((candidates, -flat[candidates]))][:number]
        pairs = [divmod(int(index), self.num_labels) for index in order]
        return [
            {"true": self.name_of(true), "noisy": self.name_of(noisy), "probability": float(confusions[true, noisy])}
            for true, noisy in pairs
            if confusions[true, noisy] > 0.0
        ]

    def with_names(self, label_names: Sequence[str] | None) -> CorruptionMatrix:
        """The same matrix with other class names."""
        return CorruptionMatrix(self._probs, label_names, self._trusted_rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CorruptionMatrix):
            return NotImplemented
        ours, theirs = self._trusted_rows, other._trusted_rows
        same_counts = ours is theirs if ours is None or theirs is None else np.array_equal(ours, theirs)
        return self._label_names == other._label_names and same_counts and np.array_equal(self._probs, other._probs)

    def __hash__(self) -> int:
        counts = None if self._trusted_rows is None else self._trusted_rows.tobytes()
        return hash((self._probs.tobytes(), self._label_names, counts))

    def __reduce__(self) -> tuple[Any, ...]:
        # NumPy unpickles arrays as writeable.
        return type(self), (self._probs, self._label_names, self._trusted_rows)

    def __repr__(self) -> str:
        mean_noise = float(self.noise_rates.mean())
        return f"CorruptionMatrix(num_labels={self.num_labels}, mean_noise_rate={mean_noise:.3f})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._probs, dtype=dtype) if copy or dtype is not None else self._probs

    # ------------------------------------------------------------------ files and plots
    def save_pretrained(self, save_directory: str | Path) -> list[str]:
        """Write `corruption_matrix.json` and return the paths written. For more than 2,000 classes the numbers go into
        a safetensors file that the JSON names. For at most 200 classes the JSON also has the intervals of an estimate,
        `low` and `high`."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {
            "format_version": _FORMAT_VERSION,
            "meaning": "probs[i][j] = p(noisy label = j | true label = i)",
            "num_labels": self.num_labels,
            "label_names": self.label_names,
        }
        if self._trusted_rows is not None:
            content["trusted_rows"] = self._trusted_rows.tolist()
            if self.num_labels <= _MAX_CLASSES_WITH_INTERVALS_IN_JSON:
                low, high = (bound.round(4).tolist() for bound in self.interval())
                content |= {"interval_level": MATRIX_LEVEL, "low": low, "high": high}
        paths = [str(folder / MATRIX_FILE)]
        if self.num_labels <= MAX_CLASSES_IN_JSON:
            content["probs"] = self._probs.tolist()
        else:
            from safetensors.numpy import save_file

            content["probs_file"] = MATRIX_TENSOR_FILE
            save_file({"probs": np.ascontiguousarray(self._probs)}, folder / MATRIX_TENSOR_FILE)
            paths.append(str(folder / MATRIX_TENSOR_FILE))
        (folder / MATRIX_FILE).write_text(json.dumps(content), encoding="utf-8")
        return paths

    @classmethod
    def from_pretrained(cls, path_or_repo_id: str | Path, **hub_kwargs: Any) -> CorruptionMatrix:
        """
        Load a matrix written by [`~CorruptionMatrix.save_pretrained`].

        Args:
            path_or_repo_id (`str`): A folder, the JSON file itself, or a Hub model id such as `"user/repo"`.
            hub_kwargs: Passed to `huggingface_hub.hf_hub_download` (`revision`, `token`, `cache_dir`, …).
        """
        path = _find_file(path_or_repo_id, MATRIX_FILE, hub_kwargs)
        content = read_json(path, _FORMAT_VERSION)
        if "probs" in content:
            probs = content["probs"]
        elif "probs_file" in content:
            source = path.parent if Path(path_or_repo_id).exists() else path_or_repo_id
            # Path(...).name: a downloaded JSON must not name a file outside its folder.
            probs = read_probs(_find_file(source, Path(str(content["probs_file"])).name, hub_kwargs))
        else:
            raise ValueError(f"{path} is not a corruption matrix: it has neither `probs` nor `probs_file`.")
        try:
            return cls(probs, content.get("label_names"), content.get("trusted_rows"))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a valid corruption matrix: {error}") from error

    def plot(self, title: str | None = None) -> Figure:
        """Draw a heat map as a matplotlib `Figure`: true classes as rows, noisy labels as columns. For an estimate it
        also shows the number of trusted rows per class and, for few classes, the intervals. Needs matplotlib:
        `pip install 'glc_hf[plots]'`."""
        side = panel_size(self)
        figure = new_figure(side + 1.2, side)
        axes = figure.add_subplot()
        image = draw_matrix(axes, self, title or "p(noisy label | true label)")
        figure.colorbar(image, ax=axes, shrink=0.8)
        return figure


def to_float64(probs: Any) -> np.ndarray:
    """Return a float64 copy of a tensor, an array or nested lists."""
    if hasattr(probs, "detach"):  # a torch tensor, perhaps bfloat16 or on another device
        probs = probs.detach().cpu().double().numpy()
    if isinstance(probs, (list, tuple)):
        for row, entries in enumerate(probs):
            length = len(entries) if hasattr(entries, "__len__") else 1
            if length != len(probs):
                raise ValueError(_not_square(len(probs), row, length))
    return np.array(probs, dtype=np.float64, copy=True)


def _find_file(path_or_repo_id: str | Path, name: str, hub_kwargs: dict[str, Any]) -> Path:
    path = Path(path_or_repo_id)
    if path.is_file() and name == MATRIX_FILE:
        return path
    if (path / name).is_file():
        return path / name
    if path.is_dir():
        raise FileNotFoundError(f"there is no {name} in the folder {path}.")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(str(path_or_repo_id), name, **hub_kwargs))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise OSError(
            f"no {name} at {str(path_or_repo_id)!r}: it is not a local folder, and it could not be downloaded from "
            f"the Hub ({type(error).__name__}). To load a local matrix, pass its folder, e.g. './my-model'."
        ) from error


def _checked_row_sums(probs: np.ndarray) -> np.ndarray:
    """Return the row sums after checking that the array is square, finite and non-negative with rows that sum to one.
    The message names the row."""
    if probs.ndim != 2 or probs.shape[0] == 0:
        raise ValueError(f"a corruption matrix is square, (K, K); this one has shape {probs.shape}.")
    if probs.shape[0] != probs.shape[1]:
        raise ValueError(_not_square(len(probs), 0, probs.shape[1]))
    # The minimum and maximum of each row (NaN if it has one) avoid a K×K array of booleans.
    lowest, highest = probs.min(axis=1), probs.max(axis=1)
    for problem, bad in (
        ("has an entry that is NaN or infinite", ~(np.isfinite(lowest) & np.isfinite(highest))),
        ("has a negative entry", lowest < 0),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            shown = np.array2string(probs[row], threshold=8, edgeitems=3, precision=4)
            raise ValueError(f"row {row} of the corruption matrix {problem}: {shown}.")
    sums = probs.sum(axis=1)
    off = np.abs(sums - 1) > _ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"row {row} of the corruption matrix sums to {sums[row]:.6g}, not 1. Row i holds "
            "p(noisy label | true label = i); divide each row by its sum (and check that it is not transposed)."
        )
    return sums


def _not_square(num_rows: int, row: int, length: int) -> str:
    return f"a corruption matrix is square, (K, K); this one has {num_rows} rows, and row {row} has {length} entries."


def _checked_counts(counts: Any, num_labels: int) -> np.ndarray:
    """Return numbers of rows per class as a read-only array of integers."""
    given = np.asarray(counts.cpu() if hasattr(counts, "cpu") else counts)
    if given.shape != (num_labels,) or given.dtype.kind not in "iuf" or not ((given >= 0) & (given % 1 == 0)).all():
        raise ValueError(
            f"trusted_rows holds one number of rows per class, {num_labels} non-negative integers; got {counts!r}."
        )
    numbers = given.astype(np.int64)
    numbers.flags.writeable = False
    return numbers


def _check_num_labels(num_labels: int) -> int:
    if int(num_labels) != num_labels or num_labels < 1:
        raise ValueError(f"num_labels must be an integer of at least 1, got {num_labels!r}.")
    return int(num_labels)


def _check_strength(strength: float) -> float:
    if not 0.0 <= strength <= 1.0:  # also False for NaN
        raise ValueError(f"corruption strength must be in [0, 1], got {strength!r}.")
    return float(strength)


def _group_of_each_class(groups: Sequence[Any]) -> np.ndarray:
    """Return the group number of each class for both formats of `groups`."""
    groups = list(groups)
    nested = [isinstance(group, (list, tuple, set, np.ndarray)) for group in groups]
    if not any(nested):
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
    if not all(nested):
        raise ValueError(
            f"groups= mixes groups of classes with single values ({groups[nested.index(False)]!r}): pass either the "
            "group of each class, [0, 0, 1], or the classes of each group, [[0, 1], [2]]."
        )
    group_of = {int(member): number for number, group in enumerate(groups) for member in group}
    members = sorted(int(member) for group in groups for member in group)
    if members != list(range(len(members))):
        raise ValueError(f"groups= must hold each class 0…{len(members) - 1} exactly once; it holds {members}.")
    return np.array([group_of[member] for member in members], dtype=np.int64)
