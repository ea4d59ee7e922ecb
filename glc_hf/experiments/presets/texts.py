# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the presets of whole texts share: padded rows of word numbers, and the words that SST leaves out."""

from __future__ import annotations

from typing import ClassVar

import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import PreTrainedTokenizerFast

from glc_hf.experiments.preset import PreparedData, Preset, label_names


# The stop words of NLTK's English list as it was when the paper was written: the authors' code leaves these out.
# Negations are among them ("n't" falls apart into "n" and "t", of which "n" stays).
_STOP_WORDS = """
    a about above after again against ain all am an and any are aren as at be because been before being below between
    both but by can couldn d did didn do does doesn doing don down during each few for from further had hadn has hasn
    have haven having he her here hers herself him himself his how i if in into is isn it its itself just ll m ma me
    mightn more most mustn my myself needn no nor not now o of off on once only or other our ours ourselves out over
    own re s same shan she should shouldn so some such t than that the their theirs them themselves then there these
    they this those through to too under until up ve very was wasn we were weren what when where which while who whom
    why will with won wouldn y you your yours yourself yourselves
"""
STOP_WORDS = tuple(_STOP_WORDS.split())


class TextPreset(Preset):
    """
    Whole texts as numbers of words, and a vocabulary of the training set.

    Class attributes:
        vocab_size, max_length, stop_words, letters_only: What `word_tokenizer` takes.
    """

    vocab_size: ClassVar[int]
    max_length: ClassVar[int]
    stop_words: ClassVar[tuple[str, ...]] = ()
    letters_only: ClassVar[bool] = False

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]."""
        from glc_hf.backbones import word_tokenizer

        column = self.inputs[0]
        names = label_names(train, self.label, self.num_labels)
        tokenizer = word_tokenizer(train[column], self.vocab_size, self.max_length, self.stop_words, self.letters_only)
        return PreparedData(
            tokenized(train, column, tokenizer, names),
            tokenized(test, column, tokenizer, names),
            names,
            processing_class=tokenizer,
            reduced=reduced,
        )


def tokenized(dataset: Dataset, column: str, tokenizer: PreTrainedTokenizerFast, names: list[str]) -> Dataset:
    """Texts as `input_ids` and `attention_mask`, all of the tokenizer's length, with the `label`."""
    length = tokenizer.model_max_length
    encoded = tokenizer(dataset[column][:], truncation=True, padding="max_length", return_tensors="np")
    features = Features(
        {
            "input_ids": List(Value("int64"), length=length),
            "attention_mask": List(Value("int64"), length=length),
            "label": ClassLabel(names=names),
        }
    )
    rows = {
        "input_ids": encoded["input_ids"],
        "attention_mask": encoded["attention_mask"],
        "label": dataset.with_format("numpy")["label"][:],
    }
    return Dataset.from_dict(rows, features=features).with_format("torch")


def text_tensors(dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A dataset of [`tokenized`] as whole tensors: inputs, and labels."""
    rows = dataset.with_format("torch", columns=["input_ids", "attention_mask", "label"])[:]
    labels = rows.pop("label")
    return rows, labels
