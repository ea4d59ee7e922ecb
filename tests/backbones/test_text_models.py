# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The networks for text against computations by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from glc_hf.backbones import WindowTaggerConfig, WindowTaggerForTokenClassification, WordAverageConfig
from tests.backbones.networks import MODELS, make


IDS = torch.tensor([[4, 7, 9, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 0, 0]])


def test_average_is_over_the_words_without_padding() -> None:
    model = make("glc_word_average")
    vectors = model.embeddings.weight
    expected = model.classifier((vectors[4] + vectors[7] + vectors[9]) / 3)
    torch.testing.assert_close(model(IDS, MASK).logits[0], expected)
    torch.testing.assert_close(model(IDS).logits[0], expected)
    # Masked words are ignored.
    masked = torch.tensor([[4, 7, 9, 5, 6]])
    torch.testing.assert_close(model(masked, MASK).logits[0], expected)


def test_sum_can_be_divided_by_a_fixed_number() -> None:
    model = make("glc_word_average")
    vectors = model.embeddings.weight
    model.config.divide_by = 30
    expected = model.classifier((vectors[4] + vectors[7] + vectors[9]) / 30)
    torch.testing.assert_close(model(IDS, MASK).logits[0], expected)
    with pytest.raises(ValueError, match="divide_by must be a positive integer, got 0"):
        type(model)(WordAverageConfig(divide_by=0))


@pytest.mark.parametrize("name", ["glc_word_average", "glc_lstm"])
def test_text_without_words_has_the_zero_vector(name: str) -> None:
    model = make(name).eval()
    logits = model(torch.zeros(2, 4, dtype=torch.long)).logits
    torch.testing.assert_close(logits, model.classifier.bias.expand(2, -1))
    logits.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_lstm_ignores_padding_on_either_side() -> None:
    model = make("glc_lstm").eval()
    short = model(IDS[:, :3]).logits
    by_hand, _ = model.lstm(model.embeddings(IDS[:, :3]))
    torch.testing.assert_close(short, model.classifier(by_hand[:, -1]))
    for ids, mask in [
        (IDS, MASK),  # padding after the words
        (IDS.flip(1)[:, [0, 1, 4, 3, 2]], torch.tensor([[0, 0, 1, 1, 1]])),  # padding before the words
        (torch.tensor([[4, 7, 9, 5, 6]]), MASK),
    ]:
        torch.testing.assert_close(model(ids, mask).logits, short)
    assert not torch.allclose(model(torch.tensor([[9, 7, 4]])).logits, short)


def test_lstm_has_dropout_before_the_output_layer() -> None:
    model = make("glc_lstm").train()
    torch.manual_seed(0)
    first = model(IDS).logits
    assert model.dropout.p == 0.2
    assert any(not torch.equal(first, model(IDS).logits) for _ in range(20))


def test_window_is_the_word_and_its_neighbors() -> None:
    model = make("glc_window_tagger").eval()
    vectors, zero = model.word_vectors, torch.zeros(8)
    windows = [
        torch.cat([zero, vectors[4], vectors[7]]),
        torch.cat([vectors[4], vectors[7], vectors[9]]),
        torch.cat([vectors[7], vectors[9], zero]),
    ]
    expected = model.classifier(F.gelu(model.layers[1](F.gelu(model.layers[0](torch.stack(windows))))))
    torch.testing.assert_close(model(IDS, MASK).logits[0, :3], expected)
    torch.testing.assert_close(model(IDS).logits[0, :3], expected)
    torch.testing.assert_close(model(IDS[:, :3]).logits[0], expected)
    torch.testing.assert_close(model(torch.tensor([[4, 7, 9, 5, 6]]), MASK).logits[0, :3], expected)


def test_row_of_one_window_gives_the_same_logits_as_the_whole_text() -> None:
    model = make("glc_window_tagger").eval()
    whole = model(IDS[:, :3]).logits[0]
    rows = torch.tensor([[0, 4, 7], [4, 7, 9], [7, 9, 0]])
    torch.testing.assert_close(model(rows).logits[:, 1], whole)


def test_word_vectors_are_frozen_by_default() -> None:
    model_class, known = MODELS["glc_window_tagger"][1:]
    frozen = make("glc_window_tagger")
    assert "word_vectors" in frozen.state_dict()
    assert "word_vectors" not in dict(frozen.named_parameters())
    trained = model_class(WindowTaggerConfig(**{**known.to_dict(), "train_vectors": True}))
    trained(IDS, MASK, labels=torch.tensor([[0, 1, 2, -100, -100]])).loss.backward()
    assert trained.word_vectors.grad[[4, 7, 9]].abs().sum() > 0
    assert trained.word_vectors.grad[0].abs().sum() == 0


def test_set_word_vectors_keeps_padding_at_zero() -> None:
    model = make("glc_window_tagger")
    given = torch.randn(30, 8)
    model.set_word_vectors(given)
    assert torch.equal(model.word_vectors[1:], given[1:])
    assert model.word_vectors[0].abs().sum() == 0
    with pytest.raises(ValueError, match="30 words × 8 dimensions"):
        model.set_word_vectors(torch.randn(30, 9))


def test_even_window_size_raises() -> None:
    with pytest.raises(ValueError, match="window_size must be odd, got 4"):
        WindowTaggerForTokenClassification(WindowTaggerConfig(window_size=4))


def test_tagger_activation_can_be_chosen() -> None:
    torch.manual_seed(0)
    model = WindowTaggerForTokenClassification(
        WindowTaggerConfig(vocab_size=6, embedding_size=4, window_size=1, hidden_sizes=[5, 3], hidden_act="relu")
    )
    words = torch.tensor([[1, 2, 5]])
    hidden = model.word_vectors[words]
    for layer in model.layers:
        hidden = layer(hidden).clamp(min=0)
    torch.testing.assert_close(model(words).logits, model.classifier(hidden))
    with pytest.raises(ValueError, match="hidden_act must be one of gelu, relu, got 'tanh'"):
        WindowTaggerForTokenClassification(WindowTaggerConfig(hidden_act="tanh"))


def test_default_sizes_are_those_of_the_paper() -> None:
    assert (WordAverageConfig().vocab_size, WordAverageConfig().embedding_size) == (10_000, 100)
    lstm = MODELS["glc_lstm"][1].config_class()
    assert (lstm.vocab_size, lstm.embedding_size, lstm.hidden_size, lstm.classifier_dropout) == (5_000, 50, 64, 0.2)
    mlp = MODELS["glc_mlp"][1].config_class()
    assert (mlp.image_size, mlp.num_channels, mlp.hidden_sizes) == (28, 1, [256])
    tagger = WindowTaggerConfig()
    assert (tagger.window_size, tagger.embedding_size) == (3, 50)
    assert (tagger.hidden_sizes, tagger.hidden_act) == ([256], "gelu")
