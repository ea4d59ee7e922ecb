# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf env`: what a bug report needs to know about the machine; no names of users, no paths."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

from glc_hf._compat import versions


def main(argv: list[str]) -> int:
    """Prints one line for each package and device."""
    parser = argparse.ArgumentParser(prog="glc-hf env", description="Print the versions that a bug report needs.")
    parser.parse_args(argv)
    facts = {**versions(), "platform": _platform(), "CPU": _cpu(), "GPU": _gpu()}
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    return 0


def _platform() -> str:
    # Not platform.platform(): kernel releases may carry the name of a machine's owner.
    return f"{platform.system()} {platform.machine()}, {platform.python_implementation()}"


def _cpu() -> str:
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model or 'unknown'}, {os.cpu_count()} cores"


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "unknown (torch is not installed)"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())]
        return f"{', '.join(names)} (CUDA {torch.version.cuda})"
    if torch.backends.mps.is_available():
        return "Apple MPS"
    return "none"
