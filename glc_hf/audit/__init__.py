# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Which labels are wrong: every row's probability of it, the label it should have, and a page to look through."""
