# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The classification scripts of transformers with two class names changed, on noisy labels, next to the originals.

    git clone --depth 1 https://github.com/huggingface/transformers
    python examples/transformers_scripts.py --scripts transformers/examples/pytorch --output_dir scripts

In copies of the scripts, `Trainer` becomes `GLCTrainer` and `TrainingArguments` becomes `GLCConfig`, with their
import. `run_glue.py` needs a third edit. The data are made here: sentences, digits and tagged words, with small
networks, in a few minutes on a CPU. Texts and a pretrained network can be yours: `--dataset CogComp/trec --model
sentence-transformers/all-MiniLM-L6-v2`. The scripts need `evaluate`; the metrics are written here, without download.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_dataset


NAMES = {"Trainer": "GLCTrainer", "TrainingArguments": "GLCConfig"}
# `run_glue.py` takes the first two columns besides the label as a pair of sentences, and the second one is the flag.
GLUE_EDIT = ('if name != "label"]', 'if name not in ("label", "trusted")]')
COMMON = [
    "--do_train", "--do_eval", "--save_strategy", "no", "--report_to", "none", "--disable_tqdm", "True", "--seed", "0",
    "--per_device_train_batch_size", "32", "--per_device_eval_batch_size", "64",
]  # fmt: skip
TOPICS = {
    "billing": ["invoice", "charge", "refund", "price"],
    "delivery": ["parcel", "courier", "late", "address"],
    "account": ["password", "login", "name", "email"],
    "returns": ["broken", "exchange", "size", "colour"],
}
TAGS = {"O": ["went", "to", "saw", "the", "house"], "PERSON": ["Ann", "Bob", "Eve"], "TOWN": ["Rome", "Oslo", "Bonn"]}
METRIC = """
import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": %(type)s, "references": %(type)s})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        predictions, references = %(flat)s
        accuracy = sum(map(lambda pair: pair[0] == pair[1], zip(predictions, references))) / len(references)
        return dict.fromkeys(%(names)s, accuracy)
"""
FLAT = "(predictions, references)"
FLAT_LISTS = "([label for row in rows for label in row] for rows in (predictions, references))"


def change_names(source: str) -> str:
    """
    Return the source of a script with `GLCTrainer` and `GLCConfig` in place of `Trainer` and `TrainingArguments`.
    Comments and texts stay as they are.
    """
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    imports = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and node.module == "transformers"
        and not NAMES.keys().isdisjoint(alias.name for alias in node.names)
    ]
    found = {alias.name for node in imports for alias in node.names if alias.asname is None}
    missing = [name for name in NAMES if name not in found]
    if missing:
        raise ValueError(f"the script does not import {' and '.join(missing)} from transformers.")
    edits = [
        (node.lineno - 1, node.col_offset, node.id, NAMES[node.id])
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in NAMES
    ]
    for line, column, old, new in sorted(edits, reverse=True):
        text = lines[line]
        lines[line] = text[:column] + new.encode() + text[column + len(old) :]
    for node in reversed(imports):
        kept = [f"{alias.name} as {alias.asname}" if alias.asname else alias.name for alias in node.names]
        kept = [name for name in kept if name not in NAMES]
        text = f"from transformers import ({', '.join(kept)})\n" if kept else ""
        if node is imports[-1]:
            text += "from glc_hf import GLCConfig, GLCTrainer\n"
        lines[node.lineno - 1 : node.end_lineno] = [text.encode()]
    return b"".join(lines).decode()


def edit_glue(source: str) -> str:
    """The third edit of `run_glue.py`."""
    if source.count(GLUE_EDIT[0]) != 1:
        raise ValueError(
            f"run_glue.py has changed: {GLUE_EDIT[0]!r} is not there once. Edit how it finds its columns."
        )
    return source.replace(*GLUE_EDIT)


def main() -> None:
    """Run each script as it is and with the names changed, and print the accuracies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scripts", required=True, help="examples/pytorch of transformers, or a folder with the scripts"
    )
    parser.add_argument("--output_dir", default="scripts")
    parser.add_argument("--only", nargs="+", metavar="SCRIPT", help="for example run_ner.py")
    parser.add_argument("--dataset", help="texts with the columns text and label (default: made here)")
    parser.add_argument("--model", help="pretrained network for texts (default: a small one without training)")
    parser.add_argument("--trusted", type=float, default=0.1, help="share of trusted rows")
    parser.add_argument("--noise", type=float, default=0.6, help="share of wrong labels among the others")
    options = parser.parse_args()
    work = Path(options.output_dir).resolve()
    write_metrics(work)
    accuracies = {}
    for name, make in SCRIPTS.items():
        if options.only and name not in options.only:
            continue
        source = next(Path(options.scripts).expanduser().rglob(name), None)
        if source is None:
            raise SystemExit(f"there is no {name} in {options.scripts}.")
        folder = work / Path(name).stem
        folder.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8")
        (folder / "plain.py").write_text(text, encoding="utf-8")
        text = change_names(text)
        (folder / "changed.py").write_text(edit_glue(text) if name == "run_glue.py" else text, encoding="utf-8")
        arguments = make(folder, options)
        accuracies[name] = [run(folder, script, arguments) for script in ("plain", "changed")]
        print(f"{name}: Trainer {accuracies[name][0]:.3f}, GLCTrainer {accuracies[name][1]:.3f}", flush=True)
    print("\n| script | `Trainer` | `GLCTrainer` |\n| --- | --- | --- |")
    for name, (plain, changed) in accuracies.items():
        print(f"| `{name}` | {plain:.3f} | {changed:.3f} |")


def run(folder: Path, script: str, arguments: list[str]) -> float:
    """Run a script on its data and return its accuracy. `{data}` in the arguments is the folder of the data."""
    output = folder / f"{script}-model"
    command = [sys.executable, str(folder / f"{script}.py"), *COMMON, "--output_dir", str(output)]
    command += [argument.replace("{data}", str(folder / script)) for argument in arguments]
    with (folder / f"{script}.log").open("w") as log:
        # The metrics are found by their name in the working folder.
        done = subprocess.run(command, cwd=folder.parent, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{script}.py failed; see {folder / script}.log")
    return json.loads((output / "eval_results.json").read_text())["eval_accuracy"]


def write_metrics(work: Path) -> None:
    """Write the metrics of the scripts, so that they are not downloaded."""
    one, rows = 'datasets.Value("int64")', 'datasets.List(datasets.Value("string"))'
    overall = ["overall_accuracy", "overall_precision", "overall_recall", "overall_f1"]
    for name, values in {
        "accuracy": {"type": one, "flat": FLAT, "names": ["accuracy"]},
        "seqeval": {"type": rows, "flat": FLAT_LISTS, "names": overall},  # of words, and not of entities
    }.items():
        (work / name).mkdir(parents=True, exist_ok=True)
        (work / name / f"{name}.py").write_text(METRIC % values)


def add_noise(data: DatasetDict, options: argparse.Namespace, label_column: str = "label") -> DatasetDict:
    """Mark trusted rows and flip labels of the others to the next class or another one."""
    from glc_hf import CorruptionMatrix, corrupt_labels, mark_trusted

    classes = data["train"].features[label_column]
    number = (classes.feature if isinstance(classes, List) else classes).num_classes
    train = mark_trusted(data["train"], fraction=options.trusted, label_column=label_column)
    train = corrupt_labels(train, CorruptionMatrix.flip(number, options.noise), label_column=label_column)
    return DatasetDict(train=train.remove_columns("clean_label"), validation=data["test"])


def write_both(data: DatasetDict, folder: Path, write: Callable[[Dataset, Path], object], suffix: str) -> None:
    """Write the rows for the plain script without the flags, and for the changed one with them."""
    for script, train in (("plain", data["train"].remove_columns("trusted")), ("changed", data["train"])):
        (folder / script).mkdir(exist_ok=True)
        write(train, folder / script / f"train{suffix}")
        write(data["validation"], folder / script / f"validation{suffix}")


def write_named(column: str) -> Callable[[Dataset, Path], object]:
    """Return what writes rows as lines of JSON, with the names of classes."""

    def write(rows: Dataset, path: Path) -> None:
        classes = rows.features[column]
        names = (classes.feature if isinstance(classes, List) else classes).names
        with path.open("w", encoding="utf-8") as file:
            for row in rows:
                label = row[column]
                row[column] = [names[entry] for entry in label] if isinstance(label, list) else names[label]
                file.write(json.dumps(row) + "\n")

    return write


def texts(folder: Path, options: argparse.Namespace) -> tuple[Path | str, list[str]]:
    """Write noisy texts. Return the network and its settings."""
    if options.dataset is None:
        draw, common = random.Random(0), ["my", "the", "please", "is", "was", "help", "with", "a"]

        def rows(number: int) -> Dataset:
            labels = [draw.choice(list(TOPICS)) for _ in range(number)]
            sentences = []
            for label in labels:
                other = draw.choice(list(TOPICS))  # a word of another topic makes it less easy
                words = [*draw.choices(common, k=4), *draw.choices(TOPICS[label], k=2), draw.choice(TOPICS[other])]
                sentences.append(" ".join(draw.sample(words, len(words))))
            features = Features({"sentence": Value("string"), "label": ClassLabel(names=list(TOPICS))})
            return Dataset.from_dict({"sentence": sentences, "label": labels}, features=features)

        data = DatasetDict(train=rows(2000), test=rows(500))
        words = [*common, *(word for of_topic in TOPICS.values() for word in of_topic)]
    else:
        data = load_dataset(options.dataset).select_columns(["text", "label"]).rename_column("text", "sentence")
        words = []
    write_both(add_noise(data, options), folder, write_named("label"), ".json")
    if options.model is not None:
        return options.model, ["--learning_rate", "1e-4", "--num_train_epochs", "3"]
    return small_bert(folder, words), ["--learning_rate", "1e-3", "--num_train_epochs", "8"]


def small_bert(folder: Path, words: list[str]) -> Path:
    """Write a small BERT without training, with a tokenizer for these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

    set_seed(0)
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *dict.fromkeys(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32
    )
    fast.save_pretrained(folder / "network")
    network = BertConfig(
        vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=32, initializer_range=0.1,
    )  # fmt: skip
    BertModel(network).save_pretrained(folder / "network")
    return folder / "network"


def classification(folder: Path, options: argparse.Namespace) -> list[str]:
    """Data and arguments of `run_classification.py`."""
    model, settings = texts(folder, options)
    files = ["--train_file", "{data}/train.json", "--validation_file", "{data}/validation.json"]
    columns = ["--text_column_names", "sentence", "--label_column_name", "label", "--metric_name", "accuracy"]
    return ["--model_name_or_path", str(model), *files, *columns, *settings, "--max_seq_length", "32"]


def glue(folder: Path, options: argparse.Namespace) -> list[str]:
    """Data and arguments of `run_glue.py`, on the same texts."""
    model, settings = texts(folder, options)
    files = ["--train_file", "{data}/train.json", "--validation_file", "{data}/validation.json"]
    return ["--model_name_or_path", str(model), *files, *settings, "--max_seq_length", "32"]


def images(folder: Path, options: argparse.Namespace) -> list[str]:
    """Data and arguments of `run_image_classification.py`: the digits of scikit-learn."""
    from transformers import ResNetConfig, ResNetModel, ViTImageProcessor, set_seed

    from glc_hf.cli.digits import digits_dataset

    set_seed(0)
    data = add_noise(digits_dataset(), options)
    write_both(data, folder, lambda rows, path: rows.to_parquet(str(path)), "-00000-of-00001.parquet")
    network = ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic")
    ResNetModel(network).save_pretrained(folder / "network")
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "network")
    settings = ["--learning_rate", "3e-3", "--num_train_epochs", "10", "--remove_unused_columns", "False"]
    return ["--model_name_or_path", str(folder / "network"), "--dataset_name", "{data}", *settings]


def tokens(folder: Path, options: argparse.Namespace) -> list[str]:
    """Data and arguments of `run_ner.py`: tagged words."""
    draw = random.Random(0)
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=list(TAGS)))})

    def rows(number: int) -> Dataset:
        tags = [draw.choices(list(TAGS), weights=[2, 1, 1], k=draw.randint(4, 8)) for _ in range(number)]
        words = [[draw.choice(TAGS[tag]) for tag in row] for row in tags]
        return Dataset.from_dict({"tokens": words, "ner_tags": tags}, features=features)

    data = add_noise(DatasetDict(train=rows(600), test=rows(200)), options, "ner_tags")
    write_both(data, folder, write_named("ner_tags"), ".json")
    model = small_bert(folder, [word for of_tag in TAGS.values() for word in of_tag])
    files = ["--train_file", "{data}/train.json", "--validation_file", "{data}/validation.json"]
    settings = ["--learning_rate", "1e-3", "--num_train_epochs", "5"]
    return ["--model_name_or_path", str(model), *files, *settings, "--max_seq_length", "32"]


SCRIPTS = {
    "run_classification.py": classification,
    "run_glue.py": glue,
    "run_image_classification.py": images,
    "run_ner.py": tokens,
}


if __name__ == "__main__":
    main()
