# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
Metrics for the `evaluate` library that don't need the Hub: `pip install glc_hf[experiments]`.

Each is a class, and a module that `evaluate.load` loads by path:

```python
from glc_hf.experiments.metrics import ErrorCurveArea, error_curve_area

metric = ErrorCurveArea()
metric = evaluate.load(error_curve_area.__file__)
```
"""

from __future__ import annotations


try:
    import evaluate  # noqa: F401
except ImportError as error:
    raise ImportError("the metrics need the `evaluate` library: pip install 'glc_hf[experiments]'.") from error

from glc_hf.experiments.metrics import error_curve_area, error_rate, matrix_distance
from glc_hf.experiments.metrics.error_curve_area import ErrorCurveArea
from glc_hf.experiments.metrics.error_rate import ErrorRate
from glc_hf.experiments.metrics.matrix_distance import MatrixDistance


__all__ = ["ErrorCurveArea", "ErrorRate", "MatrixDistance", "error_curve_area", "error_rate", "matrix_distance"]
