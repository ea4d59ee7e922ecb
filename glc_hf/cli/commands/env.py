# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf env`: package versions and hardware for a bug report, without user names or paths."""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path

from glc_hf._compat import versions


def main(argv: list[str]) -> int:
    """Print one line per package and device."""
    parser = argparse.ArgumentParser(prog="glc-hf env", description="Print the versions that a bug report needs.")
    parser.parse_args(argv)
    # Not platform.platform(): a kernel release may contain the name of the machine's owner.
    system = f"{platform.system()} {platform.machine()}, {platform.python_implementation()}"
    facts = {**versions(), "platform": system, "CPU": _cpu(), "GPU": _gpu()}
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value}")
    return 0


def _cpu() -> str:
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{model or 'unknown'}, {os.cpu_count()} cores"


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "unknown (torch is not installed)"
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())]
        return f"{', '.join(names)} (CUDA {torch.version.cuda})"
    return "Apple MPS" if torch.backends.mps.is_available() else "none"
