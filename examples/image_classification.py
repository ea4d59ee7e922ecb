# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
r"""
Train an image classifier on noisy labels with a few trusted ones, with a network of timm or transformers.

On datasets of the Hub. The script flips 60 % of the labels and keeps 5 % of the rows as trusted:

    python examples/image_classification.py --dataset uoft-cs/cifar10 --image_column img \
        --model timm/resnet18.a1_in1k --output_dir cifar10-resnet --num_train_epochs 5 \
        --per_device_train_batch_size 64 --learning_rate 1e-3
    python examples/image_classification.py --dataset ylecun/mnist --model google/vit-base-patch16-224-in21k \
        --output_dir mnist-vit --num_train_epochs 1 --per_device_train_batch_size 32 --learning_rate 5e-5

Without arguments it trains a small timm network on the digits of scikit-learn, offline, in less than a minute;
`--tiny_vit True` trains a small vision transformer of transformers instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datasets import DatasetDict, load_dataset
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    HfArgumentParser,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    set_seed,
)

from glc_hf import CorruptionMatrix, GLCConfig, GLCTrainer, corrupt_labels, mark_trusted


@dataclass
class ScriptArguments:
    """Options besides those of `GLCConfig`."""

    dataset: str | None = None
    model: str | None = None
    image_column: str = "image"
    tiny_vit: bool = False
    noise_strength: float = 0.6
    trusted_fraction: float = 0.05


def main() -> None:
    """Load the data, add noise, train and save."""
    parser = HfArgumentParser((ScriptArguments, GLCConfig), description=__doc__)
    script, args = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    if script.dataset is None:
        data, processor, model = tiny_example(args, script)
    else:
        data = load_dataset(script.dataset)
        names = data["train"].features["label"].names
        processor = AutoImageProcessor.from_pretrained(script.model)
        model = AutoModelForImageClassification.from_pretrained(
            script.model, num_labels=len(names), id2label=dict(enumerate(names)), ignore_mismatched_sizes=True
        )

    train = mark_trusted(data["train"], fraction=script.trusted_fraction, seed=args.seed)
    noise = CorruptionMatrix.flip(model.config.num_labels, script.noise_strength, seed=args.seed)
    train = corrupt_labels(train, noise, seed=args.seed)

    def to_pixels(rows: dict[str, Any]) -> dict[str, Any]:
        images = [image.convert("RGB") for image in rows[script.image_column]]
        return {"pixel_values": processor(images, return_tensors="pt")["pixel_values"], "labels": rows["label"]}

    trainer = GLCTrainer(
        model=model,
        args=args,
        # Images are decoded on demand. The trainer keeps the flags, which the transform drops.
        train_dataset=train.with_transform(to_pixels),
        eval_dataset=data["test"].with_transform(to_pixels),
        # The image processor of a timm network is saved in the configuration of the model.
        processing_class=None if model.config.model_type == "timm_wrapper" else processor,
    )
    metrics = trainer.train().metrics
    print(f"accuracy before correction: {metrics['stage1_eval_accuracy']:.3f}")
    print(f"accuracy after correction:  {trainer.evaluate()['eval_accuracy']:.3f}")
    trainer.save_model()


def tiny_example(args: GLCConfig, script: ScriptArguments) -> tuple:
    """Load the digits of scikit-learn and create a network small enough for any machine."""
    from glc_hf.cli.digits import digits_dataset, digits_model

    data: DatasetDict = digits_dataset()
    args.save_strategy, args.per_device_train_batch_size, args.learning_rate = "no", 32, 3e-3
    if not script.tiny_vit:
        from transformers import TimmWrapperImageProcessor

        model = digits_model()
        return data, TimmWrapperImageProcessor(model.config.pretrained_cfg, model.config.architecture), model
    names = data["train"].features["label"].names
    model = ViTForImageClassification(
        ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=8,
            patch_size=2, num_labels=len(names), id2label=dict(enumerate(names)),
        )
    )  # fmt: skip
    return data, ViTImageProcessor(size={"height": 8, "width": 8}), model


if __name__ == "__main__":
    main()
