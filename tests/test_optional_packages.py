# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Without matplotlib and rich: import, training, saving, cards and the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from glc_hf import CorruptionMatrix, GLCTrainer
from glc_hf.cli import terminal
from glc_hf.cli.main import main
from glc_hf.experiments.results import append_results
from glc_hf.hub.model_card import CARD_FILE, PICTURE_FILE
from tests.experiments.made_up import curve
from tests.forked_python import python
from tests.training.tiny import bert, config, noisy_text_rows


PACKAGES = ("matplotlib", "rich")


@pytest.fixture
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the optional packages were not installed. `None` in `sys.modules` makes an import fail."""
    known = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    for name in (*PACKAGES, *known):
        monkeypatch.setitem(sys.modules, name, None)


def test_import_and_help_work_in_a_new_process() -> None:
    code = (
        f"import sys; packages = {PACKAGES!r}\n"
        "known = [name for name in sys.modules if name.partition('.')[0] in packages]\n"
        "sys.modules.update(dict.fromkeys([*packages, *known]))\n"
        "import glc_hf, glc_hf.training.trainer, glc_hf.experiments.plots, glc_hf.experiments.tables\n"
        "from glc_hf.cli.main import main\n"
        "sys.exit(main(['--help']))"
    )
    done = subprocess.run([python(), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "glc-hf COMMAND" in done.stdout


@pytest.mark.usefixtures("_not_installed")
def test_trained_model_is_saved_with_a_card_without_picture(tmp_path) -> None:
    settings = config(tmp_path, method="glc", max_steps=2, save_strategy="no")
    trainer = GLCTrainer(bert(), settings, train_dataset=noisy_text_rows())
    trainer.train()
    (tmp_path / PICTURE_FILE).write_bytes(b"of an earlier run")
    trainer.save_model()
    card = (tmp_path / CARD_FILE).read_text(encoding="utf-8")
    assert "## Label noise" in card
    assert ".png" not in card
    assert not (tmp_path / PICTURE_FILE).exists()
    assert CorruptionMatrix.from_pretrained(tmp_path) == trainer.corruption_matrix


@pytest.mark.usefixtures("_not_installed")
def test_plot_names_the_extra_to_install() -> None:
    with pytest.raises(ImportError, match=r"pip install 'glc_hf\[plots\]'"):
        CorruptionMatrix.uniform(3, 0.4).plot()


@pytest.mark.usefixtures("_not_installed")
def test_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal.print_table("classes", [("cat", "1"), ("horse", "20")], header=("class", "rows"))
    terminal.print_styled("warning", "yellow", "two rows")
    with terminal.spinner("reading"):
        print("read")
    assert capsys.readouterr().out == "class  rows\ncat    1\nhorse  20\nwarning two rows\nread\n"


@pytest.mark.usefixtures("_not_installed")
def test_command_trains_with_plain_lines(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code = main(["train", "--max_steps", "2", "--output-dir", str(tmp_path / "digits"), "--save_strategy", "no"])
    output = capsys.readouterr()
    assert code == 0, output.err
    assert "accuracy after correction: " in output.out
    assert (tmp_path / "digits" / CARD_FILE).is_file()
    assert not (tmp_path / "digits" / PICTURE_FILE).exists()


@pytest.mark.usefixtures("_not_installed")
def test_table_of_a_sweep_is_plain_text(tmp_path, capsys) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, curve(2, 6.6, trusted=0.001))
    assert main(["table", str(path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("mnist: area under the error curve, percent\n")
    assert "4.3 (3.4)" in output


@pytest.mark.usefixtures("_not_installed")
def test_plot_command_names_the_extra_to_install(tmp_path, capsys) -> None:
    path = tmp_path / "results.jsonl"
    append_results(path, curve(2, 6.6, trusted=0.001))
    assert main(["plot", str(path), "--output", str(tmp_path)]) == 2
    assert "pip install 'glc_hf[plots]'" in capsys.readouterr().err
