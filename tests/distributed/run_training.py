# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
A training script, launched like a user's. Every process runs it, with the output folder as its argument. All cases
share one launch, because starting the processes takes longer than running the cases.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import sys
import tempfile
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datasets
import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file

from glc_hf import GLCTrainer, mark_trusted
from glc_hf.cli.main import main as main_of_command
from glc_hf.cli.terminal import SaveOnInterrupt
from glc_hf.correction.pool import pool_data, pooling
from glc_hf.methods.base import Stage
from glc_hf.methods.glc import GoldLossCorrection
from glc_hf.training.stages import FinishedStage
from glc_hf.training.weak_training import label_by_weak_classifier
from tests.cli.conftest import save_tiny_bert, write_csv
from tests.cli.conftest import text_rows as sentences
from tests.training.test_resumed_votes import people_rows
from tests.training.test_voted_rows import voted_token_rows
from tests.training.tiny import (
    bert,
    config,
    noisy_text_rows,
    soft_text_rows,
    text_rows,
    token_bert,
    token_collator,
    token_rows,
    weights,
)


# 12 rows per step in total. 241 rows leave a last batch that neither 2 nor 3 processes can divide evenly.
ROWS, GLOBAL_BATCH = 241, 12
TRUSTED_COUNTS, EVAL_BATCHES = (2, 7, 49, 99), (5, 64)


def run_cases(folder: Path) -> dict[str, Any]:
    """Run all cases and return their results."""
    torch.set_num_threads(1)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    written = _record_written_files(folder) if processes > 1 else []
    results: dict[str, Any] = {"matrices": {}, "tensors": {}}
    train(folder / "odd", noisy_text_rows(rows=ROWS), "odd", processes, results)
    # Trusted rows come first, in order: in most batches only the first process has any.
    trusted_first = noisy_text_rows(rows=100, trusted=0.1).sort("trusted", reverse=True)
    train(folder / "front", trusted_first, "front", processes, results, train_sampling_strategy="sequential")
    stream = noisy_text_rows(rows=120).to_iterable_dataset()
    train(folder / "stream", stream, "stream", processes, results, max_steps=9, trusted_share=0)
    # The sources are estimated anew twice during the training, from the predictions of all processes.
    people = {"votes_column": "votes", "max_steps": 9}
    train(folder / "people", people_rows(ROWS), "people", processes, results, **people)
    if processes <= 2:
        soft, _ = soft_text_rows(ROWS)
        train(folder / "soft", soft, "soft", processes, results, soft_label_column="probs")
        sources = {"source_columns": ["rule", "other"], "num_train_epochs": 3}
        tokens = {"model": token_bert(), "data_collator": token_collator(), "eval_dataset": token_rows(31)}
        train(folder / "voted tokens", voted_token_rows(61), "voted tokens", processes, results, **tokens, **sources)
        stream = people_rows(120).to_iterable_dataset()
        train(folder / "voted stream", stream, "voted stream", processes, results, trusted_share=0, **people)
    with tempfile.TemporaryDirectory() as cache:  # for the features of the rows of each process
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        train(folder / "probe", noisy_text_rows(rows=ROWS), "probe", processes, results, max_steps=1, stage1="probe")
        if processes <= 2:  # it takes long
            _train_auto(folder / "auto", processes, results)
            _train_by_command(folder / "command", processes, results)
        if processes == 2:
            _stop_and_resume_command(folder / "stopped", results)
    weak = config(folder / "weak", per_device_train_batch_size=GLOBAL_BATCH // processes)
    noisy, _ = label_by_weak_classifier(text_rows(50), bert(), weak, num_train_epochs=1)
    results["weak"] = noisy["label"][:]
    for count in TRUSTED_COUNTS:
        for batch in EVAL_BATCHES:
            results["matrices"][f"{count} rows, batches of {batch}"] = _estimate(folder, count, batch)
    if processes < 3:
        # The last stage continues from the weights of the first, which must be gathered.
        settings = {"max_steps": 6, "stage2_start": "continue"}
        if processes > 1:
            settings.update(fsdp=True, fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["BertLayer"]})
        train(folder / "fsdp", noisy_text_rows(), "fsdp", processes, results, **settings)
    results["written_by_process"] = _gather(written)
    return results


def train(
    folder: Path,
    data: Any,
    name: str,
    processes: int,
    results: dict[str, Any],
    resume: bool = False,
    model: torch.nn.Module | None = None,
    data_collator: Any = None,
    eval_dataset: Dataset | None = None,
    **settings: Any,
) -> None:
    """Train one case and add its results to `results`."""
    arguments = {
        "per_device_train_batch_size": GLOBAL_BATCH // processes,
        "max_steps": -1,
        "num_train_epochs": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,  # a loss that is not logged is summed per process
        "save_strategy": "steps" if name == "odd" else "no",
        "save_steps": 20,
        **settings,
    }
    args = config(folder, **arguments)
    if args.fsdp:
        _declare_cpus_as_gpus()
    eval_dataset = eval_dataset or text_rows(31, trusted=None)
    trainer = GLCTrainer(model or bert(), args, data_collator, train_dataset=data, eval_dataset=eval_dataset)
    refine = GoldLossCorrection._refine_sources
    with patch.object(GoldLossCorrection, "_refine_sources", autospec=True, side_effect=refine) as refining:
        metrics = trainer.train(resume_from_checkpoint=resume).metrics
    results["processes"] = trainer.accelerator.num_processes
    results[name] = {
        "train_loss": metrics["train_loss"],
        "stage1_train_loss": metrics.get("stage1_train_loss"),
        "probe_penalty": metrics.get("stage1_probe_penalty"),
        "probe_loss": metrics.get("stage1_probe_loss"),
        "eval_accuracy": trainer.evaluate()["eval_accuracy"],
        "matrix": np.squeeze([matrix.probs for matrix in trainer.corruption_matrices.values()]).tolist(),
        "refinements": refining.call_count,
        "verdict": None if trainer.verdict is None else trainer.verdict.to_dict(),
    }
    trainer.save_model()
    if trainer.is_fsdp_enabled:
        for module in trainer.model.modules():
            if isinstance(module, torch.distributed.fsdp.FSDPModule):
                module.reshard()  # an evaluation can leave parameters gathered
        sharded = [isinstance(parameter, torch.distributed.tensor.DTensor) for parameter in trainer.model.parameters()]
        results[name]["sharded"] = all(sharded)
    else:
        results["tensors"].update({f"{name}/{key}": value for key, value in weights(trainer.model).items()})


def _train_auto(folder: Path, processes: int, results: dict[str, Any]) -> None:
    """Train `auto` as with a pretrained network, with fewer fits of linear models."""
    data = noisy_text_rows(rows=ROWS, trusted=0.25)
    settings = {"method": "auto", "pretrained": True}
    with patch.object(pool_data, "FOLDS", 2), patch.object(pooling, "_PENALTIES", (1e-3,)):
        train(folder, data, "auto", processes, results, model=bert(initializer_range=0.3), **settings)


def _train_by_command(folder: Path, processes: int, results: dict[str, Any]) -> None:
    """Train with `glc-hf train`, which is not told that there is no GPU."""
    model, data = folder.parent / "tiny-bert", folder.parent / "train.csv"
    if int(os.environ.get("RANK", "0")) == 0:
        save_tiny_bert(model, attention_probs_dropout_prob=0.0)
        write_csv(data, sentences(61))  # the last stage is resumed in an epoch whose last batch is not full
    if processes > 1:
        torch.distributed.barrier()
    _run_command(folder, processes, results, "--save_strategy", "no")


def _run_command(folder: Path, processes: int, results: dict[str, Any], *words: str) -> None:
    code = main_of_command([
        "train", "--dataset", str(folder.parent / "train.csv"), "--model", str(folder.parent / "tiny-bert"),
        "--output-dir", str(folder), "--method", "glc", "--noise", "flip", "--trusted-fraction", "0.3",
        "--max_steps", "12", "--per_device_train_batch_size", str(8 // processes), *words,
    ])  # fmt: skip
    if code != 0:
        sys.exit(code)
    if int(os.environ.get("RANK", "0")) == 0:
        saved = load_file(folder / "model.safetensors")
        results["tensors"].update({f"{folder.name}/{name}": value for name, value in saved.items()})


def _stop_and_resume_command(folder: Path, results: dict[str, Any]) -> None:
    """Train with the same command. The second process receives SIGTERM in the third step of the last stage, and the
    launcher terminates the first one a moment after it. Then resume the run."""
    rank, handler = int(os.environ["RANK"]), signal.getsignal(signal.SIGTERM)

    def terminate(self: SaveOnInterrupt, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if rank == 1 and (args.output_dir, state.global_step) == (str(folder), 2):
            signal.raise_signal(signal.SIGTERM)

    with redirect_stderr(io.StringIO()) as printed, patch.object(SaveOnInterrupt, "on_step_begin", terminate):
        try:
            _run_command(folder, 2, results, "--save_strategy", "steps")
        except SystemExit as stop:
            signal.raise_signal(signal.SIGTERM)
            results["stopped"] = _gather([stop.code, printed.getvalue(), sorted(os.listdir(folder))])
    signal.signal(signal.SIGTERM, handler)
    _run_command(folder, 2, results, "--save_strategy", "steps", "--resume_from_checkpoint", "True")


def _estimate(folder: Path, count: int, batch: int) -> list[list[float]]:
    """The matrix estimated from `count` trusted rows, with the initial weights as the result of stage 1."""
    clean: Dataset = text_rows(150, trusted=None)
    data = mark_trusted(clean, count=count, seed=count)
    trainer = GLCTrainer(
        bert(initializer_range=0.5),
        config(folder / "estimate", per_device_eval_batch_size=batch, max_steps=1),
        train_dataset=data,
    )
    trainer.shared_stages = {Stage("untrusted"): FinishedStage(weights(trainer.model), [{"stage1_loss": 0.0}])}
    trainer.train()
    return trainer.corruption_matrix.probs.tolist()


def _declare_cpus_as_gpus() -> None:
    """Make accelerate shard parameters, which it does on GPUs only, although it works on CPUs."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    AcceleratorState._reset_state()
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    if not hasattr(torch.cpu.Stream, "record_event"):  # torch 2.6: its stand-in for a stream lacks what sharding calls
        torch.cpu.Stream.record_event = lambda stream: torch.cpu.Event()
        torch.cpu.Stream.wait_event = lambda stream, event: None
        torch.distributed.reduce_scatter_tensor = partial(_averaging, torch.distributed.reduce_scatter_tensor)


def _averaging(reduce_scatter: Any, output: torch.Tensor, input: torch.Tensor, *, group: Any, op: Any) -> None:
    """`reduce_scatter_tensor`. With torch 2.6 the sum of gloo, the backend for CPUs, is not divided for an average."""
    reduce_scatter(output, input, group=group, op=op)
    if op == torch.distributed.ReduceOp.AVG:
        output /= group.size()


def _record_written_files(folder: Path) -> list[str]:
    """A list of the files in the folder that this process opens for writing, renames or removes from now on."""
    written: list[str] = []

    def hook(event: str, arguments: tuple) -> None:
        opened = event == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wax"
        if (opened or event in ("os.rename", "os.remove", "os.rmdir")) and str(arguments[0]).startswith(str(folder)):
            written.append(os.path.relpath(str(arguments[0]), folder))

    sys.addaudithook(hook)
    return written


def _gather(value: Any) -> list[Any]:
    if not torch.distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values


def main(folder: Path) -> None:
    """Run all cases. The main process writes the results."""
    results = run_cases(folder)
    tensors = results.pop("tensors")
    if int(os.environ.get("RANK", "0")) == 0:
        save_file(tensors, folder / "tensors.safetensors")
        (folder / "results.json").write_text(json.dumps(results))
    # Model wrappers hold the process group and are part of reference cycles. A group that is alive when Python shuts
    # down may abort the process.
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
