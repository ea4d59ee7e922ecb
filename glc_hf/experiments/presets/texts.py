# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Presets of texts: SST and IMDB, whole texts, and Twitter, parts of speech."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import ClassVar

import torch
from datasets import ClassLabel, Dataset, Features, List, Value

from glc_hf.backbones import (
    LSTMConfig,
    LSTMForSequenceClassification,
    WindowTaggerConfig,
    WindowTaggerForTokenClassification,
    WordAverageConfig,
    WordAverageForSequenceClassification,
    read_word_vectors,
    word_tokenizer,
)
from glc_hf.backbones.timm_network import label_mapping
from glc_hf.experiments.presets import register
from glc_hf.experiments.presets.base import PreparedData, Preset
from glc_hf.labels.reading import IGNORED_LABEL


# NLTK's English stop words at the time of the paper, which the authors' code removes. They include negations ("n't" is
# split into "n" and "t", and "n" stays).
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
_VECTORS = "ark-tweets/glove.6B.50d.tweets.txt.gz"


class TextPreset(Preset):
    """
    Whole texts as word numbers, with a vocabulary from the training set.

    Class attributes:
        vocab_size, max_length, stop_words, letters_only: Arguments of `word_tokenizer`.
    """

    vocab_size: ClassVar[int]
    max_length: ClassVar[int]
    stop_words: ClassVar[tuple[str, ...]] = ()
    letters_only: ClassVar[bool] = False

    def make_ready(self, train: Dataset, test: Dataset, data_root: str | None) -> PreparedData:
        texts = train[self.inputs[0]]
        tokenizer = word_tokenizer(texts, self.vocab_size, self.max_length, self.stop_words, self.letters_only)
        names = self.label_names(train)
        numbers = List(Value("int64"), length=self.max_length)
        features = Features(input_ids=numbers, attention_mask=numbers, label=ClassLabel(names=names))

        def tokenized(rows: Dataset) -> Dataset:
            texts = rows[self.inputs[0]][:]
            encoded = tokenizer(texts, truncation=True, padding="max_length", return_tensors="np")
            columns = {name: encoded[name] for name in ("input_ids", "attention_mask")}
            columns["label"] = rows.with_format("numpy")["label"][:]
            return Dataset.from_dict(columns, features=features).with_format("torch")

        return PreparedData(tokenized(train), tokenized(test), names, processing_class=tokenizer)

    def tensors(self, dataset: Dataset) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        rows = dataset.with_format("torch", columns=["input_ids", "attention_mask", "label"])[:]
        labels = rows.pop("label")
        return rows, labels


@register("sst")
class SST(TextPreset):
    """
    Phrases of movie reviews, 67,349 + 872 (train and validation) to train on and 1,821 reviews to test; the mean of
    100-dimensional word vectors, learned from scratch, and a linear layer; Adam, 5 epochs, batches of 50.

    Where the text and the code of the paper differ, this follows the code, which produced the figures of the tables:
    phrases (text: 6,911 whole reviews), learning rate 5e-4 (0.001), L2 1e-5 on the output layer (1e-4), no stop words
    and only letters and digits, and 0.1, 1 and 5 % trusted rows (tables: 5, 10 and 25 %). The sum of a text's vectors
    is divided by 30, the length that texts are padded to, for any number of words.
    """

    dataset = "stanfordnlp/sst2"
    num_labels = 2
    inputs = ("sentence",)
    train_splits = ("train", "validation")
    trusted = (0.001, 0.01, 0.05)
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
        words, labels = len(data.processing_class), label_mapping(data.label_names)
        config = WordAverageConfig(vocab_size=words, divide_by=self.max_length, **labels)
        return WordAverageForSequenceClassification(config)

    def decays(self, parameter_name: str) -> bool:
        return parameter_name.startswith("classifier.")


@register("imdb")
class IMDB(TextPreset):
    """
    25,000 movie reviews to train on and 25,000 to test, the first 200 words of each; an LSTM of 64 units over
    50-dimensional word vectors, learned from scratch for 5,000 words, with dropout 0.2 on the output layer; Adam, 3
    epochs, batches of 64, learning rate 0.001.

    All of this is from the paper's text: there is no code for IMDB. Choices of this preset: reviews are cut at the
    end, and how the weights are initialized (see [`LSTMForSequenceClassification`]).
    """

    dataset = "stanfordnlp/imdb"
    num_labels = 2
    inputs = ("text",)
    trusted = (0.05, 0.1, 0.25)
    num_train_epochs = 3
    batch_size = 64
    learning_rate = 1e-3
    vocab_size = 5_000
    max_length = 200

    def network(self, data: PreparedData) -> torch.nn.Module:
        config = LSTMConfig(vocab_size=len(data.processing_class), **label_mapping(data.label_names))
        return LSTMForSequenceClassification(config)


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
