# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
The mathematics of the paper on tensors: the corrected loss and the estimators of the corruption matrix.

| module | content |
| --- | --- |
| `likelihood` | likelihood of a noisy label: loss and gradient per item, posterior of the true class |
| `loss` | the corrected cross-entropy |
| `accumulators` | estimates that are summed batch by batch, also across processes |
| `estimators` | the matrix from whole arrays; anchors |
| `calibration` | temperature of the noisy classifier; base rates |
| `refinement` | rows of missing and rare classes; maximum likelihood by EM |
| `linear` | a linear classifier on fixed features |
| `votes_loss` | the cross-entropy with the votes of several sources |
| `sources` | what the votes of each source say about the true class: tables, weights, temperature |
"""
