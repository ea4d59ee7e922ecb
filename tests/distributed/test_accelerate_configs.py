# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The configurations that users copy are ones that accelerate reads."""

from __future__ import annotations

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.distributed.launch import ROOT


@pytest.mark.parametrize("name", ["one_machine", "several_machines", "fsdp2"])
def test_accelerate_reads_the_example_configuration(name):
    found = load_config_from_file(str(ROOT / "examples" / "accelerate_configs" / f"{name}.yaml"))
    assert found.num_processes > 1
    assert found.num_machines == (2 if name == "several_machines" else 1)
    if name == "fsdp2":
        assert found.fsdp_config["fsdp_version"] == 2
