# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Model card: text, metadata, and what it must not contain."""

from __future__ import annotations

import getpass
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import eval_results_to_model_index, model_index_to_eval_results
from transformers.pipelines import SUPPORTED_TASKS

from glc_hf import CorruptionMatrix, GLCTrainer, __version__
from glc_hf.cli.main import main
from glc_hf.correction.sources import SourceRow
from glc_hf.hub.card_parts import SOURCES_PICTURE_FILE, draw_worst_sources
from glc_hf.hub.facts import base_model_of, measured_on, public_name, read_facts
from glc_hf.hub.model_card import PICTURE_FILE, make_card, write_card
from glc_hf.intervals import mean_interval, wilson_interval
from glc_hf.methods.matrix_files import save_matrices
from tests.training.tiny import bert, config, noisy_text_rows, text_rows, token_bert, token_collator, token_rows


ROOT = Path(__file__).parents[2]
NUMBER = r"\d[\d,]*"
FIGURE = r"\d\.\d{4}"
SHARE = r"\d+(\.\d)?%"
ACCURACY = r"\d\.\d{4} \(\d\.\d{3} to \d\.\d{3}\)"
BOUNDS = r"\d+\.\d to \d+\.\d"
CLASS = r"class [012]"
# ⏎ at the end of a line stands for one whitespace character.
CARD = rf"""---
base_model: ann/base
datasets:
- ann/reviews
library_name: transformers
license: apache-2\.0
metrics:
- accuracy
pipeline_tag: text-classification
tags:
- glc_hf
- label-noise
- gold-loss-correction
model-index:
- name: robust
  results:
  - task:
      type: text-classification
    dataset:
      name: ann/reviews
      type: ann/reviews
    metrics:
    - type: accuracy
      value: 0\.\d+
      name: accuracy
---

# robust

A model for text classification with 3 classes, fine-tuned from \[ann/base\]\(https://huggingface\.co/ann/base\)\.⏎
It was trained on noisy labels and a small number of trusted labels with Gold Loss Correction \(`glc`\) from the⏎
library `glc_hf`\.

## Training labels

Dataset: \[ann/reviews\]\(https://huggingface\.co/datasets/ann/reviews\)\. Training set: 120 rows\. Trusted⏎
\(carefully checked\) labels: 24 \(20\.0%\)\.

\| class \| rows with this label \| trusted \| estimated noise rate \(95% interval\) \|
\| --- \| --- \| --- \| --- \|
(\| {CLASS} \| {NUMBER} \| {NUMBER} \| {SHARE} \({BOUNDS}\) \|
){{3}}
## Label noise

!\[p\(noisy label \| true label\)\]\(corruption_matrix\.png\)

Rows are true classes, columns are the labels that the noisy source assigns\. The matrix was estimated during⏎
training\. Averaged over the classes, {SHARE} \(95% interval: {BOUNDS}\) of the labels are wrong\. Largest confusions:

(- {CLASS} is labeled {CLASS} in {SHARE} of its rows
){{3}}
## Evaluation

Evaluated on 60 rows, against the labels in the dataset\. Brackets contain 90% intervals\.

\| metric \| before correction \(full training on the noisy labels\) \| this model \|
\| --- \| --- \| --- \|
\| loss \| {FIGURE} \| {FIGURE} \|
\| accuracy \(60 rows\) \| {ACCURACY} \| {ACCURACY} \|

## Usage

```python
from transformers import pipeline

classifier = pipeline\("text-classification", model="robust"\)

from glc_hf import CorruptionMatrix  # optional, to inspect the label noise

matrix = CorruptionMatrix\.from_pretrained\("robust"\)
```

## Training

Base model: \[ann/base\]\(https://huggingface\.co/ann/base\) \(license: apache-2\.0\)\.
Seed 42; 16 steps \(2 epochs\) in the last stage\. Settings that differ from their defaults:

\| setting \| value \|
\| --- \| --- \|
(\| `\w+` \| [^\n]+ \|
)+
Versions: glc_hf {re.escape(__version__)}, python [\d.]+(, \w+ [\w.+]+)+\.

## Limitations

- The corruption matrix is close to singular: [^\n]*
- Few trusted rows for 1 of 3 classes: class 1 \(6\)\. [^\n]*
- The matrix describes noise per class: noise that depends on the example is averaged out\.
- The metrics are only as reliable as the labels of the evaluation set\.

## Citation

```bibtex
@inproceedings{{hendrycks2018glc,
[^`]*
```
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run with two epochs per stage, evaluated and saved after each epoch."""
    folder = tmp_path_factory.mktemp("runs") / "robust"
    settings = config(
        folder, save_strategy="epoch", eval_strategy="epoch", max_steps=-1, num_train_epochs=2, hub_token="hf_secret"
    )
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows(120), eval_dataset=text_rows(60))
    trainer.model_card.add_facts(
        dataset={"name": "ann/reviews", "on_hub": True},
        base_model={"name": "ann/base", "on_hub": True, "license": "apache-2.0"},
    )
    trainer.train()
    trainer.save_model()
    return folder


def test_card_of_a_full_run_matches_the_expected_text(run: Path) -> None:
    text = (run / "README.md").read_text(encoding="utf-8")
    pattern = CARD.replace("⏎\n", r"\s")
    # On failure, show the first line that does not match.
    lines = pattern.splitlines(keepends=True)
    matching = next((n for n in range(len(lines), 0, -1) if _matches("".join(lines[:n]), text)), 0)
    assert re.fullmatch(pattern, text), (lines[matching - 1 : matching + 1], text)


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.match(pattern, text) is not None
    except re.error:  # an open group
        return False


def test_card_contains_the_metrics_of_the_run(run: Path) -> None:
    text = (run / "README.md").read_text(encoding="utf-8")
    history = json.loads((run / "checkpoint-16" / "trainer_state.json").read_text())["log_history"]
    after = [entry["eval_accuracy"] for entry in history if "eval_accuracy" in entry][-1]
    before = [entry["stage1_eval_accuracy"] for entry in history if "stage1_eval_accuracy" in entry][-1]
    cells = [
        f"{value:.4f} ({low:.3f} to {high:.3f})"
        for value in (before, after)
        for low, high in [wilson_interval(value, 60, 0.9)]
    ]
    assert f"| accuracy (60 rows) | {cells[0]} | {cells[1]} |" in text
    matrix = CorruptionMatrix.from_pretrained(run)
    low, high = matrix.noise_rate_interval()
    for label, rate in enumerate(matrix.noise_rates):
        assert f"| {rate:.1%} ({100 * low[label]:.1f} to {100 * high[label]:.1f}) |" in text
    bounds = mean_interval(matrix.noise_rates, low, high)
    assert f"{matrix.noise_rates.mean():.1%} (95% interval: {100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" in text
    assert "`learning_rate` | 0.01 |" in text
    assert "hub_token" not in text


def test_metadata_is_valid_for_the_hub(run: Path) -> None:
    card = ModelCard.load(run / "README.md")  # raises if the model index is malformed
    data = card.data.to_dict()
    name, results = model_index_to_eval_results(data["model-index"])
    assert eval_results_to_model_index(name, results) == data["model-index"]
    assert name == "robust"
    assert [(result.metric_type, result.dataset_type) for result in results] == [("accuracy", "ann/reviews")]
    assert data["pipeline_tag"] in SUPPORTED_TASKS
    assert all(isinstance(value, (str, list)) and value for value in data.values())
    assert set(data["metrics"]) == {result.metric_type for result in results}


@pytest.mark.parametrize("file", ["README.md", "glc_summary.json", "training_args.json"])
def test_files_contain_no_paths_user_names_or_tokens(run: Path, file: str) -> None:
    text = (run / file).read_text(encoding="utf-8")
    for secret in (str(run.parent), "/tmp", str(Path.home()), "hf_secret", "More information needed", "None", "nan"):
        assert secret not in text.replace("classes", ""), secret
    assert not re.search(rf"\b{re.escape(getpass.getuser())}\b", text)


def test_every_checkpoint_of_the_last_stage_has_a_card_and_a_picture(run: Path) -> None:
    for step in (8, 16):
        folder = run / f"checkpoint-{step}"
        assert f"{step} steps" in (folder / "README.md").read_text(encoding="utf-8")
        assert (folder / "corruption_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert not list(run.glob("stage1/**/README.md"))


def test_card_command_rewrites_the_card_and_adds_facts(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (run / "README.md").read_text(encoding="utf-8")
    (run / "README.md").unlink()
    assert main(["card", str(run)]) == 0
    assert (run / "README.md").read_text(encoding="utf-8") == before
    target = tmp_path / "cards" / "reviews.md"
    options = [
        "--license",
        "mit",
        "--language",
        "en",
        "--tags",
        "reviews",
        "--dataset",
        "ann/other",
        "--name",
        "other",
    ]
    assert main(["card", str(run), "--output", str(target), *options]) == 0
    card = ModelCard.load(target)
    assert (card.data.license, card.data.language, card.data.datasets) == ("mit", "en", ["ann/other"])
    assert "reviews" in card.data.tags
    assert "(reviews.png)" in card.text
    assert (tmp_path / "cards" / "reviews.png").is_file()
    assert main(["card", str(tmp_path)]) == 2
    assert "there is no glc_summary.json" in capsys.readouterr().err


def _facts(run: Path, **changes: Any) -> dict[str, Any]:
    return {**read_facts(run), **changes}


def test_card_of_a_known_matrix_has_no_intervals(run: Path) -> None:
    text = make_card(_facts(run), CorruptionMatrix.uniform(3, 0.3)).text
    assert "| estimated noise rate |" in text
    assert text.count(" 20.0% |\n") == 3
    assert "Averaged over the classes, 20.0% of the labels are wrong." in text


def test_card_shows_the_other_methods_of_a_comparison(run: Path) -> None:
    compared = [{"method": "glc", "accuracy": 0.9}, {"method": "no_correction", "accuracy": 0.3}]
    text = make_card(_facts(run, comparison=compared), None).text
    assert "| method | accuracy (90% interval) |" in text
    assert "| `glc` (this model) | 0.9000 (0.818 to 0.947) |\n| `no_correction` | 0.3000 (0.213 to 0.404) |" in text
    assert "means nothing" not in text
    unknown = {**read_facts(run)["evaluation"], "measured_on": {}}
    text = make_card(_facts(run, comparison=compared, evaluation=unknown), None).text
    assert "| method | accuracy |" in text
    assert "| `glc` (this model) | 0.9000 |\n| `no_correction` | 0.3000 |" in text


@pytest.mark.parametrize(("best", "rows", "chance"), [(0.93, 60, True), (0.87, 60, True), (0.93, 6000, False)])
def test_card_says_if_the_difference_to_the_best_other_method_can_be_chance(
    run: Path, best: float, rows: int, chance: bool
) -> None:
    compared = [
        {"method": "no_correction", "accuracy": 0.3},
        {"method": "glc", "accuracy": 0.9},
        {"method": "trusted_only", "accuracy": best},
    ]
    evaluation = {**read_facts(run)["evaluation"], "measured_on": {"accuracy": rows}}
    text = make_card(_facts(run, comparison=compared, evaluation=evaluation), None).text
    sentence = f"best other one (`trusted_only`) means nothing on {rows:,} rows: it can be due to chance."
    assert (sentence in text) is chance


def test_card_counts_the_rows_of_each_evaluation_set_and_labels_of_tokens(tmp_path: Path) -> None:
    settings = config(tmp_path, max_steps=2, trusted_eval_fraction=0.25)
    data = noisy_text_rows(240)
    trainer = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset=text_rows(50))
    held_out = len(trainer.trusted_eval_dataset)
    assert measured_on(trainer) == ({"accuracy": 50, "trusted_accuracy": held_out}, "rows")
    several = {"easy": text_rows(20), "hard": text_rows(30)}
    trainer = GLCTrainer(bert(), settings, train_dataset=data, eval_dataset=several)
    counts = {"easy_accuracy": 20, "hard_accuracy": 30, "trusted_accuracy": held_out}
    assert measured_on(trainer) == (counts, "rows")
    stream = text_rows(20).to_iterable_dataset()
    trainer = GLCTrainer(bert(), config(tmp_path), train_dataset=data, eval_dataset=stream)
    assert measured_on(trainer).counts == {}
    tokens = token_rows(40)
    tokens = tokens.add_column("trusted", [row % 4 == 0 for row in range(40)])
    trainer = GLCTrainer(
        token_bert(), config(tmp_path), train_dataset=tokens, eval_dataset=tokens, data_collator=token_collator()
    )
    labels = sum(label != -100 for row in tokens["labels"] for label in row)
    assert measured_on(trainer) == ({"accuracy": labels}, "labels")
    trainer.train()
    trainer.evaluate()
    trainer.save_model()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert f"| accuracy ({labels:,} labels) |" in card


def test_card_lists_the_warnings_of_the_run_among_its_limitations(run: Path) -> None:
    warnings = ["no trusted row for 1 of 3 classes: a*b|c. Check.", "few trusted rows for 1 of 3 classes: d (2)."]
    text = make_card(_facts(run, warnings=warnings), None).text
    limits = text[text.index("## Limitations") :]
    assert "- No trusted row for 1 of 3 classes: a\\*b\\|c. Check.\n- Few trusted rows for 1 of 3 cl" in limits


def test_warnings_are_saved_with_the_model(tmp_path: Path) -> None:
    arguments = config(tmp_path, learning_rate=1e-9)
    trainer = GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows())
    trainer.train()
    trainer.save_model()
    assert "same row for every class" in trainer.warnings[0]
    assert read_facts(tmp_path)["warnings"] == trainer.warnings
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "- The corruption matrix has the same row for every class" in card


@pytest.mark.parametrize(
    ("stage1", "method", "name"),
    [
        ("short", "glc", "short training on the noisy labels"),
        ("full", "forward", "full training on all labels"),
    ],
)
def test_card_names_what_the_metrics_before_correction_are_of(
    tmp_path: Path, stage1: str, method: str, name: str
) -> None:
    arguments = config(tmp_path, stage1=stage1, method=method)
    trainer = GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
    trainer.train()
    trainer.evaluate()
    trainer.save_model()
    assert f"| before correction ({name}) |" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_card_names_a_linear_probe_in_stage_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    arguments = config(tmp_path, stage1="probe")
    trainer = GLCTrainer(bert(), arguments, train_dataset=noisy_text_rows(), eval_dataset=text_rows(30))
    trainer.train()
    trainer.evaluate()
    trainer.save_model()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| before correction (linear probe on pretrained features) |" in card


def test_card_states_what_is_unknown(run: Path) -> None:
    bare = _facts(
        run, evaluation=None, rows=None, base_model=None, dataset=None, task=None, arguments={}, license=None
    )
    card = make_card(bare, None)
    texts = (
        "there are no metrics",
        "was streamed",
        "trained from random initial weights",
        "have their default values",
    )
    for text in texts:
        assert text in card.text
    data = card.data.to_dict()
    assert not {"model-index", "base_model", "datasets", "metrics", "license", "pipeline_tag"} & data.keys()
    unlicensed = make_card(_facts(run, base_model={"name": "ann/base", "on_hub": True, "license": None}), None)
    assert "(license: not stated here, see its model card)" in unlicensed.text


def test_class_names_are_escaped(run: Path) -> None:
    names = ["a|b", "<script>", "*x*\ny"]
    matrix = CorruptionMatrix.uniform(3, 0.3, label_names=names)
    text = make_card(_facts(run, label_names=names), matrix).text
    assert r"| a\|b |" in text
    assert "<script>" not in text.replace(r"\<script\>", "")
    assert r"| \*x\* y |" in text


def test_card_names_the_simulated_noise(run: Path) -> None:
    noise = {"kind": "flip", "strength": 0.4, "changed_labels": 31}
    text = make_card(_facts(run, simulated_noise=noise), CorruptionMatrix.from_pretrained(run)).text
    assert "The label noise is simulated: flip, strength 0.4, 31 labels changed." in text


def test_card_contains_the_metrics_of_the_best_model_if_it_is_loaded_at_the_end(tmp_path: Path) -> None:
    settings = config(
        tmp_path / "best", save_strategy="steps", eval_strategy="steps", save_steps=2, eval_steps=2, max_steps=6,
        load_best_model_at_end=True, metric_for_best_model="accuracy", method="no_correction", learning_rate=0.1,
    )  # fmt: skip
    trainer = GLCTrainer(bert(), settings, train_dataset=text_rows(60), eval_dataset=text_rows(40, seed=3))
    trainer.train()
    facts = trainer.model_card.facts()
    assert facts["evaluation"]["step"] == trainer.state.best_global_step
    assert facts["evaluation"]["after"]["accuracy"] == trainer.state.best_metric
    measured = trainer.evaluate()["eval_loss"]
    assert trainer.model_card.facts()["evaluation"]["after"]["loss"] == measured


def test_base_model_has_its_license_but_not_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "small-base"
    bert().save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# base\n")
    model = type(bert()).from_pretrained(folder)
    assert base_model_of(model) == ("small-base", False, "mit")
    assert public_name("distilbert/distilbert-base-uncased") == ("distilbert/distilbert-base-uncased", True, None)
    assert public_name("/nowhere/ann/model") == ("model", False, None)
    assert base_model_of(bert()).name is None


def test_training_does_not_fail_if_the_card_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = GLCTrainer(bert(), config(tmp_path, max_steps=1), train_dataset=noisy_text_rows(60))
    monkeypatch.setattr("glc_hf.hub.model_card.write_card", lambda folder: 1 / 0)
    trainer.train()
    trainer.save_model()
    assert (tmp_path / "model.safetensors").is_file()
    monkeypatch.undo()
    assert ModelCard.load(write_card(tmp_path)).text


def test_committed_cards_have_metrics_and_pictures() -> None:
    cards = list((ROOT / "model_cards").glob("*.md"))
    assert cards
    for path in cards:
        card = ModelCard.load(path)
        assert card.data.to_dict()["model-index"], path
        assert f"({path.stem}.png)" in card.text
        assert path.with_suffix(".png").is_file()
        assert "/home/" not in card.content


def test_card_of_a_glc_hf_backbone_has_its_task_and_import(tmp_path: Path) -> None:
    from glc_hf.experiments.jobs import arguments, make_trainer, noisy_rows
    from tests.experiments.small_preset import SmallTexts

    preset = SmallTexts()
    data = preset.prepare()
    rows = noisy_rows(preset, data, "flip", 0.2, 0.5, 0)
    args = arguments(preset, "no_correction", 0, str(tmp_path), max_steps=1)
    trainer = make_trainer(preset, data, rows, args, preset.make_model(data, 0))
    trainer.train()
    trainer.save_model()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "import glc_hf.backbones" in card
    assert card.index("import glc_hf.backbones") < card.index('pipeline("text-classification"')


# ---------------------------------------------------------------------- sources of votes
def _sources(number: int) -> list[dict[str, Any]]:
    row = SourceRow("", 90, 0.9, 30, 25, 0.8, 0.7, 0.9, 0.8, 0.3, 0.6, 1.0, [], hurts=False)
    return [{**row.to_dict(), "name": f"anna_{n}|"} for n in range(number)]


def test_card_of_many_sources_is_short(run: Path) -> None:
    names = [f"anna_{n}|" for n in range(5000)]
    text = make_card(_facts(run, sources=_sources(5000), arguments={"source_names": names}), None, names[-2:]).text
    section = text[text.index("## Sources of labels") : text.index("## Evaluation")]
    assert section.count("\n| anna") == 20
    assert "| … 4,980 more |" in section
    assert "The picture shows anna\\_4998\\|, anna\\_4999\\|; the matrices of all 5,000 sources are in" in section
    assert "hurts" not in section
    assert "… 4,980 more …" in text[text.index("## Training\n") :]
    assert len(text) < 20_000


def test_card_without_votes_says_nothing_about_sources(run: Path) -> None:
    facts = _facts(run)
    assert facts["sources"] == []
    assert "Sources of labels" not in make_card(facts, None).text
    del facts["sources"]  # a folder of an earlier version
    assert "Sources of labels" not in make_card(facts, None).text


def test_pictures_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    matrices = {f"${name}_": CorruptionMatrix.uniform(3, 0.3) for name in "abcd"}
    save_matrices(matrices, tmp_path)
    facts = {"sources": [{**row, "name": name} for row, name in zip(_sources(4), matrices, strict=True)]}
    assert draw_worst_sources(tmp_path, facts, 50) == ["$d_", "$c_", "$b_"]
    assert (tmp_path / SOURCES_PICTURE_FILE).is_file()
    save_matrices({"label": CorruptionMatrix.uniform(3, 0.3)}, tmp_path)
    assert draw_worst_sources(tmp_path, {"sources": []}, 50) == []
    assert not (tmp_path / SOURCES_PICTURE_FILE).is_file()


def test_picture_is_drawn_once_for_the_same_matrix_and_again_for_another(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(run, tmp_path / "model")
    plot, drawn = CorruptionMatrix.plot, []
    monkeypatch.setattr(CorruptionMatrix, "plot", lambda self: drawn.append(self) or plot(self))
    matrix = CorruptionMatrix.from_pretrained(folder)
    names, counts = matrix.label_names, matrix.trusted_rows
    pictures = []
    for noise, rows in ((0.21, counts), (0.21, counts), (0.22, counts), (0.22, counts + 1)):
        CorruptionMatrix(CorruptionMatrix.uniform(3, noise).probs, names, rows).save_pretrained(folder)
        write_card(folder)
        pictures.append((folder / PICTURE_FILE).read_bytes())
    assert len(drawn) == 3
    assert pictures[0] == pictures[1]
    assert len({*pictures}) == 3
