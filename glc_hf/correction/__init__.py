# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The mathematics of the paper on tensors alone: the corrected loss and the estimators of the corruption matrix.

| module | what it holds |
| --- | --- |
| `loss` | the corrected cross-entropy, on top of `likelihood` and `transposed` |
| `estimate` | the matrix from whole arrays |
| `accumulators`, `anchor`, `temperature` | the same batch by batch, mergeable across processes |
| `base_rates`, `missing` | what is done to an estimate afterwards |
| `posterior` | which true class a given label stands for |
"""
