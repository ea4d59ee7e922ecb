# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""What the presets of whole texts share: padded rows of word numbers, and the words that SST leaves out."""

from __future__ import annotations

from typing import ClassVar

import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from transformers import PreTrainedTokenizerFast

from glc_hf.experiments.presets.base import PreparedData, Preset, label_names, register


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


@register("sst")
class SST(TextPreset):
    """
    Phrases of film reviews, 67,349 + 872 (train and validation) to train on and 1,821 reviews to test; the mean of
    100-dimensional word vectors, learned from scratch, and a linear layer; Adam, 5 epochs, batches of 50.

    Where text and code of the paper differ this takes the code, whose figures the tables print: phrases (the text:
    6,911 whole reviews), learning rate 5e-4 (0.001), L2 1e-5 on the output layer (1e-4), stop words and all signs but
    letters and digits left out, and 0.1, 1 and 5 % trusted rows (the tables: 5, 10 and 25 %). The sum of a text's
    vectors is divided by 30, the length that texts are padded to, however many words it has.
    """

    dataset = "stanfordnlp/sst2"
    num_labels = 2
    inputs = ("sentence",)
    train_splits = ("train", "validation")
    trusted = (0.001, 0.01, 0.05)
    paper_percent: ClassVar[dict[float, float]] = {0.001: 5, 0.01: 10, 0.05: 25}
    stacks = True
    num_train_epochs = 5
    batch_size = 50
    learning_rate = 5e-4
    weight_decay = 1e-5
    vocab_size = 10_000
    max_length = 30
    stop_words = STOP_WORDS
    letters_only = True

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import WordAverageConfig, WordAverageForSequenceClassification
        from glc_hf.backbones.base import label_mapping

        config = WordAverageConfig(
            vocab_size=len(data.processing_class),
            divide_by=self.max_length,
            **label_mapping(data.label_names),
        )
        return WordAverageForSequenceClassification(config)

    def decays(self, parameter_name: str) -> bool:
        """The output layer alone."""
        return parameter_name.startswith("classifier.")

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """See [`Preset`]."""
        return text_tensors(dataset)


@register("imdb")
class IMDB(TextPreset):
    """
    25,000 film reviews to train on and 25,000 to test, the first 200 words of each; an LSTM of 64 units over
    50-dimensional word vectors, learned from scratch for 5,000 words, with dropout 0.2 on the output layer; Adam, 3
    epochs, batches of 64, learning rate 0.001.

    All from the text: there is no code for it. That reviews are cut at their end, and how weights start (see
    [`LSTMForSequenceClassification`]), are choices of this preset.
    """

    dataset = "stanfordnlp/imdb"
    num_labels = 2
    inputs = ("text",)
    trusted = (0.05, 0.1, 0.25)
    paper_percent: ClassVar[dict[float, float]] = {0.05: 5, 0.1: 10, 0.25: 25}
    num_train_epochs = 3
    batch_size = 64
    learning_rate = 1e-3
    vocab_size = 5_000
    max_length = 200

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import LSTMConfig, LSTMForSequenceClassification
        from glc_hf.backbones.base import label_mapping

        config = LSTMConfig(vocab_size=len(data.processing_class), **label_mapping(data.label_names))
        return LSTMForSequenceClassification(config)
