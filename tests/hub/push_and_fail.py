# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Train a tiny model, push it once per failing step, then push it successfully.

    python push_and_fail.py FOLDER   prints one line of JSON
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path

import huggingface_hub.utils._http as client

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.hub import push
from tests.training.tiny import bert, config, noisy_text_rows, text_rows


FAULTS = [
    ("create", 500), ("preupload", 401), ("preupload", 403), ("batch", 500), ("upload", "cut"), ("commit", 409),
    ("commit", 500), ("commit", "timeout"),
]  # fmt: skip


def set_failures(**failures: int | str) -> None:
    request = urllib.request.Request(
        f"{os.environ['HF_ENDPOINT']}/_fail", json.dumps(failures).encode(), method="POST"
    )
    urllib.request.urlopen(request).close()


def main(folder: str) -> None:
    client.time.sleep = lambda seconds: None  # the client retries five times without waiting
    push.READ_TIMEOUT = 0.5
    settings = {"save_strategy": "epoch", "num_train_epochs": 1, "max_steps": -1, "hub_model_id": "ann/robust"}
    rows = {"train_dataset": noisy_text_rows(60), "eval_dataset": text_rows(30)}
    refused = None
    set_failures(create=401)
    try:
        GLCTrainer(bert(), config(folder, push_to_hub=True, **settings), **rows)
    except push.PushError as error:
        refused = str(error)
    trainer = GLCTrainer(bert(), config(folder, **settings), **rows)
    trainer.train()
    outcomes = []
    for step, fault in FAULTS:
        set_failures(**{step: fault})
        for file in ("model.safetensors", "README.md"):
            (Path(folder) / file).unlink(missing_ok=True)
        try:
            trainer.push_to_hub()
            outcome = {"error": None}
        except push.PushError as error:
            outcome = {"error": str(error)}
        kept = all((Path(folder) / file).is_file() for file in ("model.safetensors", "README.md"))
        outcomes.append({"step": step, "fault": fault, "kept": kept, **outcome})
    set_failures()
    commit = trainer.push_to_hub(commit_message="final push", dataset="ann/reviews", license="mit")
    matrix = CorruptionMatrix.from_pretrained("ann/robust")
    same = matrix == trainer.corruption_matrix
    print(json.dumps({"refused": refused, "outcomes": outcomes, "url": commit.commit_url, "same": same}))


if __name__ == "__main__":
    main(sys.argv[1])
