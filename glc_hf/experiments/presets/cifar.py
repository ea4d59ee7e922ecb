# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""CIFAR-10 and CIFAR-100 with a wide residual network."""

from __future__ import annotations

from typing import ClassVar

from glc_hf.experiments.preset import register
from glc_hf.experiments.presets.images import WideResNetPreset


@register("cifar10")
class CIFAR10(WideResNetPreset):
    """
    50,000 images to train on and 10,000 to test, WRN-40-2, 75 epochs of gradient descent with Nesterov momentum and a
    cosine schedule.

    The text gives no more. Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4, dropout 0.3, random
    crops from the image padded by 4 pixels, and mirroring are what such networks are commonly trained with.

    Weak labels (`noises`) come from such a network after ten epochs on clean labels, and have fractions of their own
    in the tables: `weak_trusted`.
    """

    dataset = "uoft-cs/cifar10"
    num_labels = 10
    inputs = ("img",)
    noises = ("uniform", "flip", "weak")
    trusted = (0.05, 0.1, 0.25)
    weak_trusted: ClassVar[tuple[float, ...]] = (0.01, 0.05, 0.1)
    paper_percent: ClassVar[dict[float, float]] = {0.01: 1, 0.05: 5, 0.1: 10, 0.25: 25}
    num_train_epochs = 75
    batch_size = 128
    learning_rate = 0.1
    weight_decay = 5e-4


@register("cifar100")
class CIFAR100(CIFAR10):
    """CIFAR-100, trained as [`CIFAR10`]; its 20 superclasses are the groups of hierarchical noise."""

    dataset = "uoft-cs/cifar100"
    num_labels = 100
    label = "fine_label"
    noises = ("uniform", "flip", "hierarchical", "weak")
    weak_trusted: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.25)
    paper_percent: ClassVar[dict[float, float]] = {0.05: 5, 0.1: 10, 0.25: 25}

    def groups(self, names: list[str]) -> list[int]:
        """The number of each class's superclass, in the dataset's own order."""
        found = {name: number for number, group in enumerate(SUPERCLASSES.values()) for name in group.split()}
        unknown = [name for name in names if name not in found]
        if unknown:
            raise ValueError(f"preset {self.name!r}: {', '.join(unknown[:5])} are no classes of CIFAR-100.")
        return [found[name] for name in names]


SUPERCLASSES: dict[str, str] = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
