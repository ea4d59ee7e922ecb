# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Train a tiny model with each `hub_strategy` that a user would choose, and push its audit.

    python push_strategies.py FOLDER   prints one line of JSON
"""

from __future__ import annotations

import json
import sys

import numpy as np
from datasets import load_dataset

from glc_hf import GLCTrainer, push_audit
from glc_hf.audit import hub_dataset
from glc_hf.hub.push import PushError
from tests.training.tiny import bert, config, noisy_text_rows, text_rows


def train(folder: str, name: str, **settings: object) -> GLCTrainer:
    """Train two stages of four steps, with two checkpoints in the last one, and push as example scripts do."""
    settings = {"push_to_hub": True, "hub_model_id": name, "save_strategy": "steps", "save_steps": 2, **settings}
    arguments = config(f"{folder}/{name}", max_steps=4, **settings)
    trainer = GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows(60), eval_dataset=text_rows(30))
    trainer.train()
    trainer.save_model()
    trainer.push_to_hub()
    return trainer


def main(folder: str) -> None:
    trainer = train(folder, "at-the-end")
    train(folder, "every-save", hub_strategy="every_save", hub_always_push=True, save_total_limit=1)
    train(folder, "last-checkpoint", hub_strategy="checkpoint", hub_always_push=True)
    audited = trainer.audit(noisy_text_rows(60))
    hub_dataset._SHARD_BYTES = audited.data.nbytes // 2 + 1
    push_audit(audited, "tiny-audit", private=True)
    hub_dataset._SHARD_BYTES = 10**9
    push_audit(audited, "tiny-audit", model="ann/at-the-end", dataset="/home/ann/reviews.csv", private=True)
    push_audit(audited, "public-audit")
    refused = None
    try:
        push_audit(audited, "public-audit", private=True)
    except PushError as error:
        refused = str(error)
    loaded = load_dataset("ann/tiny-audit", split="train")
    same = all(np.array_equal(loaded[name], audited[name]) for name in audited.column_names)
    same = same and loaded.features == audited.features
    print(json.dumps({"columns": loaded.column_names, "same": same, "refused": refused}))


if __name__ == "__main__":
    main(sys.argv[1])
