# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Training all strengths of an error curve at once, as stacked replicas of one network.

The strengths of a curve share rows, flags, batches and initial weights; only the noisy labels, and what is estimated
from them, differ. So one pass over the batches trains all of them: the weights have a replica dimension, the optimizer
is element-wise, and each replica equals what `GLCTrainer` gives for its run alone.
"""
