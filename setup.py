# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Packages the model card's template, which lives in `model_cards/` beside the cards made from it."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithTemplate(build_py):
    """Copies the template to where an installed library looks for it; an editable one finds it in the source tree."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file("model_cards/template.md", str(Path(self.build_lib) / "glc_hf" / "hub" / "template.md"))


setup(cmdclass={"build_py": BuildWithTemplate})
