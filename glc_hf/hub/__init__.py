# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""From a trained model to the Hub: what happened, the card that tells it, and the push."""
