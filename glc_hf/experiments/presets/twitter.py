# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Preset of parts of speech in tweets, with a network that sees a word and its two neighbors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import torch
from datasets import Dataset, Features, List, Value

from glc_hf.backbones import WindowTaggerConfig, WindowTaggerForTokenClassification, read_word_vectors
from glc_hf.backbones.base import label_mapping
from glc_hf.experiments.presets import register
from glc_hf.experiments.presets.base import PreparedData, Preset
from glc_hf.labels.reading import IGNORED_LABEL


_VECTORS = "ark-tweets/glove.6B.50d.tweets.txt.gz"


@register("twitter")
class Twitter(Preset):
    """
    Words of tweets with 25 parts of speech, 1,000 + 327 tweets (train and validation) to train on and 500 to test; the
    50-dimensional vectors of a word and of its two neighbors through one hidden layer of 256 units with GELU; Adam, 15
    epochs, batches of 64, learning rate 0.001, L2 5e-5 on all but the output layer.

    Every word is an example: a row holds the three words of its window, with the label in the middle. Vectors beyond
    the ends of a tweet are zero.

    The tables print 5, 10 and 25 % trusted; this uses the 1, 5 and 25 % of the code. The network is that of the text;
    the code has two hidden layers with ReLU, and L2 on all weights. The authors' vectors, trained on tweets, are not
    available. Any file in GloVe format works, but don't expect the paper's figures with it. Words missing in the file
    that occur more than once in the training set (`<@MENTION>`, links, contractions) get random vectors; any other
    unknown word gets the mean of the file's vectors.

    Args:
        vectors (`str`, *optional*):
            File of word vectors, by default `ark-tweets/glove.6B.50d.tweets.txt.gz` in `data_root`.
    """

    dataset = "ark-tweets/pos"
    num_labels = 25
    label = "pos_tags"
    inputs = ("tokens",)
    train_splits = ("train", "validation")
    prepared_label_column = "labels"
    trusted = (0.01, 0.05, 0.25)
    stacks = True
    num_train_epochs = 15
    batch_size = 64
    learning_rate = 1e-3
    weight_decay = 5e-5

    def __init__(self, vectors: str | Path | None = None) -> None:
        self.vectors = vectors

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        path = Path(self.vectors or Path(data_root or "data_root").expanduser() / _VECTORS)
        if self.vectors is None and not path.is_file():
            raise FileNotFoundError(
                f"preset 'twitter' needs word vectors, and there is no file {path}: name a file in GloVe format with "
                "get_preset('twitter', vectors='glove.6B.50d.txt')."
            )
        counts = Counter(word.lower() for words in train["tokens"] for word in words)
        # Words that occur once stay unknown, like the words of the test set that the training set doesn't have.
        tokenizer, vectors = read_word_vectors(path, (word for word, count in counts.items() if count > 1))
        names = self.label_names(train)
        train, test = (_windows(rows, tokenizer.get_vocab(), tokenizer.unk_token_id) for rows in (train, test))
        return PreparedData(train, test, names, processing_class=tokenizer, word_vectors=vectors)

    def network(self, data: PreparedData) -> torch.nn.Module:
        assert data.word_vectors is not None
        words, size = data.word_vectors.shape
        config = WindowTaggerConfig(vocab_size=words, embedding_size=size, **label_mapping(data.label_names))
        model = WindowTaggerForTokenClassification(config)
        model.set_word_vectors(data.word_vectors)
        return model

    def decays(self, parameter_name: str) -> bool:
        return not parameter_name.startswith("classifier.")

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows = dataset.with_format("torch", columns=["input_ids", "attention_mask", "labels"])[:]
        labels = rows.pop("labels")
        return rows, labels[:, 1]


def _windows(dataset: Dataset, vocabulary: dict[str, int], unknown: int) -> Dataset:
    """One row per word of each tweet: the word between its neighbors, 0 if there is none."""
    rows: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": [], "labels": []}
    for number, (words, tags) in enumerate(zip(dataset["tokens"], dataset["pos_tags"], strict=True)):
        if len(words) != len(tags):
            raise ValueError(f"tweet {number} has {len(words)} words and {len(tags)} tags.")
        ids = [0, *(vocabulary.get(word.lower(), unknown) for word in words), 0]
        mask = [0, *[1] * len(words), 0]
        for start, tag in enumerate(tags):
            rows["input_ids"].append(ids[start : start + 3])
            rows["attention_mask"].append(mask[start : start + 3])
            rows["labels"].append([IGNORED_LABEL, tag, IGNORED_LABEL])
    window = List(Value("int64"), length=3)
    features = Features(input_ids=window, attention_mask=window, labels=List(Value("int64")))
    return Dataset.from_dict(rows, features=features).with_format("torch")
