# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Compiling, loading and calling the C code of the corrected loss."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor


logger = logging.getLogger(__name__)

# Set to 0 to compute everything with PyTorch.
SWITCH = "GLC_HF_COMPILE"
_SOURCE = "loss_kernel.c"
_OPTIONS = ("-O3", "-fopenmp-simd", "-shared", "-fPIC")
_SECONDS = 60
# The code uses one thread. With more than two, PyTorch is faster on arrays larger than this.
_LARGE = 1 << 18
_POINTER, _INTEGER, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

Kernel = Callable[..., int]


def compiled_item_losses(
    x: Tensor, labels: Tensor, trusted: Tensor | None, rows: Tensor, safe: float, weight: float
) -> tuple[Tensor, Tensor, int] | None:
    """
    The loss per item, `(N, 1)`, its gradient times `weight`, and the number of items for which both are left to the
    caller: their likelihood is below `safe` or NaN, and their loss is NaN. `None` if PyTorch has to compute them.

    Args:
        x (`Tensor` of shape `(N, K)`): Logits on the CPU.
        labels (`Tensor` of shape `(N,)`): Numbers of rows, and below K for trusted items. They are not checked.
        trusted (`Tensor` of shape `(N,)`, *optional*): Flags of the items with the plain cross-entropy.
        rows (`Tensor` of shape `(…, K)`): The probabilities of each label given the classes; its first K rows are Cᵀ.
        safe (`float`): Smallest likelihood that can be computed in probability space.
        weight (`float`): Factor of the gradient.
    """
    kernel = loss_kernel()
    if kernel is None or x.dtype is not torch.float32 or not (x.is_contiguous() and labels.is_contiguous()):
        return None
    number, classes = x.shape
    if (trusted is not None and not trusted.is_contiguous()) or x.numel() == 0:
        return None
    if number * classes > _LARGE and torch.get_num_threads() > 2:
        return None
    losses, gradient = x.new_empty(number, 1), torch.empty_like(x)
    flags = None if trusted is None else trusted.data_ptr()
    unsafe = kernel(
        x.data_ptr(), labels.data_ptr(), flags, rows.data_ptr(), number, classes, weight, safe, losses.data_ptr(),
        gradient.data_ptr(),
    )  # fmt: skip
    return losses, gradient, unsafe


@lru_cache(maxsize=1)
def loss_kernel() -> Kernel | None:
    """The compiled function, or `None` if there is no compiler, it fails, or `GLC_HF_COMPILE` is 0."""
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        kernel = ctypes.CDLL(str(_library())).corrected_loss
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        logger.info(f"The corrected loss is computed by PyTorch alone: {error}")
        return None
    arrays, sizes, numbers = [_POINTER] * 4, [_INTEGER] * 2, [_FLOAT] * 2
    kernel.argtypes, kernel.restype = [*arrays, *sizes, *numbers, _POINTER, _POINTER], _INTEGER
    return kernel


def _library() -> Path:
    """The shared library, compiled unless an earlier process of this user has done so."""
    compiler = next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))), None)
    if compiler is None:
        raise OSError("there is no C compiler.")
    source = files("glc_hf.correction.compiled").joinpath(_SOURCE).read_bytes()
    processor = _processor()
    options = [*_OPTIONS, *(["-march=native"] if processor else [])]
    key = hashlib.blake2b(source + repr((compiler, options, processor, platform.machine())).encode(), digest_size=8)
    folder = _own_folder()
    library = folder / f"loss_kernel-{key.hexdigest()}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = Path(work) / library.name
            command = [compiler, *options, "-x", "c", "-", "-o", str(made), "-lm"]
            done = subprocess.run(command, input=source, capture_output=True, timeout=_SECONDS, check=False)
            if done.returncode:
                raise OSError(f"{compiler} failed: {done.stderr.decode(errors='replace').strip()[-500:]}")
            os.replace(made, library)  # at once: other processes may compile it too
    return library


def _own_folder() -> Path:
    """A folder in the temporary folder that only this user can write to."""
    if not hasattr(os, "getuid"):
        raise OSError("compiling is not supported on this system.")
    folder = Path(tempfile.gettempdir()) / f"glc_hf-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{folder} can be written to by others.")
    return folder


def _processor() -> str:
    """The instructions of this processor; empty if they are unknown, and the code is compiled for any processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
