# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What people do today with a noisy training set and the ordinary Trainer, on the rows of `trec.py`."""

from __future__ import annotations

import numpy as np


_FOLDS = 5


class PlainTrainer:
    """An ordinary fine-tuning on the labels as they are."""

    name = "plain_trainer"

    def __init__(self, data: str, seed: int, strength: float, trusted: float) -> None:
        import trec

        self.rows, self.test, self.collator, _ = trec.noisy_rows(data, seed, strength, trusted)
        self.seed = seed

    def fit(self, rows):
        """A trainer that has trained a new model on these rows."""
        import trec
        from transformers import Trainer, TrainingArguments, set_seed

        set_seed(self.seed)
        trainer = Trainer(
            trec.new_model(),
            TrainingArguments(**trec.arguments(self.name, self.seed)),
            train_dataset=rows,
            data_collator=self.collator,
        )
        trainer.train()
        return trainer

    def train(self) -> None:
        """All of it."""
        self.trainer = self.fit(self.rows)

    def found(self) -> dict:
        """The accuracy on the test rows."""
        predicted = self.trainer.predict(self.test)
        return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


class Cleanlab(PlainTrainer):
    """
    Cleanlab's cross-validated cleaning: five models, each trained without a fifth of the rows, judge that fifth; the
    rows with label issues (`find_label_issues` at its defaults) are dropped, and a new model is trained on the rest.
    Trusted rows are never dropped.
    """

    name = "cleanlab"

    def train(self) -> None:
        """Six trainings."""
        from cleanlab.filter import find_label_issues

        labels, trusted = np.array(self.rows["label"][:]), np.array(self.rows["trusted"][:])
        order = np.random.default_rng(self.seed).permutation(len(labels))
        judged = np.zeros((len(labels), 6))
        for fold in range(_FOLDS):
            part = np.sort(order[fold::_FOLDS])
            others = np.setdiff1d(np.arange(len(labels)), part)
            logits = self.fit(self.rows.select(others)).predict(self.rows.select(part)).predictions
            exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
            judged[part] = exponents / exponents.sum(axis=-1, keepdims=True)
        self.dropped = find_label_issues(labels, judged) & ~trusted
        self.trainer = self.fit(self.rows.select(np.flatnonzero(~self.dropped)))

    def found(self) -> dict:
        """The accuracy, and how many rows were dropped, rightly and wrongly."""
        wrong = np.array(self.rows["label"][:]) != np.array(self.rows["clean_label"][:])
        dropped = {"wrong": int((self.dropped & wrong).sum()), "right": int((self.dropped & ~wrong).sum())}
        return {**super().found(), "dropped": dropped}


WAYS = {way.name: way for way in (PlainTrainer, Cleanlab)}
