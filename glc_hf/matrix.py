# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The label corruption matrix: what the noise does to each class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glc_hf.randomness import uniform_bits


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage


MATRIX_FILE = "corruption_matrix.json"
MATRIX_TENSOR_FILE = "corruption_matrix.safetensors"
# Up to this many classes the numbers stand in the JSON itself, where a person can read them.
MAX_CLASSES_IN_JSON = 2000
_FORMAT_VERSION = 1


class CorruptionMatrix:
    """
    A row-stochastic K×K matrix of label noise: `probs[i, j] = p(noisy label = j | true label = i)`.

    The array is float64 and read-only, so a matrix can be shared between transforms, losses and threads.

    Args:
        probs (`array-like` of shape `(K, K)`):
            Non-negative rows that sum to one (to 1e-5; they are then normalised exactly).
        label_names (`Sequence[str]`, *optional*):
            The K class names, in label order. Used by messages, plots and the JSON file.

    Example:

    ```python
    >>> from glc_hf import CorruptionMatrix
    >>> CorruptionMatrix.uniform(2, 0.5).probs
    array([[0.75, 0.25],
           [0.25, 0.75]])
    ```
    """

    def __init__(self, probs: Any, label_names: Sequence[str] | None = None) -> None:
        if label_names is None and isinstance(probs, CorruptionMatrix):
            label_names = probs.label_names
        probs = to_float64(probs)
        check_probs(probs)
        sums = probs.sum(axis=1, keepdims=True)
        # Rows that sum to one but for rounding stay as they are: dividing again would move their last bits, and a
        # matrix read from its own file would not equal itself.
        probs /= np.where(np.abs(sums - 1) <= len(probs) * np.finfo(np.float64).eps, 1.0, sums)
        probs.flags.writeable = False
        self._probs = probs
        self._label_names = check_names(label_names, len(probs))

    # ------------------------------------------------------------------ families of the paper
    @classmethod
    def identity(cls, num_labels: int, label_names: Sequence[str] | None = None) -> CorruptionMatrix:
        """No noise: every label is right."""
        return cls(np.eye(check_class_count(num_labels)), label_names)

    @classmethod
    def uniform(cls, num_labels: int, strength: float, label_names: Sequence[str] | None = None) -> CorruptionMatrix:
        """(1 − strength)·I + strength/K: with probability `strength` the label is drawn from all K classes, the
        right one included."""
        num_labels, strength = check_class_count(num_labels), check_strength(strength)
        return cls((1 - strength) * np.eye(num_labels) + strength / num_labels, label_names)

    @classmethod
    def flip(
        cls, num_labels: int, strength: float, seed: int = 0, label_names: Sequence[str] | None = None
    ) -> CorruptionMatrix:
        """With probability `strength` class i becomes one fixed other class t(i). The targets depend on `seed` alone,
        so they are the same for every strength, and they are no permutation: several classes may flip into one."""
        num_labels, strength = check_class_count(num_labels), check_strength(strength)
        if num_labels < 2:
            raise ValueError("flip noise needs at least 2 classes: with 1 there is no other class to flip to.")
        classes = np.arange(num_labels)
        fraction = uniform_bits("flip", seed, classes, bits=32) / 2.0**32
        others = np.floor(fraction * (num_labels - 1)).astype(np.int64)
        targets = others + (others >= classes)
        probs = (1 - strength) * np.eye(num_labels)
        probs[classes, targets] += strength
        return cls(probs, label_names)

    @classmethod
    def hierarchical(
        cls, groups: Sequence[Any], strength: float, label_names: Sequence[str] | None = None
    ) -> CorruptionMatrix:
        """Confusion among similar classes: 1 − strength on the diagonal, and `strength` spread evenly over the
        **other** classes of the same group. A class alone in its group keeps its label.

        Args:
            groups (`Sequence`):
                Either the group of each class (`[0, 0, 1, 1]`, any hashable names) or the classes of each group
                (`[[0, 1], [2, 3]]`).
            strength (`float`): Probability, in [0, 1], that a label leaves its class.
        """
        strength = check_strength(strength)
        group_of = group_of_each_class(groups)
        num_labels = check_class_count(len(group_of))
        same = np.equal.outer(group_of, group_of) & ~np.eye(num_labels, dtype=bool)
        others = same.sum(axis=1)
        stay = np.where(others > 0, 1 - strength, 1.0)
        probs = np.diag(stay) + same * (strength / np.maximum(others, 1))[:, None]
        return cls(probs, label_names)

    # ------------------------------------------------------------------ reading it
    @property
    def probs(self) -> np.ndarray:
        """The read-only float64 array, `(K, K)`."""
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
    def noise_rates(self) -> np.ndarray:
        """For each class, the probability that its label is wrong: 1 − C[i, i]."""
        return 1.0 - np.diag(self._probs)

    def name_of(self, label: int) -> str:
        """The name of a class, or its number where there are no names."""
        return self._label_names[label] if self._label_names is not None else str(label)

    def distance(self, other: CorruptionMatrix | np.ndarray) -> float:
        """Mean over rows of the total variation distance, ½ Σ_j |C[i, j] − D[i, j]|: 0 equal, 1 disjoint."""
        probs = getattr(other, "probs", other)
        if np.shape(probs) != self._probs.shape:
            raise ValueError(
                f"can't compare a matrix of {self.num_labels} classes with one of shape {np.shape(probs)}."
            )
        return float(0.5 * np.abs(self._probs - probs).sum(axis=1).mean())

    def indistinguishable_classes(self, threshold: float = 0.05) -> list[tuple[int, int]]:
        """Pairs of classes whose rows differ by less than `threshold` in total variation: their noisy labels look the
        same, so no correction can part them. Empty beyond 2,000 classes, where looking costs more than it tells."""
        if self.num_labels > MAX_CLASSES_IN_JSON:
            return []
        pairs = []
        for i in range(self.num_labels - 1):
            near = 0.5 * np.abs(self._probs[i + 1 :] - self._probs[i]).sum(axis=1) < threshold
            pairs.extend((i, i + 1 + int(j)) for j in np.flatnonzero(near))
        return pairs

    def with_names(self, label_names: Sequence[str] | None) -> CorruptionMatrix:
        """The same matrix under other class names."""
        return CorruptionMatrix(self._probs, label_names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CorruptionMatrix):
            return NotImplemented
        return self._label_names == other._label_names and np.array_equal(self._probs, other._probs)

    def __hash__(self) -> int:
        return hash((self._probs.tobytes(), self._label_names))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._probs, self._label_names)  # by the constructor: arrays are pickled as writeable

    def __repr__(self) -> str:
        mean_noise = float(self.noise_rates.mean())
        return f"CorruptionMatrix(num_labels={self.num_labels}, mean_noise_rate={mean_noise:.3f})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._probs, dtype=dtype) if copy or dtype is not None else self._probs

    # ------------------------------------------------------------------ keeping it
    def save_pretrained(self, save_directory: str | Path) -> list[str]:
        """Writes `corruption_matrix.json` (beyond 2,000 classes the numbers go into a safetensors file that the JSON
        names) and returns the paths written."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {
            "format_version": _FORMAT_VERSION,
            "meaning": "probs[i][j] = p(noisy label = j | true label = i)",
            "num_labels": self.num_labels,
            "label_names": self.label_names,
        }
        written = [str(folder / MATRIX_FILE)]
        if self.num_labels <= MAX_CLASSES_IN_JSON:
            content["probs"] = self._probs.tolist()
        else:
            from safetensors.numpy import save_file

            content["probs_file"] = MATRIX_TENSOR_FILE
            save_file({"probs": np.ascontiguousarray(self._probs)}, folder / MATRIX_TENSOR_FILE)
            written.append(str(folder / MATRIX_TENSOR_FILE))
        (folder / MATRIX_FILE).write_text(json.dumps(content), encoding="utf-8")
        return written

    @classmethod
    def from_pretrained(cls, path_or_repo_id: str | Path, **hub_kwargs: Any) -> CorruptionMatrix:
        """
        Reads a matrix written by [`~CorruptionMatrix.save_pretrained`].

        Args:
            path_or_repo_id (`str`): A folder, the JSON file itself, or a Hub model id such as `"user/repo"`.
            hub_kwargs: Passed to `huggingface_hub.hf_hub_download` (`revision`, `token`, `cache_dir`, …).
        """
        path = _find_file(path_or_repo_id, MATRIX_FILE, hub_kwargs)
        content = json.loads(path.read_text(encoding="utf-8"))
        if "probs" in content:
            probs = content["probs"]
        elif "probs_file" in content:
            from safetensors.numpy import load_file

            source = path.parent if Path(path_or_repo_id).exists() else path_or_repo_id
            # Path(...).name: the file a downloaded JSON names must lie beside it, never elsewhere on this machine.
            probs = load_file(_find_file(source, Path(content["probs_file"]).name, hub_kwargs))["probs"]
        else:
            raise ValueError(f"{path} is no corruption matrix: it has neither `probs` nor `probs_file`.")
        return cls(probs, content.get("label_names"))

    def plot(self, title: str | None = None) -> Figure:
        """A heat map of the matrix as a matplotlib `Figure` (true classes down, noisy labels across)."""
        return plot_matrix(self, title)


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
            f"no {name} at {str(path_or_repo_id)!r}: it is no local folder, and the Hub did not give it "
            f"({type(error).__name__}). For a local matrix name its folder, e.g. './my-model'."
        ) from error


_ROW_SUM_TOLERANCE = 1e-5


def to_float64(probs: Any) -> np.ndarray:
    """A float64 copy of anything that holds numbers."""
    if hasattr(probs, "detach"):  # a torch tensor, perhaps bfloat16 or on another device
        probs = probs.detach().cpu().double().numpy()
    if isinstance(probs, (list, tuple)):
        for row, entries in enumerate(probs):
            length = len(entries) if hasattr(entries, "__len__") else 1
            if length != len(probs):
                raise ValueError(_not_square(len(probs), row, length))
    return np.array(probs, dtype=np.float64, copy=True)


def check_probs(probs: np.ndarray) -> None:
    """Square, finite, non-negative, rows that sum to one; the message names the row."""
    if probs.ndim != 2 or probs.shape[0] == 0:
        raise ValueError(f"a corruption matrix is square, (K, K); this one has shape {probs.shape}.")
    if probs.shape[0] != probs.shape[1]:
        raise ValueError(_not_square(len(probs), 0, probs.shape[1]))
    # By the extremes of each row, NaN if there is one: a K×K array of truth values would be memory for nothing.
    lowest, highest = probs.min(axis=1), probs.max(axis=1)
    for problem, bad in (
        ("has an entry that is NaN or infinite", ~(np.isfinite(lowest) & np.isfinite(highest))),
        ("has a negative entry", lowest < 0),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"row {row} of the corruption matrix {problem}: {_shorten(probs[row])}.")
    sums = probs.sum(axis=1)
    off = np.abs(sums - 1) > _ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"row {row} of the corruption matrix sums to {sums[row]:.6g}, not 1. Row i holds "
            "p(noisy label | true label = i); divide each row by its sum (and check that it is not transposed)."
        )


def _not_square(num_rows: int, row: int, length: int) -> str:
    return f"a corruption matrix is square, (K, K); this one has {num_rows} rows, and row {row} has {length} entries."


def _shorten(row: np.ndarray) -> str:
    return np.array2string(row, threshold=8, edgeitems=3, precision=4)


def check_names(label_names: Sequence[str] | None, num_labels: int) -> tuple[str, ...] | None:
    """As many names as classes, or none at all."""
    if label_names is None:
        return None
    names = tuple(str(name) for name in label_names)
    if len(names) != num_labels:
        raise ValueError(f"{len(names)} label names for a corruption matrix of {num_labels} classes.")
    return names


def check_class_count(num_labels: int) -> int:
    """A whole number of at least 1."""
    if int(num_labels) != num_labels or num_labels < 1:
        raise ValueError(f"num_labels must be a whole number of at least 1, got {num_labels!r}.")
    return int(num_labels)


def check_strength(strength: float) -> float:
    """A probability."""
    if not 0.0 <= strength <= 1.0:  # NaN fails here too
        raise ValueError(f"corruption strength must lie in [0, 1], got {strength!r}.")
    return float(strength)


def group_of_each_class(groups: Sequence[Any]) -> np.ndarray:
    """Both ways to write groups down as one: the number of each class's group."""
    groups = list(groups)
    nested = [isinstance(group, (list, tuple, set, np.ndarray)) for group in groups]
    if not any(nested):
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(group, len(numbers)) for group in groups], dtype=np.int64)
    if not all(nested):
        raise ValueError(
            f"groups= mixes groups of classes with single values ({groups[nested.index(False)]!r}): give either the "
            "group of each class, [0, 0, 1], or the classes of each group, [[0, 1], [2]]."
        )
    classes = [int(member) for group in groups for member in group]
    if sorted(classes) != list(range(len(classes))):
        raise ValueError(
            f"the groups must hold each class 0…{len(classes) - 1} exactly once; they hold {sorted(classes)}."
        )
    group_of = np.empty(len(classes), dtype=np.int64)
    for number, group in enumerate(groups):
        group_of[[int(member) for member in group]] = number
    return group_of


def largest_confusions(matrix: CorruptionMatrix, number: int = 10) -> list[dict[str, Any]]:
    """The largest entries off the diagonal: which class is mistaken for which, and how often."""
    others = matrix.probs.copy()
    np.fill_diagonal(others, 0.0)
    places = np.argsort(-others, axis=None, kind="stable")[:number]
    pairs = [divmod(int(place), matrix.num_labels) for place in places]
    return [
        {"true": matrix.name_of(true), "noisy": matrix.name_of(noisy), "probability": float(others[true, noisy])}
        for true, noisy in pairs
        if others[true, noisy] > 0.0
    ]


_MAX_CLASSES_WITH_NUMBERS = 12
_MAX_CLASSES_WITH_NAMES = 40
_SHOWN_AS_ZERO = 0.005


def plot_matrix(matrix: CorruptionMatrix, title: str | None = None) -> Figure:
    """A heat map: true classes down, noisy labels across; where they fit, numbers in the cells that are not 0."""
    # Figure, not pyplot: no global state, no display needed, nothing to close.
    from matplotlib.figure import Figure

    side = side_of(matrix)
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    axes = figure.add_subplot()
    image = draw_matrix(axes, matrix, title or "p(noisy label | true label)")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def side_of(matrix: CorruptionMatrix) -> float:
    """The inches that the picture of a matrix needs each way."""
    return min(3.0 + 0.42 * matrix.num_labels, 11.0)


def draw_matrix(axes: Axes, matrix: CorruptionMatrix, title: str) -> AxesImage:
    """Draws the heat map of [`plot_matrix`] into a panel of a figure; its colours go from 0 to 1."""
    size = matrix.num_labels
    image = axes.imshow(matrix.probs, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xlabel("noisy label")
    axes.set_ylabel("true label")
    axes.set_title(title)
    if size <= _MAX_CLASSES_WITH_NAMES:
        names = [matrix.name_of(label) for label in range(size)]
        if max(map(len, names)) <= 2:
            axes.set_xticks(range(size), names)
        else:
            axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
    if size <= _MAX_CLASSES_WITH_NUMBERS:
        for i, j in ((i, j) for i in range(size) for j in range(size)):
            value = matrix.probs[i, j]
            if value < _SHOWN_AS_ZERO:
                continue
            colour = "white" if value > 0.5 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    return image
