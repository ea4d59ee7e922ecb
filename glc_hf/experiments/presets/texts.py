# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the presets of whole texts share: padded rows of word numbers, and the words that SST leaves out."""

from __future__ import annotations

from typing import ClassVar

import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import PreTrainedTokenizerFast

from glc_hf.experiments.preset import PreparedData, Preset, label_names


# English function words. Negations (no, not, nor, n't) and words that weigh (but, too, very, most) are not among them.
_FUNCTION_WORDS = """
    a an the this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves who whom whose which what
    am is are was were be been being have has had having do does did doing would could should will shall may might
    must can 's 're 've 'd 'll 'm
    and or if as while because until than then so
    of at by for with about between into through during before after above below to from up down in out on off over
    under again further here there when where how why
    all any both each other some such own same s t
"""
STOP_WORDS = tuple(_FUNCTION_WORDS.split())


class TextPreset(Preset):
    """
    Whole texts as numbers of words, and a vocabulary of the training set.

    Class attributes:
        vocab_size, max_length, stop_words: What `word_tokenizer` takes.
    """

    vocab_size: ClassVar[int]
    max_length: ClassVar[int]
    stop_words: ClassVar[tuple[str, ...]] = ()

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]."""
        from glc_hf.backbones import word_tokenizer

        column = self.inputs[0]
        names = label_names(train, self.label, self.num_labels)
        tokenizer = word_tokenizer(train[column], self.vocab_size, self.max_length, self.stop_words)
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
