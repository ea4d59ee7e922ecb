# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The cards in `model_cards/`: trains a model with `GLCTrainer` and writes its card with `glc-hf card`.

All of them use the method `glc`. MNIST and SST are the paper's presets (60 % of the labels flipped, 1 % trusted); TREC
is MiniLM at the defaults of `glc` (60 % flipped, 2 % trusted). `glc-hf train --method glc --seed 0` writes the card of
the digits.

    python benchmarks/cards.py mnist sst trec --data-root <folder>
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from result_files import make_parser


CARDS = Path(__file__).parents[1] / "model_cards"
STRENGTH = 0.6
SEED = 0


def preset_trainer(name: str, data_root: str | None, folder: str):
    """The trainer of one of the paper's presets."""
    from glc_hf.experiments.jobs import arguments, make_trainer, noisy_rows
    from glc_hf.experiments.presets import get_preset

    preset = get_preset(name)
    data = preset.prepare(data_root)
    rows = noisy_rows(preset, data, "flip", 0.01, STRENGTH, SEED)
    args = arguments(preset, "glc", SEED, folder, evaluate_stages=True)
    trainer = make_trainer(preset, data, rows, args, preset.make_model(data, SEED))
    trainer.model_card.add_facts(base_model=None, license="apache-2.0")
    return trainer, preset.dataset, []


def trec_trainer(data_root: str | None, folder: str):
    """MiniLM on TREC."""
    import trec

    dataset = "cogcomp/trec"
    source = dataset if data_root is None else f"{data_root}/{dataset}"
    trainer, _ = trec.make_trainer(source, "glc", SEED, STRENGTH, 0.02, {})
    trainer.args.output_dir = folder
    base = ["--base-model", "sentence-transformers/all-MiniLM-L6-v2", "--base-license", "apache-2.0"]
    return trainer, dataset, [*base, "--language", "en"]


def make_card(name: str, data_root: str | None) -> None:
    """Train, save, and write the card and its figure."""
    from glc_hf.cli.commands.card import main as card

    with tempfile.TemporaryDirectory() as scratch:
        folder = str(Path(scratch) / f"{name}-glc")
        trainer, dataset, options = (
            trec_trainer(data_root, folder) if name == "trec" else preset_trainer(name, data_root, folder)
        )
        rows = trainer.train_dataset.with_format("numpy")
        changed = int((rows["label"][:] != rows["clean_label"][:]).sum())
        noise = {"kind": "flip", "strength": STRENGTH, "changed_labels": changed, "label_accuracy": None}
        trainer.model_card.add_facts(simulated_noise=noise)
        trainer.train()
        print(name, trainer.evaluate())
        trainer.save_model(folder)
        card([folder, "--dataset", dataset, *options, "--output", str(CARDS / f"{name}.md")])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="+", choices=["mnist", "sst", "trec"])
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    for name in options.names:
        make_card(name, options.data_root)


if __name__ == "__main__":
    main()
