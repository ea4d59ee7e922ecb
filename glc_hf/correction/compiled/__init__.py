# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""
C code for the corrected loss on the CPU, compiled when it is first used.

It is used where a C compiler is found. Without one, or if anything goes wrong, PyTorch computes the same.
"""
