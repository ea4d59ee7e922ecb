# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`minimize`: L-BFGS for functions that are evaluated in less time than `torch.optim.LBFGS` takes for a step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


_SUFFICIENT_DECREASE, _CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
_SHORTEST_BRACKET = 1e-9


class _Point(NamedTuple):
    """A point on the line of a search: the step, and loss, gradient and slope there."""

    step: float
    loss: float
    gradient: np.ndarray
    slope: float


def minimize(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    *,
    max_iterations: int,
    history_size: int = 100,
    tolerance_gradient: float = 1e-7,
    tolerance_change: float = 1e-9,
) -> np.ndarray:
    """
    Minimize a smooth function by L-BFGS with a line search for the strong Wolfe conditions. The steps are those of
    `torch.optim.LBFGS`, except for rounding.

    Args:
        evaluate (`Callable`): Returns the loss and the gradient at a point.
        start (`np.ndarray` of shape `(n,)`): The initial point.
        max_iterations (`int`): There are at most 1.25 evaluations per iteration.
        history_size (`int`, *optional*, defaults to 100): Steps to remember, each with 2 · n numbers.
        tolerance_gradient (`float`, *optional*, defaults to 1e-7): No entry of the gradient is larger at the end.
        tolerance_change (`float`, *optional*, defaults to 1e-9): Smallest change of the loss, or of any variable.
    """
    with np.errstate(all="ignore"):
        evaluations, most = 1, max_iterations * 5 // 4
        point = start.copy()
        loss, gradient = evaluate(point)
        steps: list[np.ndarray] = []
        changes: list[np.ndarray] = []  # of the gradient
        inverse: list[float] = []  # 1 / (step · change)
        scale = 1.0  # of the initial inverse Hessian
        direction, step, before = -gradient, 0.0, gradient
        for iteration in range(max_iterations):
            if np.abs(gradient).max(initial=0.0) <= tolerance_gradient:
                break
            if iteration:
                change, moved = gradient - before, direction * step
                product = float(change @ moved)
                if product > 1e-10:
                    if len(steps) == history_size:
                        del steps[0], changes[0], inverse[0]
                    steps.append(moved)
                    changes.append(change)
                    inverse.append(1.0 / product)
                    scale = product / float(change @ change)
                direction = _direction(gradient, steps, changes, inverse, scale)
            before, slope = gradient, float(gradient @ direction)
            if slope > -tolerance_change:
                break
            first = 1.0 if iteration else min(1.0, 1.0 / float(np.abs(gradient).sum()))
            here = _Point(0.0, loss, gradient, slope)
            found, used = _search(evaluate, point, direction, here, first, most - evaluations)
            evaluations += used
            step, decrease, loss, gradient = found.step, abs(found.loss - loss), found.loss, found.gradient
            point = point + direction * step
            if evaluations >= most or decrease < tolerance_change:
                break
            if np.abs(direction).max() * step <= tolerance_change:
                break
    return point


def _direction(
    gradient: np.ndarray, steps: list[np.ndarray], changes: list[np.ndarray], inverse: list[float], scale: float
) -> np.ndarray:
    """−H · gradient, where the steps and the changes of the gradient define the inverse Hessian H."""
    direction, shares = -gradient, []
    for step, change, factor in zip(reversed(steps), reversed(changes), reversed(inverse), strict=True):
        shares.append(factor * float(step @ direction))
        direction -= shares[-1] * change
    direction *= scale
    for step, change, factor in zip(steps, changes, inverse, strict=True):
        direction += (shares.pop() - factor * float(change @ direction)) * step
    return direction


def _search(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    direction: np.ndarray,
    here: _Point,
    step: float,
    most: int,
) -> tuple[_Point, int]:
    """A point on the line that satisfies the strong Wolfe conditions, or the best one after `most` evaluations, and
    the number of evaluations."""
    used = 0

    def at(step: float) -> _Point:
        nonlocal used
        used += 1
        loss, gradient = evaluate(start + direction * step)
        return _Point(step, loss, gradient, float(gradient @ direction))

    def decreases(point: _Point) -> bool:
        return point.loss <= here.loss + _SUFFICIENT_DECREASE * point.step * here.slope

    flat = -_CURVATURE * here.slope
    # Longer steps, until one is a solution or there is one before it.
    last, new = here, at(step)
    while used <= most:
        if not decreases(new) or (used > 2 and new.loss >= last.loss):
            break
        if abs(new.slope) <= flat:
            return new, used
        if new.slope >= 0:
            break
        step = _interpolate(last, new, new.step + 0.01 * (new.step - last.step), new.step * 10)
        last, new = new, at(step)
    else:
        last = here
    # Shorter intervals around the solution.
    low, high = (last, new) if last.loss <= new.loss else (new, last)
    longest, stuck = float(np.abs(direction).max()), False
    while used <= most and abs(high.step - low.step) * longest >= _SHORTEST_BRACKET:
        left, right = sorted((low.step, high.step))
        step, margin = _interpolate(low, high, left, right), 0.1 * (right - left)
        # Close to an end for the second time, or at an end, it moves away from it.
        close = min(right - step, step - left) < margin
        if close and (stuck or step >= right or step <= left):
            step, close = (right - margin if right - step < step - left else left + margin), False
        stuck = close
        new = at(step)
        if not decreases(new) or new.loss >= low.loss:
            low, high = (low, new) if low.loss <= new.loss else (new, low)
            continue
        if abs(new.slope) <= flat:
            return new, used
        low, high = new, low if new.slope * (high.step - low.step) >= 0 else high
    return low, used


def _interpolate(one: _Point, other: _Point, lowest: float, highest: float) -> float:
    """The minimum of the cubic with these values and slopes at two points, between `lowest` and `highest`."""
    left, right = (one, other) if one.step <= other.step else (other, one)
    width = right.step - left.step
    if width > 0:
        third = left.slope + right.slope - 3 * (left.loss - right.loss) / (left.step - right.step)
        square = third * third - left.slope * right.slope
        if square >= 0:
            root = math.sqrt(square)
            divisor = right.slope - left.slope + 2 * root
            if divisor != 0:
                step = right.step - width * ((right.slope + root - third) / divisor)
                return min(max(step, lowest), highest)
    return (lowest + highest) / 2
