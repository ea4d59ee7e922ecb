# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The matrix of `forward`."""

from __future__ import annotations

import numpy as np

from tests.methods.fake_run import FakeRun, make_method


def test_forward_uses_the_softmax_of_the_row_just_below_the_percentile(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), size=200)
    method = make_method("forward", tmp_path)
    method.estimate(FakeRun([probs], labels=np.zeros(200, dtype=int), trusted=np.zeros(200)))
    for k in range(3):
        column = probs[:, k].copy()
        column[column >= np.percentile(column, 97, method="higher")] = 0
        np.testing.assert_allclose(method.matrix.probs[k], probs[column.argmax()], atol=1e-6)
    assert method.matrix.trusted_rows is None


def test_forward_uses_the_maximum_at_percentile_100_and_for_many_classes(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(100), size=300)
    for settings in ({}, {"anchor_percentile": 100.0}):
        method = make_method("forward", tmp_path, 100, **settings)
        method.estimate(FakeRun([probs], labels=np.zeros(300, dtype=int), trusted=np.zeros(300)))
        np.testing.assert_allclose(method.matrix.probs, probs[probs.argmax(0)], atol=1e-6)
