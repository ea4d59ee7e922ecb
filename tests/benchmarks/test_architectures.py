# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A sample of `benchmarks/architectures.py`: what `Trainer` trains, `GLCTrainer` trains, with the same losses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


FOLDER = Path(__file__).parents[2] / "benchmarks"
SAMPLE = {
    "sequence classification": ["ModernBertForSequenceClassification", "BartForSequenceClassification"],
    "token classification": ["DebertaV2ForTokenClassification", "Qwen2ForTokenClassification"],
    "multiple choice": ["RobertaForMultipleChoice"],
    "image classification": ["ConvNextForImageClassification", "SwinForImageClassification"],
    "audio classification": ["Wav2Vec2ForSequenceClassification"],
    "video classification": ["VideoMAEForVideoClassification"],
}


@pytest.fixture(scope="module")
def architectures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import architectures

        yield architectures
    for name in ("architectures", "tiny_models", "result_files"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("mapping", "class_name"), [(key, name) for key, names in SAMPLE.items() for name in names])
def test_glc_trainer_trains_what_trainer_trains(architectures, mapping, class_name):
    from tiny_models import architectures as all_of

    model_type = next(model_type for model_type, name in all_of(mapping) if name == class_name)
    result = architectures.train_all(mapping, model_type, class_name)
    assert (result["trainer"], result["no_correction"], result["glc"]) == (True, True, True), result
    assert result["loss_difference"] < 2e-5
    assert result["probe"] is True or (mapping == "multiple choice" and architectures.NO_PROBE in result["probe"])


def test_a_model_that_fails_is_reported_with_the_reason(architectures, monkeypatch):
    import tiny_models

    monkeypatch.setattr(tiny_models, "tiny_model", lambda *names: 1 / 0)
    result = architectures.train_all("multiple choice", "bert", "BertForMultipleChoice")
    assert result["built"] == "ZeroDivisionError: division by zero"
    assert "trainer" not in result


def test_committed_results_have_no_architecture_where_glc_trainer_is_behind(architectures):
    runs = architectures.read_runs(architectures.RESULTS)
    assert len(runs) >= 300
    assert architectures.behind() == []
    assert max(run.get("loss_difference", 0) for run in runs) < 2e-5
    trained = sum(run.get("trainer") is True for run in runs)
    assert f"[{trained} architectures]" in (FOLDER.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_committed_results_have_every_architecture_of_this_version(architectures):
    import transformers
    from tiny_models import MAPPINGS
    from tiny_models import architectures as all_of

    runs = architectures.read_runs(architectures.RESULTS)
    if {run["transformers"] for run in runs} != {transformers.__version__}:
        pytest.skip("the results are of another version of transformers")
    expected = {(mapping, *names) for mapping in MAPPINGS for names in all_of(mapping)}
    assert {(run["mapping"], run["model_type"], run["class"]) for run in runs} == expected
