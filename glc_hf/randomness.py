# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Randomness as a function of (purpose, seed, row index): no state, no order.

Row i's bits are the i-th output of SplitMix64 (Steele, Lea & Flood 2014) started from a hash of purpose and seed. Any
row can be computed alone, which makes noise the same for every batch size, shard, worker and order of execution. The
arithmetic is on 64-bit integers only, so the draws are also the same on every platform and NumPy version.
"""

from __future__ import annotations

import hashlib

import numpy as np


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(state: np.ndarray) -> np.ndarray:
    """SplitMix64's output function, in place."""
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def _start(purpose: str, seed: int) -> np.uint64:
    """Distinct purposes never share draws, even under one seed: a row must not be noisy *because* it was chosen."""
    digest = hashlib.blake2b(f"{purpose}:{int(seed)}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def random_uint64(purpose: str, seed: int, index: np.ndarray, position: np.ndarray | None = None) -> np.ndarray:
    """
    One 64-bit word for each row.

    Args:
        purpose (`str`): Names the independent stream.
        seed (`int`): Any integer.
        index (`np.ndarray` of integers): The rows' own indices; any values, in any order.
        position (`np.ndarray` of integers, *optional*): Place within the row (a token), of the same length as `index`.
    """
    words = np.array(index, dtype=np.int64).view(np.uint64)  # a copy: mixed in place below
    words += np.uint64(1)
    words *= _GAMMA
    words += _start(purpose, seed)
    _mix(words)
    if position is not None:
        words += (np.asarray(position, dtype=np.int64).view(np.uint64) + np.uint64(1)) * _GAMMA
        _mix(words)
    return words


def uniform_bits(
    purpose: str, seed: int, index: np.ndarray, position: np.ndarray | None = None, bits: int = 40
) -> np.ndarray:
    """As [`random_uint64`], reduced to its highest `bits` bits: uniform integers in [0, 2**bits)."""
    words = random_uint64(purpose, seed, index, position)
    words >>= np.uint64(64 - bits)
    return words
