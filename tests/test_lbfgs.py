# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""L-BFGS finds minima, with the steps of `torch.optim.LBFGS`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glc_hf.lbfgs import minimize


def rosenbrock(point: torch.Tensor) -> torch.Tensor:
    """A curved valley, in which the first steps of a line search are too long or too short. The minimum is at 1."""
    return (100 * (point[1:] - point[:-1].square()).square() + (1 - point[:-1]).square()).sum()


def quadratic(point: torch.Tensor) -> torch.Tensor:
    return (torch.logspace(-2, 2, len(point), dtype=point.dtype) * (point - 3).square()).sum()


def logistic(point: torch.Tensor) -> torch.Tensor:
    features = torch.randn(50, len(point), dtype=point.dtype, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.softplus(features @ point).mean() + 0.01 * point.square().sum() + point[0]


class Counted:
    """The loss and the gradient of a function, and how often they were evaluated."""

    def __init__(self, function) -> None:
        self.function, self.evaluations = function, 0

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        variable = torch.tensor(point, requires_grad=True)
        loss = self.function(variable)
        loss.backward()
        return loss.item(), variable.grad.numpy()


@pytest.mark.parametrize("function", [rosenbrock, quadratic, logistic])
@pytest.mark.parametrize("history_size", [3, 100])
@pytest.mark.parametrize("iterations", [1, 5, 20, 200])
def test_steps_are_those_of_torch(function, history_size, iterations):
    start = torch.linspace(-1.5, 2.0, 6, dtype=torch.float64)
    counted = Counted(function)
    ours = minimize(counted, start.numpy(), max_iterations=iterations, history_size=history_size)
    theirs = start.clone().requires_grad_()
    settings = {"max_iter": iterations, "history_size": history_size, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS([theirs], **settings)

    def closure():
        optimizer.zero_grad()
        loss = function(theirs)
        loss.backward()
        return loss

    optimizer.step(closure)
    if iterations < 200:  # a long way magnifies rounding, but ends as low
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-5)
        assert counted.evaluations == pytest.approx(optimizer.state[theirs]["func_evals"], abs=2)
    assert counted(ours)[0] == pytest.approx(function(theirs).item(), abs=1e-6)
    assert start.tolist() == torch.linspace(-1.5, 2.0, 6, dtype=torch.float64).tolist()  # not changed


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float32, 2e-3), (np.float64, 1e-4)])
def test_minimum_is_found_in_the_precision_of_the_start(dtype, accuracy):
    found = minimize(Counted(rosenbrock), np.full(4, -1.0, dtype=dtype), max_iterations=200)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, 1.0, atol=accuracy)


def test_start_at_the_minimum_is_returned_after_one_evaluation():
    counted = Counted(quadratic)
    assert minimize(counted, np.full(3, 3.0), max_iterations=50).tolist() == [3.0, 3.0, 3.0]
    assert counted.evaluations == 1


def test_function_without_a_minimum_or_with_nan_ends():
    for function in (lambda point: point.sum(), lambda point: (point * float("nan")).sum()):
        counted = Counted(function)
        minimize(counted, np.zeros(3), max_iterations=20)
        assert counted.evaluations <= 30
