# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""The pages of the documentation site: their code runs, their commands parse, and the site has all of them."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset, load_dataset
from transformers import LlamaForSequenceClassification

import glc_hf
from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer
from glc_hf.cli.main import COMMANDS
from tests.audit.test_label_studio import annotated
from tests.test_readme import PAGES, ROOT, blocks, commands, shell_lines
from tests.training.test_decoders import decoder
from tests.training.tiny import bert, config, noisy_text_rows


EXPORTED = set(glc_hf.__all__) - {"__version__"}
# Its commands need the modules that the page describes: test_extending.py runs them.
OWN_METHODS = "docs/extending.md"
# The new pages with Python, which is run below. That of the others is run here, by test_readme.py (guide),
# test_sources_page.py, test_extending.py and training/test_trainer_promises.py.
RUN_HERE = {
    "docs/api.md", "docs/concepts.md", "docs/howto/csv.md", "docs/howto/lora.md", "docs/howto/push.md",
    "docs/howto/tokens.md", "docs/moving/cleanlab.md", "docs/moving/label-models.md",
}  # fmt: skip


def _run(page: str, **names: object) -> dict[str, object]:
    """Run the Python of a page, one block after the other, and return its names."""
    found = blocks("python", page)
    assert found
    for block in found:
        exec(block, names)
    return names


def test_the_page_about_csv_files_reads_other_delimiters_and_encodings(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ("text;label;trusted", "caf\xe9;Good ;x", "no label;;", "not checked;good;")
    Path("reviews.csv").write_bytes("\n".join(lines).encode("cp1252"))
    data = _run("docs/howto/csv.md", load_dataset=load_dataset)["data"]
    expected = [("café", "good", "yes"), ("not checked", "good", "no")]
    assert [tuple(row.values()) for row in data] == expected
    cleaned = load_dataset("csv", data_files="clean.csv", split="train")
    assert [tuple(row.values()) for row in cleaned] == expected


def test_the_page_about_adapters_loads_them_again(tmp_path: Path, monkeypatch) -> None:
    peft = pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    decoder(num_labels=4).save_pretrained("language-model")
    base = LlamaForSequenceClassification.from_pretrained("language-model")
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["q_proj"], modules_to_save=["score"])
    data = noisy_text_rows(40, num_labels=4, trusted=0.5)
    trainer = GLCTrainer(
        peft.get_peft_model(base, lora), config("ag-news-lora", stage1="probe", max_steps=3), train_dataset=data
    )
    trainer.train()
    trainer.save_model()
    loaded = _run("docs/howto/lora.md")["model"].eval()
    tokens = torch.tensor([[5, 6, 7], [8, 9, 2]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, trainer.model.eval()(tokens).logits)


def test_navigation_has_every_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2].partition("\nplugins:")[0]
    listed = sorted(re.findall(r"[\w/-]+\.md", nav))
    assert listed == sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def test_pages_link_to_pages_of_the_site_only() -> None:
    """In strict mode, mkdocs refuses links to files that are not in docs/."""
    docs = ROOT / "docs"
    for name, text in PAGES.items():
        page = ROOT / name
        if docs in page.parents:
            links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
            outside = [link for link in links if docs not in (page.parent / link).resolve().parents]
            assert not outside, name


def test_python_of_every_new_page_is_run() -> None:
    pages = [page for page in PAGES if re.match(r"docs/(howto|moving)/|docs/(index|concepts|api)\.md", page)]
    assert {page for page in pages if blocks("python", page)} == RUN_HERE


@pytest.mark.parametrize("page", sorted(page for page in PAGES if commands(page) and page != OWN_METHODS))
def test_every_command_is_accepted_by_its_parser(page: str) -> None:
    from glc_hf.cli.parsing import parse

    for name, *words in commands(page):
        if name == "train":
            parse(words)
        elif words:
            module_name, function = COMMANDS[name].path.split(":")
            module = importlib.import_module(f"glc_hf.cli.{module_name}")
            getattr(module, "parser" if function == "main" else f"{function}_parser")().parse_args(words)


def test_options_in_the_table_for_csv_files_exist() -> None:
    from glc_hf.cli.parsing import parse

    rows = re.findall(r"^\| .* \| (`--.*`) \|$", PAGES["docs/howto/csv.md"], flags=re.M)
    assert len(rows) >= 6
    for row in rows:
        options = shlex.split(" ".join(re.findall("`(.*?)`", row)))
        parse(["--dataset", "reviews.csv", "--model", "some/model", *options])


@pytest.mark.parametrize("page", sorted(page for page in PAGES if page.startswith("docs/howto/")))
def test_scripts_are_run_as_their_docstrings_say(page: str) -> None:
    for words in shell_lines(page):
        if words[0] == "python":
            docstring = ast.get_docstring(ast.parse((ROOT / words[1]).read_text(encoding="utf-8")))
            assert " ".join(words) in " ".join(docstring.replace("\\\n", " ").split())
        if "--config_file" in words:
            assert (ROOT / words[words.index("--config_file") + 1]).is_file()
    for name in re.findall(r"^\| `(\w+\.yaml)`", PAGES[page], flags=re.M):
        assert (ROOT / "examples" / "accelerate_configs" / name).is_file()


def test_landing_page_takes_its_example_from_the_readme() -> None:
    (snippet,) = re.findall(r'^--8<-- "README\.md:(\w+)"$', PAGES["docs/index.md"], flags=re.M)
    section = PAGES["README.md"].partition(f"[start:{snippet}] -->\n")[2].partition("<!-- --8<-- [end:")[0]
    assert section == f"```python\n{blocks('python')[0]}```\n"


def test_concepts() -> None:
    names = _run("docs/concepts.md")
    assert names["matrix"].noise_rates.tolist() == pytest.approx([1 / 3, 0])
    little, much = names["losses"].tolist()
    assert little == pytest.approx(np.log(3), abs=0.1)
    assert much > little + 2


def test_tokens() -> None:
    rows = _run("docs/howto/tokens.md")["rows"]
    assert sum(map(sum, rows["trusted"])) == 15
    assert rows["label"] != rows["clean_label"]


def test_push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    CorruptionMatrix([[0.7, 0.3], [0, 1]], label_names=["cat", "dog"]).save_pretrained("robust-model")
    _run("docs/howto/push.md")
    assert "cat" in capsys.readouterr().out


def test_moving_from_cleanlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    data = noisy_text_rows(120, strength=0.3)
    trained = GLCTrainer(bert(), config(tmp_path / "out", method="glc", max_steps=2), train_dataset=data)
    trained.train()
    exported = {"CorruptionMatrix": CorruptionMatrix, "GLCConfig": GLCConfig, "GLCTrainer": GLCTrainer}
    noise = CorruptionMatrix.uniform(3, 0.3).probs.T.copy()  # columns are true classes, as in cleanlab
    noise[:, 0] = [0.5, 0.5, 0.0]
    names = _run("docs/moving/cleanlab.md", trainer=trained, data=data, model=bert(), noise_matrix=noise, **exported)
    assert names["issues"]["label_score"] == sorted(names["issues"]["label_score"])
    assert names["trainer"].corruption_matrix.probs[0].tolist() == [0.5, 0.5, 0.0]


def test_cleanlab_has_the_functions_of_the_table() -> None:
    pytest.importorskip("cleanlab")
    import cleanlab.classification

    page = PAGES["docs/moving/cleanlab.md"]
    modules = [getattr(cleanlab, name) for name in ("classification", "count", "filter", "multiannotator", "rank")]
    names = set(re.findall(r"^\| `(\w+)", page, flags=re.M)) - {"cross_val_predict"}
    assert len(names) >= 6
    for name in names:
        assert any(hasattr(module, name) for module in modules), name


def test_moving_from_label_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "youtube").mkdir()
    for split, number in (("valid", 10), ("train", 30)):
        rows = {row: {"label": row % 2, "weak_labels": [row % 2, -1], "data": {"text": "a"}} for row in range(number)}
        (tmp_path / "youtube" / f"{split}.json").write_text(json.dumps(rows))
    votes = np.array([[0, -1, 1]] * 40)
    label_model = SimpleNamespace(predict_proba=lambda votes: np.full((len(votes), 2), 0.5))
    names: dict = {"GLCConfig": GLCConfig, "L_train": votes, "label_model": label_model}
    snorkel, wrench, soft = blocks("python", "docs/moving/label-models.md")
    names["data"] = Dataset.from_dict({"text": ["a"] * 40})
    exec(snorkel, names)
    assert names["data"]["votes"][0] == [0, -1, 1]
    assert len(names["config"].source_names) == 3
    exec(wrench, names)
    assert names["data"]["trusted"] == [True] * 10 + [False] * 30
    exec(soft, names)
    assert names["data"]["probs"][0] == [0.5, 0.5]
    assert names["config"].soft_label_column == "probs"


def _guide_block(text: str) -> str:
    (block,) = [block for block in blocks("python", "docs/guide.md") if text in block]
    return block


def test_guide_checks_a_dataset(capsys: pytest.CaptureFixture) -> None:
    rows = Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 1], "trusted": [True, False, False]})
    names: dict = {"train_dataset": rows, "eval_dataset": None}
    exec(_guide_block("check_dataset"), names)
    assert str(names["report"]).strip() in capsys.readouterr().out


def test_guide_names_sources() -> None:
    names: dict = {"GLCConfig": GLCConfig}
    exec(_guide_block('source_columns=["gpt_label"'), names)
    assert names["config"].source_columns == ["gpt_label", "rule_a", "anna"]


def test_guide_adds_adapters_to_a_language_model(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    def tiny_llama(name: str, num_labels: int, dtype: str) -> LlamaForSequenceClassification:
        size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        return LlamaForSequenceClassification(LlamaConfig(vocab_size=40, num_labels=num_labels, **size))

    words = Tokenizer(models.WordLevel({"x": 0, "</s>": 1}, "x"))
    names: dict = {
        "tokenizer": PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>"),
        "AutoModelForSequenceClassification": SimpleNamespace(from_pretrained=tiny_llama),
        "LoraConfig": peft.LoraConfig,
        "get_peft_model": peft.get_peft_model,
        "GLCTrainer": GLCTrainer,
        "args": config(tmp_path, method="glc", max_steps=1),
        "data": noisy_text_rows(40, num_labels=4, trusted=0.4),
    }
    exec(_guide_block("LoraConfig("), names)
    names["trainer"].train()
    assert names["trainer"].model.config.pad_token_id == 1


def test_review_page_exports_and_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = noisy_text_rows(120, strength=0.4)
    dataset = dataset.add_column("text", [f"row {row}" for row in range(len(dataset))])
    trainer = GLCTrainer(bert(), config(tmp_path / "out", method="glc"), train_dataset=dataset)
    trainer.train()
    tools, decisions = blocks("python", "docs/review.md")
    exported, _, applied = tools.partition("cleaned = ")
    names: dict = {"trainer": trainer, "dataset": dataset}
    exec(exported, names)
    tasks = json.loads((tmp_path / "tasks.json").read_text(encoding="utf-8"))
    suggested = names["audited"]["suggested_label"]
    issues = [row for row, issue in enumerate(names["audited"]["is_label_issue"]) if issue]
    answers = annotated(tasks, {row: f"class {suggested[row]}" for row in issues})
    (tmp_path / "project-3-export.json").write_text(json.dumps(answers))
    exec("cleaned = " + applied, names)
    assert len(issues) == names["cleaned"]["label_source"][:].count("reviewed") > 10
    (tmp_path / "decisions.json").write_text(json.dumps([{"row": 5, "label": "class 1"}]))
    exec(decisions, names)
    assert names["cleaned"]["label_source"][5] == "reviewed"


def test_diff_of_a_plain_script_is_that_of_the_example() -> None:
    (diff,) = blocks("diff", "docs/moving/plain-trainer.md")
    example = [line.strip() for line in (ROOT / "examples" / "existing_script.py").read_text().splitlines()]
    example = [line.partition("  #")[0] for line in example]
    kept = [line[1:].partition("  #")[0].strip() for line in diff.splitlines() if line[:1] in "+ " and line.strip()]
    assert len(kept) >= 8
    assert [line for line in kept if line not in example] == []
    assert sum(line.startswith("+") for line in diff.splitlines()) == 4


def test_reference_has_every_exported_name() -> None:
    page = PAGES["docs/api.md"]
    assert set(re.findall(r"^::: glc_hf\.(\w+)$", page, flags=re.M)) == EXPORTED
    assert set(_run("docs/api.md")) >= EXPORTED
    members = re.findall(r"^        - (\w+)$", page, flags=re.M)
    assert members
    assert all(hasattr(GLCTrainer, name) for name in members)


@pytest.fixture
def to_markdown(monkeypatch: pytest.MonkeyPatch):
    """The conversion of docstrings, without griffe, which only the environment of the site has."""
    stub = ModuleType("griffe")
    stub.Extension = stub.Object = object
    monkeypatch.setitem(sys.modules, "griffe", stub)
    return runpy.run_path(str(ROOT / "docs" / "hf_docstrings.py"))["to_markdown"]


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_docstrings_become_lists_of_their_arguments(to_markdown, name: str) -> None:
    docstring = inspect.getdoc(getattr(glc_hf, name))
    section = docstring.partition("\nArgs:\n")[2]
    documented = re.findall(r"^    (\w+)(?: \(|:)", section.partition("\n\nReturns")[0], flags=re.M)
    assert documented
    text = to_markdown(docstring)
    assert "Args:" not in text
    for argument in documented:
        assert f"- **`{argument}`**" in text, text


def test_docstrings_link_to_exported_names_only(to_markdown) -> None:
    assert to_markdown("See [`GLCConfig`] and [`~glc_hf.hub.push.PushError`].") == (
        "See [`GLCConfig`][glc_hf.GLCConfig] and `glc_hf.hub.push.PushError`."
    )
    text = to_markdown("Do.\n\nArgs:\n    > Parameters of the data\n\n    rows (`int`):\n        How many.\n\nMore.")
    assert re.split("\n\n+", text) == [
        "Do.", "**Parameters**", "*Parameters of the data*", "- **`rows`** (`int`):\n    How many.", "More.",
    ]  # fmt: skip
