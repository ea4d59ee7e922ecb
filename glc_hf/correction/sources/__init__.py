# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
What the votes of several sources say about the true class.

| module | content |
| --- | --- |
| `source_model` | `SourceModel`: tables, weights and temperature; log-likelihood and posterior |
| `vote_counts` | counts of votes on trusted items, and the tables that follow from them |
| `copies` | weights of sources that vote alike |
| `fitting` | `fit_sources` |
| `source_table` | `SourceTable`: what each source is worth, and which ones hurt |
"""

from glc_hf.correction.sources.fitting import fit_sources
from glc_hf.correction.sources.source_model import SourceModel
from glc_hf.correction.sources.source_table import SourceRow, SourceTable, judge_sources


__all__ = ["SourceModel", "SourceRow", "SourceTable", "fit_sources", "judge_sources"]
