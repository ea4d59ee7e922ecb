# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
from __future__ import annotations

import numpy as np
from scipy import stats

from glc_hf.randomness import _start, random_uint64, uniform_bits


MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """The published output function in Python integers."""
    z = state & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_numbers_are_those_of_splitmix64():
    # The first outputs from state 0, as published with the reference implementation.
    assert [splitmix64(GAMMA * (i + 1)) for i in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    start = int(_start("test", 7))
    index = [0, 1, 2, 10**12, -5]
    expected = [splitmix64(start + GAMMA * (i + 1)) for i in index]
    assert random_uint64("test", 7, np.array(index)).tolist() == expected
    position = [0, 3, 1, 9, 2]
    expected = [splitmix64(number + GAMMA * (p + 1)) for number, p in zip(expected, position, strict=True)]
    assert random_uint64("test", 7, np.array(index), np.array(position)).tolist() == expected


def test_each_number_depends_only_on_its_own_row():
    index = np.random.default_rng(0).permutation(1000)
    numbers = random_uint64("test", 0, index)
    assert np.array_equal(numbers[17:23], random_uint64("test", 0, index[17:23]))
    assert np.array_equal(numbers, random_uint64("test", 0, np.arange(1000))[index])
    assert index.flags.writeable
    assert sorted(index) == list(range(1000))


def test_purposes_seeds_and_positions_give_independent_numbers():
    index = np.arange(20_000)
    base = uniform_bits("a", 0, index, bits=40).astype(float)
    for other in (
        uniform_bits("b", 0, index),
        uniform_bits("a", 1, index),
        uniform_bits("a", 0, index, np.zeros_like(index)),
        uniform_bits("a", 0, index + 1),
    ):
        assert abs(stats.pearsonr(base, other.astype(float)).statistic) < 0.03


def test_bits_are_uniform():
    bits = uniform_bits("test", 3, np.arange(100_000), bits=6)
    assert bits.max() == 63
    assert stats.chisquare(np.bincount(bits.astype(np.int64), minlength=64)).pvalue > 1e-3
