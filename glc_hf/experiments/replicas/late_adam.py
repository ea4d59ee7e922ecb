# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Adam for a table of which a step reads few rows: the other rows are updated when they are read again."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class LateAdam:
    """
    Adam on every row of a table, at the cost of the rows that are read.

    Under Adam a row without a gradient still moves, by a momentum that decays, so a step costs as much as the whole
    table is large. But nobody sees a row before it is read again. Here a row is left alone until then, and makes up
    for all missed steps at once. (`torch.optim.SparseAdam` omits those steps and is a different optimizer.)

    With the row's moments m and v when it was last read, and β1, β2, ε and the learning rate of Adam, the missed steps
    sum to

        m · Σ a·y / (√v + ε·y),  a = lr·β1^j / (1 − β1^t),  y = √((1 − β2^t) / β2^j)

    a function of √v with one term per step (the j-th missed one, at time t). It is approximated by two terms (Gaussian
    quadrature) with the same sums of a, a·y, a·y² and a·y³: exact if ε is much smaller or much larger than √v, and
    within some 1e-6 in between. These four sums are updated at every step, for any learning rate schedule.

    Args:
        table (`nn.Parameter` of shape `(N, D)`): Updated in place; its `grad` is neither read nor written.
        optimizer (`torch.optim.Adam`): The optimizer of the other parameters, for its settings and learning rate.
    """

    def __init__(self, table: nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        self.table, self.optimizer = table.data, optimizer
        (self.beta1, self.beta2), self.eps = optimizer.defaults["betas"], optimizer.defaults["eps"]
        self.first, self.second = torch.zeros_like(self.table), torch.zeros_like(self.table)
        self.steps = torch.zeros(())
        # Per row, since it was last read: β1^j and √β2^j, and the sums of a·y^n for n = 0…3.
        self.fade = torch.ones(2, len(table), dtype=torch.float64)
        self.sums = torch.zeros(4, len(table), dtype=torch.float64)
        self._read: tuple[Tensor, ...] = ()

    def read(self, rows: Tensor) -> Tensor:
        """Return the given rows (no row twice) with the values that Adam would have given them by now."""
        values, first, second = (one.index_select(0, rows) for one in (self.table, self.first, self.second))
        root = second.sqrt()
        for weight, node in _two_terms(self.sums[:, rows].unsqueeze(-1)):
            values.addcdiv_(first * (weight * node).float(), root + (self.eps * node).float(), value=-1)
        fade1, fade2 = self.fade[:, rows].unsqueeze(-1)
        first.mul_(fade1.float())
        second.mul_(fade2.square().float())
        self._read = rows, values, first, second
        return values

    def step(self, gradient: Tensor) -> None:
        """Make one step of the whole table, with the gradient of the rows last read. That of other rows is zero."""
        rows, values, first, second = self._read
        lr = float(self.optimizer.param_groups[0]["lr"])
        adam(
            [values], [gradient], [first], [second], [], [self.steps], fused=True, amsgrad=False, maximize=False,
            beta1=self.beta1, beta2=self.beta2, lr=lr, weight_decay=0.0, eps=self.eps,
        )  # fmt: skip
        for whole, part in ((self.table, values), (self.first, first), (self.second, second)):
            whole.index_copy_(0, rows, part)
        time = float(self.steps)
        self.fade[0].mul_(self.beta1)
        self.fade[1].mul_(self.beta2**0.5)
        term = self.fade[0] * (lr / (1 - self.beta1**time))
        node = (1 - self.beta2**time) ** 0.5 / self.fade[1]
        for total in self.sums:
            total.add_(term)
            term.mul_(node)
        self.fade[:, rows], self.sums[:, rows] = 1.0, 0.0

    def finish(self) -> None:
        """Update every row."""
        for rows in torch.arange(len(self.table)).split(1000):
            self.table.index_copy_(0, rows, self.read(rows))


def _two_terms(sums: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return weights and nodes of two points with these sums of weight·node^n, n = 0…3. If all nodes are (almost)
    equal, the first point is that node, and the second has weight zero."""
    s0, s1, s2, s3 = sums
    spread = s0 * s2 - s1 * s1
    apart = spread > 1e-7 * s1 * s1
    spread = torch.where(apart, spread, 1.0)
    # The nodes are the roots of y² − 2·half·y + product.
    half, product = (s0 * s3 - s1 * s2) / (2 * spread), (s1 * s3 - s2 * s2) / spread
    reach = (half * half - product).clamp(min=0).sqrt()
    mean = torch.where(s0 > 0, s1 / s0, 1.0)
    low, high = torch.where(apart, half - reach, mean), torch.where(apart, half + reach, 1.0)
    of_high = torch.where(apart, (s1 - s0 * low) / torch.where(apart, high - low, 1.0), 0.0)
    return (s0 - of_high, low), (of_high, high)
