# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Every example runs unchanged and offline, and gives the results that it promises."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import datasets
import pytest
import transformers
from transformers import pipeline

from glc_hf import GLCConfig, GLCTrainer
from glc_hf.cli.digits import DIGITS_NAMES, digits_dataset


EXAMPLES = Path(__file__).parents[2] / "examples"
COMMON = ["--report_to", "none", "--disable_tqdm", "True"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run an example in this process, in an empty folder."""

    def run_example(
        name: str, *argv: str, matrix: str = "corruption_matrix.json", weights: str = "model.safetensors"
    ) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, "--output_dir", "out", *argv])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        assert (tmp_path / "out" / weights).is_file()
        assert (tmp_path / "out" / matrix).is_file()
        return capsys.readouterr().out

    return run_example


def _accuracies(out: str) -> tuple[float, float]:
    return tuple(float(re.search(rf"accuracy {when} correction: +([\d.]+)", out)[1]) for when in ("before", "after"))


def test_text_classification(run) -> None:
    out = run("text_classification.py", *COMMON)
    before, after = _accuracies(out)
    assert after > 0.9 > before
    assert len(re.findall(r"^[01]\.\d\d  \w+ → \w+: ", out, re.MULTILINE)) == 3


def test_image_classification_with_a_timm_network(run) -> None:
    before, after = _accuracies(run("image_classification.py", "--num_train_epochs", "2", *COMMON))
    assert after > 0.8 > before


def test_image_classification_with_a_transformers_network(run, tmp_path: Path) -> None:
    # Such a small transformer learns little in ten steps; the test checks that it runs and that the model loads.
    run("image_classification.py", "--tiny_vit", "True", "--max_steps", "10", *COMMON)
    digit = digits_dataset()["test"][0]["image"]
    answers = pipeline("image-classification", model=str(tmp_path / "out"))(digit, top_k=10)
    assert {answer["label"] for answer in answers} == set(DIGITS_NAMES)


def test_token_classification(run) -> None:
    _, after = _accuracies(run("token_classification.py", *COMMON))
    assert after > 0.95


def test_own_csv(run, tmp_path: Path) -> None:
    out = run("own_csv.py", *COMMON)
    issues, total = re.search(r"(\d+) of (\d+) labels look wrong", out).groups()
    lines = (tmp_path / "out" / "reviews.csv").read_text().splitlines()[1:]
    wrong = sum(bool(re.search("great|lovely|fine", line)) != (",good," in line) for line in lines)
    assert (int(issues), total) == (pytest.approx(wrong, abs=5), "300")
    first = (tmp_path / "out" / "labels_to_check.csv").read_text().splitlines()
    assert first[0] == "text,given_label,suggested_label,is_label_issue,label_score"


def _sources(out: str) -> list[str]:
    """The sources in the printed table, in its order."""
    return [line.split()[0] for line in out.splitlines() if re.match(r"\w+ +\d+ \(\d+%\)", line)]


def test_llm_and_rules(run, tmp_path: Path) -> None:
    out = run("llm_and_rules.py", *COMMON, matrix="corruption_matrices.json")
    assert _sources(out) == ["rule", "gpt", "llama"]
    assert "billing → account 4" in out  # an error of `llama`
    ways = {name: float(share) for name, share in re.findall(r"^ +([\w ]+): ([\d.]+)%", out, re.MULTILINE)}
    assert ways["training on the votes of all sources"] > ways["training on the majority vote"]
    assert float(re.search(r"accuracy on the test split: ([\d.]+)", out)[1]) > 0.95
    # A file, with the network that the first run wrote.
    words = {"billing": "invoice", "delivery": "parcel", "account": "login"}
    lines = ["text,gpt,rule,label,trusted"]
    for row, (name, word) in enumerate(list(words.items()) * 40):
        known = row % 4 == 0
        rule = "billing" if name == "billing" else ""
        lines.append(f"my {word} {row},{name if row % 5 else 'account'},{rule},{name if known else ''},{known}")
    (tmp_path / "tickets.csv").write_text("\n".join(lines))
    argv = ["--csv", "tickets.csv", "--source_columns", "gpt", "rule", "--model", "out/tiny-network"]
    out = run("llm_and_rules.py", *argv, "--max_steps", "4", *COMMON, matrix="corruption_matrices.json")
    assert _sources(out) == ["rule", "gpt"]


def test_lora_llm(run) -> None:
    pytest.importorskip("peft")
    before, after = _accuracies(run("lora_llm.py", *COMMON, weights="adapter_model.safetensors"))
    assert after > 0.8 > before


def test_existing_script(run) -> None:
    out = run("existing_script.py")
    assert ast.literal_eval(out.splitlines()[-1])["eval_accuracy"] > 0.95


def test_existing_script_differs_from_a_plain_one_in_four_lines() -> None:
    lines = (EXAMPLES / "existing_script.py").read_text().splitlines()
    assert sum(line.rpartition("#")[2].strip().startswith("glc_hf") for line in lines if "  # glc_hf" in line) == 4


def test_quickstart_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "disable_progress_bars", lambda: None)  # would stay off for other tests
    monkeypatch.setattr(transformers.logging, "disable_progress_bar", lambda: None)
    matplotlib.use("Agg")
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict = {}
    for cell in code:
        exec("".join(cell["source"]), names)
    plain, corrected, checked = names["accuracy"].values()
    assert plain < 0.6 < 0.8 < corrected <= checked
    assert names["trainer"].verdict.sentence.startswith("Correction helps")
    wrong = names["given"] != names["true"]
    assert wrong[names["issues"]].mean() > 0.85
    assert sum(names["cleaned"]["trusted"]) == 160
    assert (tmp_path / "better-model" / "corruption_matrix.json").is_file()
    # The stored outputs are those of a whole run, in order, with three pictures, and without errors or paths.
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert not any(output["output_type"] == "error" or output.get("name") == "stderr" for output in outputs)
    assert not re.search(r"/(home|root|tmp|Users)/", json.dumps(outputs))


SCRIPT = '''
"""A Trainer and its TrainingArguments."""
from dataclasses import dataclass
import transformers
from transformers import (
    AutoConfig,
    HfArgumentParser as Parser,
    Trainer,  # Trainer
    TrainingArguments,
)
from transformers.utils import check_min_version

@dataclass
class DataTrainingArguments:
    note: str = "ä Trainer"

def main():
    parser = Parser((DataTrainingArguments, TrainingArguments))  # TrainingArguments
    data, args = parser.parse_args_into_dataclasses()
    names = [name for name in ("text", "trusted", "label") if name != "label"]
    _, trainer = "ä", (data, args, Trainer, names, transformers.Trainer, AutoConfig)
    return trainer
'''


def test_two_names_of_a_script_of_transformers_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "transformers_scripts.py"))
    changed = example["edit_glue"](example["change_names"](SCRIPT))
    before, after = SCRIPT.splitlines(), changed.splitlines()
    assert after[0:4] == before[0:4]
    assert after[4:6] == [
        "from transformers import (AutoConfig, HfArgumentParser as Parser)",
        "from glc_hf import GLCConfig, GLCTrainer",
    ]
    same = [(old, new) for old, new in zip(before[10:], after[6:], strict=True) if old != new]
    assert [new for _, new in same] == [
        "    parser = Parser((DataTrainingArguments, GLCConfig))  # TrainingArguments",
        '    names = [name for name in ("text", "trusted", "label") if name not in ("label", "trusted")]',
        '    _, trainer = "ä", (data, args, GLCTrainer, names, transformers.Trainer, AutoConfig)',
    ]
    monkeypatch.setattr(sys, "argv", ["script.py", "--output_dir", str(tmp_path), "--method", "glc"])
    scope: dict = {"__name__": "script"}
    monkeypatch.setitem(sys.modules, "script", ModuleType("script"))
    exec(compile(changed, "script.py", "exec"), scope)
    _, args, trainer, names, *_ = scope["main"]()
    assert (type(args), trainer, names) == (GLCConfig, GLCTrainer, ["text"])
    with pytest.raises(ValueError, match="does not import TrainingArguments from transformers"):
        example["change_names"]("from transformers import Trainer\n")
    with pytest.raises(ValueError, match="run_glue.py has changed"):
        example["edit_glue"](changed)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_docstring_has_the_command_for_a_dataset_of_the_hub(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    command = re.search(rf"python examples/{path.name} --(dataset|csv|scripts) \S+", text)
    assert command
    assert "--output_dir" in text
