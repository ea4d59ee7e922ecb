# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Random numbers as a function of (purpose, seed, row index), without state.

The bits of row i are the i-th output of SplitMix64 (Steele, Lea & Flood 2014) seeded with a hash of purpose and seed.
Each row can be computed alone, so noise does not depend on the batch size, shards, workers or the order of execution.
The arithmetic uses only 64-bit integers, so the draws are also the same on every platform and NumPy version.
"""

from __future__ import annotations

import hashlib
import operator

import numpy as np


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def check_seed(seed: int) -> int:
    """Return the seed, or raise if it is not an integer: a float would be truncated silently."""
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, got {seed!r}.") from None


def random_uint64(purpose: str, seed: int, index: np.ndarray, position: np.ndarray | None = None) -> np.ndarray:
    """
    Draw one 64-bit number per row.

    Args:
        purpose (`str`):
            Name of the stream. Different purposes give independent draws under one seed: for example, whether a row is
            trusted must not depend on whether it is noisy.
        seed (`int`): Any integer.
        index (`np.ndarray` of integers): The row indices; any values, in any order.
        position (`np.ndarray` of integers, *optional*):
            Position within the row (of a token), of the same length as `index`.
    """
    bits = np.array(index, dtype=np.int64).view(np.uint64)  # a copy: mixed in place below
    bits += np.uint64(1)
    bits *= _GAMMA
    bits += _start(purpose, seed)
    _mix(bits)
    if position is not None:
        bits += (np.asarray(position, dtype=np.int64).view(np.uint64) + np.uint64(1)) * _GAMMA
        _mix(bits)
    return bits


def uniform_bits(
    purpose: str, seed: int, index: np.ndarray, position: np.ndarray | None = None, bits: int = 40
) -> np.ndarray:
    """Like [`random_uint64`], but only the highest `bits` bits: uniform integers in [0, 2**bits)."""
    numbers = random_uint64(purpose, seed, index, position)
    numbers >>= np.uint64(64 - bits)
    return numbers


def _start(purpose: str, seed: int) -> np.uint64:
    digest = hashlib.blake2b(f"{purpose}:{int(seed)}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mix(state: np.ndarray) -> None:
    """Apply SplitMix64's output function in place."""
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
