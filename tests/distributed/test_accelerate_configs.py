# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The example configurations for accelerate."""

from __future__ import annotations

import pytest
from accelerate.commands.config.config_args import load_config_from_file

from tests.distributed.launch import ROOT


@pytest.mark.parametrize("name", ["one_machine", "several_machines", "fsdp2"])
def test_accelerate_loads_the_example_configuration(name):
    config = load_config_from_file(str(ROOT / "examples" / "accelerate_configs" / f"{name}.yaml"))
    assert config.num_processes > 1
    assert config.num_machines == (2 if name == "several_machines" else 1)
    if name == "fsdp2":
        assert config.fsdp_config["fsdp_version"] == 2
