# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""GLCConfig and GLCTrainer: the stages of a method, run by the Hugging Face Trainer."""
