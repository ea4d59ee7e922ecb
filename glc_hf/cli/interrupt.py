# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Ctrl-C in the middle of a training: a checkpoint is written before the run ends, so that nothing is lost."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from typing import Any

from transformers import TrainerCallback


class SaveOnInterrupt(TrainerCallback):
    """
    The first Ctrl-C ends the run after the step it came in, with a checkpoint; the second at once.

    With several processes, which do not all hear of it in the same step, and where no checkpoints are wanted, Ctrl-C
    does what it always does.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listens."""
        self.asked = False
        alone = args.world_size == 1 and threading.current_thread() is threading.main_thread()
        if alone and args.save_strategy != "no":
            self.before = signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: Any) -> None:
        if self.asked:
            self._stop()
        self.asked = True
        print("\nwriting a checkpoint before stopping; Ctrl-C again stops at once.", file=sys.stderr, flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Asks for a checkpoint."""
        if self.asked:
            control.should_save = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """It is written: stop."""
        if self.asked:
            self._stop()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Listens no longer."""
        if self.asked:
            self._stop()
        self._restore()

    def _stop(self) -> None:
        self._restore()
        raise KeyboardInterrupt

    def _restore(self) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            self.before = None


def how_to_go_on(argv: list[str]) -> str:
    """What to type after an interrupted `glc-hf train`."""
    flag = "--resume_from_checkpoint"
    resumes = any(word.replace("-", "_").startswith("__resume_from_checkpoint") for word in argv)
    command = shlex.join(["glc-hf", "train", *argv, *([] if resumes else [flag, "True"])])
    return f"Go on from the last checkpoint with:\n{command}"
