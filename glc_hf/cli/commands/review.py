# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""`glc-hf review`: open the page of an audit in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path


_PAGE = "audit.html"


def main(argv: list[str]) -> int:
    """Run the command with the arguments that follow `glc-hf review`."""
    arguments = _parser().parse_args(argv)
    page = _find_page(Path(arguments.folder).expanduser())
    print(f"page: {page}")
    if not arguments.no_open and not webbrowser.open(page.resolve().as_uri()):
        print("no browser was found: open the page yourself.")
    print(
        "after you have saved the decisions, run: glc-hf apply decisions.json --dataset NAME --output cleaned.parquet"
    )
    return 0


def _find_page(folder: Path) -> Path:
    for page in (folder, folder / _PAGE, folder / "audit" / _PAGE):
        if page.is_file() and page.suffix == ".html":
            return page
    raise FileNotFoundError(
        f"there is no {_PAGE} in {folder} or {folder / 'audit'}: write it with `glc-hf audit {folder} --dataset NAME`."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="glc-hf review",
        description="Open the page of an audit in the browser. On it you keep labels, take suggestions or choose "
        "other classes, and save the decisions to a file for `glc-hf apply`. The page needs no network and no server.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of an audited model, or of the audit")
    parser.add_argument("--no-open", action="store_true", help="print the path of the page only")
    return parser
