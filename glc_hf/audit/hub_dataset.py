# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""Push of an audit to the Hub: a dataset with a card."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from huggingface_hub import CommitInfo, DatasetCard, DatasetCardData, HfApi

from glc_hf.audit.annotation_tools import classes_of
from glc_hf.audit.dataset_file import write_dataset
from glc_hf.audit.findings import COLUMNS, GIVEN, IS_ISSUE, P_WRONG, SCORE, SUGGESTED, Findings
from glc_hf.correction.verdict import Verdict
from glc_hf.hub.card_parts import code, escape, hub_link, one_line
from glc_hf.hub.facts import public_name
from glc_hf.hub.push import PushError, explain, print_address, push_folder, read_timeout
from glc_hf.labels.storage import column_in_order, is_list_type


_TAGS = ["glc_hf", "label-noise", "label-audit"]
_SHARD_BYTES = 500_000_000
_SHOWN_CORRECTIONS = 10
_MEANINGS = {
    GIVEN: "the label in the data; -100: no label",
    SUGGESTED: "the most probable label",
    P_WRONG: "the probability that the given label is wrong; 0 for trusted labels",
    IS_ISSUE: "whether another label is more probable than the given one",
    SCORE: "the probability that the given label is right, 1 − `p_wrong`",
}


def push_audit(
    audited: Dataset,
    repo_id: str,
    findings: Findings | None = None,
    model: str | Path | None = None,
    dataset: str | Path | None = None,
    verdict: Verdict | None = None,
    warnings: Sequence[str] = (),
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Label audit",
) -> CommitInfo:
    """
    Push an audit to the Hub as a dataset with a card, in one commit, and print the address. The dataset has the
    columns of the audited rows and those of the audit, no others; leave out columns that are not to be published with
    `audited.remove_columns`. An earlier audit in the repository is replaced.

    Args:
        audited (`Dataset`): The result of [`GLCTrainer.audit`].
        repo_id (`str`): Dataset repository, created if needed, for example `"ann/reviews-audit"`.
        findings ([`Findings`], *optional*): Those of `glc-hf audit`, with what is known about the number of wrong
            labels. By default they are read from the columns of the audit.
        model, dataset (`str`, *optional*): Hub id or folder of the model and of the audited rows, for the card.
        verdict ([`Verdict`], *optional*): `trainer.verdict`, for the card.
        warnings (`Sequence[str]`, *optional*): `trainer.warnings`, for the card.
        private (`bool`, *optional*): Whether only you can see the repository. A public one that exists is refused.
        token, revision, commit_message (`str`, *optional*): As in `Dataset.push_to_hub`.

    Raises:
        [`glc_hf.hub.push.PushError`]: The push failed; the message explains the cause.
    """
    for name in COLUMNS:
        if name not in audited.column_names:
            raise ValueError(f"there is no column {name!r}: push the result of `trainer.audit`.")
    findings = Findings.of(audited, classes_of(audited)) if findings is None else findings
    try:
        with tempfile.TemporaryDirectory(prefix="glc_hf-audit-") as folder, read_timeout():
            api = HfApi()
            address = api.create_repo(repo_id, repo_type="dataset", private=private, token=token, exist_ok=True)
            repo_id = address.repo_id
            known = api.repo_info(repo_id, repo_type="dataset", revision=revision, token=token)
            if private and not known.private:
                raise PushError(
                    f"the audit was not pushed: the dataset repository {repo_id} exists and is public. Make it "
                    "private on the Hub, or name another one."
                )
            written = _write_shards(audited, Path(folder))
            card = audit_card(audited, findings, repo_id, model, dataset, verdict, warnings)
            card.save(Path(folder) / "README.md")
            stale = [
                file.rfilename
                for file in getattr(known, "siblings", None) or ()
                if file.rfilename.startswith("data/train-")
            ]
            commit = push_folder(
                folder,
                repo_id,
                commit_message,
                token=token,
                revision=revision,
                excluded=(),
                repo_type="dataset",
                removed=sorted({*stale} - {*written}),
            )
    except PushError:
        raise
    except Exception as error:
        raise PushError(f"the audit was not pushed to the dataset repository {repo_id}: {explain(error)}.") from error
    assert isinstance(commit, CommitInfo)  # `push_folder` waits
    print_address(commit)
    return commit


def _write_shards(audited: Dataset, folder: Path) -> list[str]:
    """Write the rows to Parquet files as `Dataset.push_to_hub` names them, and return their names."""
    number = max(1, math.ceil((audited.data.nbytes or 0) / _SHARD_BYTES))
    number = max(1, min(number, len(audited)))
    names = [f"data/train-{index:05d}-of-{number:05d}.parquet" for index in range(number)]
    for index, name in enumerate(names):
        shard = audited.shard(number, index, contiguous=True) if number > 1 else audited
        write_dataset(shard, folder / name)
    return names


def audit_card(
    audited: Dataset,
    findings: Findings,
    repo_id: str,
    model: str | Path | None = None,
    dataset: str | Path | None = None,
    verdict: Verdict | None = None,
    warnings: Sequence[str] = (),
) -> DatasetCard:
    """Return the card of an audit: counts, corrections, verdict, columns and how to use them. The arguments are those
    of [`push_audit`]."""
    lists = is_list_type(column_in_order(audited, GIVEN).type)
    data = DatasetCardData(
        pretty_name=f"Label audit of {_public_text(dataset)}" if dataset else "Label audit",
        tags=_TAGS,
        configs=[{"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*"}]}],
    )
    total = findings.total_wrong
    share = f", {total.expected / len(findings):.1%} of all" if len(findings) else ""
    counts = {
        "rows": f"{len(audited):,}",
        "labels": f"{len(findings):,}",
        "label issues": f"{findings.num_issues:,}",
        "wrong labels": f"{total}{share}",
    }
    corrections = [
        f"| {escape(given)} | {escape(suggested)} | {count:,} |"
        for given, suggested, count in findings.corrections(_SHOWN_CORRECTIONS)
    ]
    shown = verdict is not None and verdict.judges_model
    lines = [
        f"# Label audit of {_link(dataset, 'datasets/')}" if dataset else "# Label audit",
        "",
        f"Which labels look wrong to {f'the model {_link(model)}' if model else 'a trained model'}, and which "
        "labels they should be. Made with the library `glc_hf`.",
        *_section("Counts", ["| | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in counts.items())]),
        *_section(
            "Most frequent corrections",
            ["| given | suggested | labels |", "| --- | --- | --- |", *corrections] if corrections else [],
        ),
        *_section("Verdict of the training", [escape(verdict.sentence)] if verdict is not None and shown else []),
        *_section("Warnings", [f"- {escape(warning)}" for warning in (*warnings, findings.note) if warning]),
        *_section("Columns", ["| column | type | content |", "| --- | --- | --- |", *_column_lines(audited)]),
        *_section("Usage", ["```python", *_usage(repo_id, lists).splitlines(), "```"]),
    ]
    return DatasetCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(lines) + "\n")


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _column_lines(audited: Dataset) -> list[str]:
    return [
        f"| {escape(one_line(name))} | {_type_name(feature)} | {_MEANINGS.get(name, 'as in the audited rows')} |"
        for name, feature in audited.features.items()
    ]


def _type_name(feature: Any) -> str:
    """`int64`, `ClassLabel`, `List of string`: as the viewer of the Hub names types."""
    if isinstance(feature, dict):
        return "dict"
    inner = getattr(feature, "feature", None)
    if inner is not None:
        return f"{type(feature).__name__} of {_type_name(inner)}"
    dtype = getattr(feature, "dtype", None)
    return str(dtype) if type(feature).__name__ == "Value" else type(feature).__name__


def _public_text(name: str | Path) -> str:
    """The name of a model or dataset without the folders of this machine."""
    return one_line(public_name(name).name)


def _link(name: str | Path, kind: str = "") -> str:
    return hub_link(_public_text(name), kind) if public_name(name).on_hub else code(_public_text(name))


def _usage(repo_id: str, lists: bool) -> str:
    issue = f'any(row["{IS_ISSUE}"])' if lists else f'row["{IS_ISSUE}"]'
    sort = "" if lists else f'\nissues = issues.sort("{SCORE}")  # the most suspicious labels first'
    return f"""from datasets import load_dataset

audit = load_dataset({json.dumps(repo_id, ensure_ascii=False)}, split="train")
issues = audit.filter(lambda row: {issue}){sort}"""
