# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
A whole error curve in one training: the cells of a curve as replicas of one network, stacked.

The strengths of a curve share rows, flags, batches and initial weights; only their noisy labels, and what is estimated
from them, differ. So one pass over the batches trains them all: the network's weights carry a replica dimension, the
optimizer is element-wise, and each replica is what `GLCTrainer` would have made of its cell alone.

| module | what it holds |
| --- | --- |
| `networks`, `word_average` | the stacked networks and their gradients |
| `late_adam` | Adam for the word vectors, of which a step reads few |
| `losses` | the gradient of each method's last stage for all replicas at once |
| `training` | one stage of all replicas |
| `curve` | every stage of every method of a curve |
"""
