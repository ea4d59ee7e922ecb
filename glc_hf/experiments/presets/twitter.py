# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Parts of speech in tweets with a network that sees a word and its two neighbours."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset, Features, List, Value

from glc_hf.experiments.presets.base import PreparedData, Preset, label_names, register
from glc_hf.labels.reading import IGNORED_LABEL


_VECTORS = "ark-tweets/glove.6B.50d.tweets.txt.gz"


@register("twitter")
class Twitter(Preset):
    """
    Words of tweets with 25 parts of speech, 1,000 + 327 tweets (train and validation) to train on and 500 to test; the
    50-dimensional vectors of a word and of its two neighbours through one hidden layer of 256 units with GELU; Adam,
    15 epochs, batches of 64, learning rate 0.001, L2 5e-5 on all but the output layer.

    Every word is an example: a row holds the three words of its window, with the label in the middle. Beyond the ends
    of a tweet the vectors are zero.

    The tables print 5, 10 and 25 % trusted; this takes the 1, 5 and 25 % of the code. The network is the text's; the
    code has two hidden layers with ReLU, and L2 on all weights. The authors' vectors, made from tweets, are not to be
    had: any file in GloVe's form does, and the paper's figures are not to be expected with another. Words that the
    file lacks and the training set holds more than once (`<@MENTION>`, links, contractions) get vectors drawn at
    random; any other unknown word has the mean of the file's.

    Args:
        vectors (`str`, *optional*):
            The file of word vectors, by default `ark-tweets/glove.6B.50d.tweets.txt.gz` in `data_root`.
    """

    dataset = "ark-tweets/pos"
    num_labels = 25
    label = "pos_tags"
    inputs = ("tokens",)
    train_splits = ("train", "validation")
    trusted = (0.01, 0.05, 0.25)
    paper_percent: ClassVar[dict[float, float]] = {0.01: 5, 0.05: 10, 0.25: 25}
    stacks = True
    num_train_epochs = 15
    batch_size = 64
    learning_rate = 1e-3
    weight_decay = 5e-5

    def __init__(self, vectors: str | Path | None = None) -> None:
        self.vectors = vectors

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None, reduced: str | None) -> PreparedData:
        """See [`Preset`]."""
        from glc_hf.backbones import read_word_vectors

        names = label_names(train, self.label, self.num_labels)
        counts = Counter(word.lower() for words in train["tokens"] for word in words)
        # Once is not enough: what is rare is what words of the test set are that nobody has seen.
        known = (word for word, count in counts.items() if count > 1)
        tokenizer, vectors = read_word_vectors(self._vectors_file(data_root), known)
        vocabulary = tokenizer.get_vocab()
        return PreparedData(
            _windows(train, vocabulary, tokenizer.unk_token_id),
            _windows(test, vocabulary, tokenizer.unk_token_id),
            names,
            label_column="labels",
            processing_class=tokenizer,
            word_vectors=vectors,
            reduced=reduced,
        )

    @property
    def prepared_label_column(self) -> str:
        """See [`Preset`]."""
        return "labels"

    def _vectors_file(self, data_root: str | None) -> Path:
        if self.vectors is not None:
            return Path(self.vectors)
        if data_root is None or not (Path(data_root).expanduser() / _VECTORS).is_file():
            raise FileNotFoundError(
                f"preset 'twitter' needs word vectors, and there are none at {data_root or 'data_root'}/{_VECTORS}: "
                "name a file in GloVe's form with get_preset('twitter', vectors='glove.6B.50d.txt')."
            )
        return Path(data_root).expanduser() / _VECTORS

    def network(self, data: PreparedData) -> torch.nn.Module:
        """See [`Preset`]."""
        from glc_hf.backbones import WindowTaggerConfig, WindowTaggerForTokenClassification
        from glc_hf.backbones.base import label_mapping

        vectors = data.word_vectors
        config = WindowTaggerConfig(
            vocab_size=vectors.shape[0],
            embedding_size=vectors.shape[1],
            **label_mapping(data.label_names),
        )
        model = WindowTaggerForTokenClassification(config)
        model.set_word_vectors(vectors)
        return model

    def decays(self, parameter_name: str) -> bool:
        """All but the output layer."""
        return not parameter_name.startswith("classifier.")

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        """See [`Preset`]; the label of a row is that of its middle word."""
        rows = dataset.with_format("torch", columns=["input_ids", "attention_mask", "labels"])[:]
        return {name: rows[name] for name in ("input_ids", "attention_mask")}, rows["labels"][:, 1]

    def item_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Those of the middle word."""
        return logits[..., 1, :]


def _windows(dataset: Dataset, vocabulary: dict[str, int], unknown: int) -> Dataset:
    """One row for each word of each tweet: the word between its neighbours, 0 where there is none."""
    rows: dict[str, list[Any]] = {"input_ids": [], "attention_mask": [], "labels": []}
    for number, (words, tags) in enumerate(zip(dataset["tokens"], dataset["pos_tags"], strict=True)):
        if len(words) != len(tags):
            raise ValueError(f"tweet {number} has {len(words)} words and {len(tags)} tags.")
        ids = [0, *(vocabulary.get(word.lower(), unknown) for word in words), 0]
        there = [0, *[1] * len(words), 0]
        for place, tag in enumerate(tags):
            rows["input_ids"].append(ids[place : place + 3])
            rows["attention_mask"].append(there[place : place + 3])
            rows["labels"].append([IGNORED_LABEL, tag, IGNORED_LABEL])
    features = Features(
        {
            "input_ids": List(Value("int64"), length=3),
            "attention_mask": List(Value("int64"), length=3),
            "labels": List(Value("int64")),
        }
    )
    return Dataset.from_dict({name: np.array(values) for name, values in rows.items()}, features=features).with_format(
        "torch"
    )
