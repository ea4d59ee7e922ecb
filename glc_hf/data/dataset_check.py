# Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.
"""A check of a dataset before training: what would stop it, and what would make its result worth less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset, Features

from glc_hf.data.data_report import (
    ERROR,
    WARNING,
    ClassCount,
    DataReport,
    Finding,
    GivenVotes,
    first_rows,
    read_given_votes,
    some_names,
    some_rows,
)
from glc_hf.data.input_checks import Inputs, find_repeated, find_unreadable_images, read_inputs, rows_in_both
from glc_hf.data.label_values import (
    EVAL,
    GOLD,
    MISSING,
    NO,
    TRAIN,
    WRONG,
    YES,
    GivenValues,
    are_numbers,
    different_spellings,
    missing_words,
    possible_flags,
    read_given_flags,
    read_given_labels,
    spelling_key,
)
from glc_hf.labels.columns import Columns, find_columns, implausible_class, is_number, type_of_values
from glc_hf.labels.reading import class_names


_QUICK_IMAGES = 1000
_SHOWN_CHARACTERS = 60


def check_dataset(
    dataset: Dataset,
    eval_dataset: Dataset | None = None,
    trusted_dataset: Dataset | None = None,
    *,
    columns: Columns | None = None,
    label_column: str | None = None,
    trusted_column: str | None = "trusted",
    vote_columns: Sequence[str] = (),
    soft_label_column: str | None = None,
    needs_trusted: bool = True,
    needs_untrusted: bool = True,
    on_missing: str = "error",
    quick: bool = False,
) -> DataReport:
    """
    Look for problems in a dataset before training on it.

    Only hashes of the inputs are kept in memory; images are decoded, and nothing is changed.

    Args:
        dataset (`Dataset`): The training rows. Labels can be names or numbers, flags any that training accepts.
        eval_dataset (`Dataset`, *optional*): The evaluation rows.
        trusted_dataset (`Dataset`, *optional*): More training rows, whose labels are all trusted.
        columns ([`~glc_hf.labels.columns.Columns`], *optional*): Task, input columns and label column. By default
            found by type and name.
        label_column (`str`, *optional*): Column of the labels, if only the other columns have to be found.
        trusted_column (`str`, *optional*, defaults to `"trusted"`): Column of the flags.
        vote_columns (`Sequence[str]`, *optional*): Columns of votes. Untrusted rows then need no label, and trusted
            rows are optional.
        soft_label_column (`str`, *optional*): Column of soft labels. Untrusted rows then need no label.
        needs_trusted, needs_untrusted (`bool`): Whether training stops without trusted, or without untrusted rows.
        on_missing (`str`, *optional*, defaults to `"error"`): `"skip"` if rows without label or flag are left out:
            they are warnings then.
        quick (`bool`): Decode 1,000 images at most, and don't compare images.

    Returns:
        [`~glc_hf.data.data_report.DataReport`]
    """
    if columns is None:
        votes = (*vote_columns, soft_label_column)
        features = Features({name: kind for name, kind in dataset.features.items() if name not in votes})
        columns = find_columns(features, {}, "auto", label_column, trusted_column or "")
    parts = {TRAIN: dataset, EVAL: eval_dataset, GOLD: trusted_dataset}
    check = _Check(
        {name: part for name, part in parts.items() if part is not None},
        columns,
        trusted_column,
        missing_severity=WARNING if on_missing == "skip" else ERROR,
    )
    if vote_columns or soft_label_column is not None:
        check.votes = read_given_votes(dataset, vote_columns, soft_label_column, check.trusted_rows())
        check.check_votes(needs_trusted)
    check.check_labels()
    check.check_flags(needs_trusted, needs_untrusted)
    check.check_classes()
    if columns.task == "image":
        check.check_images(_QUICK_IMAGES if quick else None)
    if columns.task != "image" or not quick:
        check.check_inputs()
    return check.report()


class _Check:
    """The parts of a dataset with what is read from them, and the findings so far."""

    def __init__(self, parts: dict[str, Dataset], columns: Columns, flag: str | None, missing_severity: str) -> None:
        self.parts, self.columns, self.missing_severity = parts, columns, missing_severity
        self.votes: GivenVotes | None = None
        self.labels = {name: read_given_labels(part, columns.label) for name, part in parts.items()}
        train = parts[TRAIN]
        self.flag_name = flag
        self.flags = read_given_flags(train, flag) if flag is not None and flag in train.column_names else None
        self.findings: list[Finding] = []

    def add(self, kind: str, severity: str, part: str, rows: Any, message: str, fix: str) -> None:
        """Add a finding about rows."""
        self.findings.append(Finding(kind, severity, part, len(rows), first_rows(rows), message, fix))

    def add_classes(self, kind: str, severity: str, part: str, count: int, message: str, fix: str) -> None:
        """Add a finding about classes."""
        self.findings.append(Finding(kind, severity, part, count, [], message, fix))

    # ------------------------------------------------------------------ labels and flags
    def check_votes(self, needs_trusted: bool) -> None:
        votes, labels = self.votes, self.labels[TRAIN]
        assert votes is not None
        if votes.problem is not None:
            message = votes.problem.rstrip(".") + "."
            self.add_classes("wrong_soft_labels", ERROR, TRAIN, 1, message, "Correct the soft labels.")
        # Rows that are not trusted need a vote; a label of their own counts only next to soft labels.
        without = np.setdiff1d(votes.without, self.trusted_rows())
        if not votes.columns:
            without = np.intersect1d(without, labels.rows_with(MISSING))
        untrusted = len(self.parts[TRAIN]) - len(self.trusted_rows())
        if len(without):
            what = "vote" if votes.columns else "soft label and no label"
            stops = not votes.columns or len(without) == untrusted
            self.add(
                "rows_without_votes", ERROR if stops else WARNING, TRAIN, without,
                f"{_number(without, 'row has')} no {what} in {TRAIN} ({some_rows(without)}).",
                "Add them, or leave such rows out." if stops else "Nothing is learned from such rows.",
            )  # fmt: skip
        if votes.columns and needs_trusted and not len(self.trusted_rows()) and GOLD not in self.parts:
            self.add_classes(
                "votes_without_trusted_rows", WARNING, TRAIN, 0,
                f"no row is trusted ({votes.where}), so the accuracy of the sources is estimated from their "
                "agreement.",
                f"Label some dozens of rows with care and mark them in column {self.flag_name!r}: sources that make "
                "the same errors agree too.",
            )  # fmt: skip

    def check_labels(self) -> None:
        column = self.columns.label
        for part, labels in self.labels.items():
            missing = labels.rows_with(MISSING)
            if self.votes and part == TRAIN:
                missing = np.intersect1d(missing, self.trusted_rows())
            if len(missing):
                what = "trusted row has" if self.votes and part == TRAIN else "row has"
                message = f"{_number(missing, what)} no label in {self._where(missing, column, part)}."
                self.add("missing_labels", self.missing_severity, part, missing, message, self._missing_fix("labels"))
            wrong = labels.rows_with(WRONG)
            if len(wrong):
                self.add(
                    "wrong_labels", ERROR, part, wrong,
                    f"{_number(wrong, 'row has')} a label in column {column!r} of {part} that is not a class, such as "
                    f"{labels.examples[0]!r} ({some_rows(wrong)}).",
                    "Classes are names, or integers from 0: correct the labels.",
                )  # fmt: skip
            self._check_largest_class(part, labels)
            words = missing_words(labels.names)
            if words and len(words) < len(labels.names):
                rows = labels.rows_where(np.isin(labels.codes, [labels.names.index(word) for word in words]))
                self.add(
                    "missing_words", WARNING, part, rows,
                    f"{_number(rows, 'row has')} the label {some_names(sorted(words))} in {part} "
                    f"({some_rows(rows)}), which is taken as a class.",
                    "If it means that there is no label, empty these fields.",
                )  # fmt: skip

    def check_flags(self, needs_trusted: bool, needs_untrusted: bool) -> None:
        flags, column = self.flags, self.flag_name
        if flags is not None and column is not None:
            missing, wrong = flags.rows_with(MISSING), flags.rows_with(WRONG)
            if len(missing):
                message = f"{_number(missing, 'row has')} no flag in {self._where(missing, column, TRAIN)}."
                fix = self._missing_fix("flags (no, if a row is not trusted)")
                if not (flags.codes == NO).any():  # without these rows, there would be none that are not trusted
                    fix = "No row has the flag no: write no in the rows that were not checked."
                self.add("missing_flags", self.missing_severity, TRAIN, missing, message, fix)
            if len(wrong):
                self.add(
                    "wrong_flags", ERROR, TRAIN, wrong,
                    f"{_number(wrong, 'row has')} a flag in column {column!r} of {TRAIN} that is neither yes nor no, "
                    f"such as {flags.examples[0]!r} ({some_rows(wrong)}).",
                    "Write yes in the rows that were checked and no in all others; true/false and 1/0 work too.",
                )  # fmt: skip
        trusted = len(self.trusted_rows()) + len(self.parts.get(GOLD, ()))
        if trusted == 0 and needs_trusted and not (self.votes and self.votes.columns):
            marks = "there is no" if flags is None else "no row is marked in"
            others = possible_flags(self.parts[TRAIN], self.columns) if flags is None else ""
            self.add_classes(
                "no_trusted_rows", ERROR, TRAIN, 0,
                f"no row is trusted: {marks} column {column!r}.{others}"
                + (" Soft labels are corrected with the help of trusted rows." if self.votes else ""),
                "Name the flags with --trusted-column, or a second file of carefully labeled rows with "
                "--trusted-dataset; to try a method on clean labels, simulate noise with --noise.",
            )  # fmt: skip
        unknown = flags is None or (self.missing_severity != WARNING and len(flags.rows_with(MISSING)) > 0)
        if needs_untrusted and trusted and not unknown and flags is not None and not (flags.codes == NO).any():
            self.add_classes(
                "no_untrusted_rows", ERROR, TRAIN, trusted,
                f"every row with a flag in column {column!r} is trusted, so there is nothing to correct.",
                "Write no in the rows whose labels were not checked, or use --method trusted_only.",
            )  # fmt: skip

    def _where(self, rows: np.ndarray, column: str, part: str) -> str:
        """Return a column, its part, some of its rows, and the value of the first one, unless it is empty."""
        first = self.parts[part].select_columns([column]).with_format(None)[int(rows[0])][column]
        value = repr(first)
        value = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
        return (
            f"column {column!r} of {part} ({some_rows(rows)}{'' if first is None else f'; row {rows[0]} has {value}'})"
        )

    def _missing_fix(self, what: str) -> str:
        if self.missing_severity == WARNING:
            return "Left out of training (--on-missing skip)."
        return f"Fill in the {what}, or leave such rows out with --on-missing skip."

    def trusted_rows(self) -> np.ndarray:
        """Return the trusted rows of the training split."""
        return np.empty(0, dtype=np.int64) if self.flags is None else self.flags.rows_with(YES)

    def trusted_labels(self) -> np.ndarray:
        """Return whether each label of the training split is trusted."""
        labels, flags = self.labels[TRAIN], self.flags
        if flags is None:
            return np.zeros(len(labels.codes), dtype=bool)
        marked = flags.codes == YES
        if len(marked) != len(labels.codes) and labels.offsets is not None and flags.offsets is None:
            marked = np.repeat(marked, np.diff(labels.offsets))
        # Lists of flags and labels of different lengths are an error when the rows are loaded.
        return marked if len(marked) == len(labels.codes) else np.zeros(len(labels.codes), dtype=bool)

    # ------------------------------------------------------------------ classes
    def class_counts(self) -> list[ClassCount]:
        """Return the classes of all parts, in the order of their names or numbers."""
        train, none = self.labels[TRAIN], GivenValues([], np.empty(0, dtype=np.int64), None, 0, [])
        marked = GivenValues(train.names, train.codes[self.trusted_labels()], None, 0, [])
        gold, evaluation = self.labels.get(GOLD, none), self.labels.get(EVAL, none)
        counts = [
            dict(zip(part.names, part.counts().tolist(), strict=True)) for part in (train, marked, gold, evaluation)
        ]
        names = list(dict.fromkeys([*train.names, *gold.names, *evaluation.names]))
        if self.votes is not None and (are_numbers(names) or not are_numbers(self.votes.row_counts) or not names):
            # Votes that are numbers next to labels that are names are the places of the names.
            voted = self.votes.row_counts
            names = list(dict.fromkeys([*names, *voted]))
            counts[0] = {name: voted.get(name, 0) + counts[1].get(name, 0) for name in names}
        if are_numbers(names):
            names.sort(key=int)
        in_train, in_marked, in_gold, in_eval = counts
        return [
            ClassCount(
                name,
                in_train.get(name, 0) + in_gold.get(name, 0),
                in_marked.get(name, 0) + in_gold.get(name, 0),
                in_eval.get(name, 0),
            )
            for name in names
        ]

    def _check_largest_class(self, part: str, labels: GivenValues) -> None:
        """Classes that are numbers are counted up to the largest one."""
        kind = type_of_values(self.parts[part].features[self.columns.label])
        if not is_number(kind) or class_names(self.parts[part].features[self.columns.label]) is not None:
            return
        largest = implausible_class([int(name) for name in labels.names])
        if largest is not None:
            rows = labels.rows_where(labels.codes == labels.names.index(str(largest)))
            self.add(
                "implausible_label", ERROR, part, rows,
                f"label {largest} in column {self.columns.label!r} of {part} ({some_rows(rows)}) would mean "
                f"{largest + 1:,} classes, but there are {len(labels.names)} different labels.",
                "Correct it, or, if the numbers are codes, write the classes as names.",
            )  # fmt: skip

    def check_classes(self) -> None:
        classes = self.class_counts()
        groups = different_spellings({entry.name: entry.train + entry.evaluation for entry in classes})
        if groups:
            merged = len(classes) - sum(len(group) - 1 for group in groups)
            examples = "; ".join(" = ".join(repr(name) for name in group[:3]) for group in groups[:3])
            self.add_classes(
                "label_spellings", WARNING, TRAIN, sum(map(len, groups)),
                f"{len(classes)} class names are {merged} classes, if case and spaces don't count: {examples}"
                f"{'; …' if len(groups) > 3 else '.'}",
                "Merge them with --normalize-labels.",
            )  # fmt: skip
        trained = [entry for entry in classes if entry.train]
        without = [entry.name for entry in trained if not entry.trusted]
        if without and self.votes is None and any(entry.trusted for entry in trained):
            self.add_classes(
                "classes_without_trusted_rows", WARNING, TRAIN, len(without),
                f"{_classes(without, trained)} no trusted row: {some_names(without)}.",
                "Their noise can't be estimated without one: check a few rows of each.",
            )  # fmt: skip
        if len(trained) == 1 and not self.votes:
            self.add_classes(
                "one_class", ERROR, TRAIN, 1,
                f"all labels in column {self.columns.label!r} are {trained[0].name!r}.",
                "Training needs at least two classes: add rows of others, or name another column of labels.",
            )  # fmt: skip
        single = [entry.name for entry in trained if entry.train == 1]
        if single and self.columns.task != "token":
            self.add_classes(
                "classes_with_one_row", WARNING, TRAIN, len(single),
                f"{_classes(single, trained)} only one row: {some_names(single)}.",
                "Look for typing errors in the names.",
            )  # fmt: skip
        unknown = [entry.name for entry in classes if entry.evaluation and not entry.train]
        if unknown and trained:
            disjoint = not any(entry.evaluation and entry.train for entry in classes)
            # Training rows may lack classes that are numbers; names in none of them are another set of classes.
            severity = ERROR if disjoint and not are_numbers([entry.name for entry in classes]) else WARNING
            if severity == ERROR or not self.votes:  # classes can occur as votes only
                self.add_classes(
                    "unknown_eval_labels", severity, EVAL, len(unknown),
                    f"{len(unknown)} classes of {EVAL} have no training row: {some_names(unknown)}.",
                    "Use the same class names in both.",
                )  # fmt: skip

    # ------------------------------------------------------------------ inputs
    def check_inputs(self) -> None:
        task, what = self.columns.task, {"text": "text", "token": "list of words", "image": "image"}[self.columns.task]
        inputs = {part: read_inputs(data, self.columns.inputs, task) for part, data in self.parts.items()}
        for part, found in inputs.items():
            if len(found.empty) and task != "image":
                self.add(
                    "empty_texts", WARNING, part, found.empty,
                    f"{_number(found.empty, 'row has')} an empty {what} in {part} ({some_rows(found.empty)}).",
                    "Remove them, or fill in the input.",
                )  # fmt: skip
            labels = self.labels[part]
            repeated = find_repeated(found, labels.per_row(spelling_key))
            if part != EVAL and len(repeated.later):
                self.add(
                    "duplicates", WARNING, part, repeated.later,
                    f"{_number(repeated.later, 'row repeats', 'rows repeat')} an earlier {what} of {part} "
                    f"({some_rows(repeated.later)}).",
                    "Keep one of each: copies count twice, and can end up in training and evaluation.",
                )  # fmt: skip
            self._check_disagreement(part, found, labels, what)
        if EVAL in inputs:
            both = rows_in_both(inputs[EVAL], [found for part, found in inputs.items() if part != EVAL])
            if len(both):
                self.add(
                    "eval_overlap", WARNING, EVAL, both,
                    f"{_number(both, 'row', 'rows')} of {EVAL} ({len(both) / len(inputs[EVAL].hashes):.0%}) "
                    f"{'has a' if len(both) == 1 else 'have a'} {what} that is also trained on ({some_rows(both)}).",
                    "The measured accuracy will be too high: remove them from one of the two.",
                )  # fmt: skip

    def _check_disagreement(self, part: str, inputs: Inputs, labels: GivenValues, what: str) -> None:
        """Add a finding for inputs with several labels, and one for those with several trusted labels."""
        compared: dict[str, np.ndarray | None] = {}
        if part == GOLD:
            compared["trusted "] = None
        elif part == EVAL or not self.votes:
            compared[""] = None
        if part == TRAIN and self.flags is not None:
            compared["trusted "] = self.trusted_rows()
        for trusted, rows in compared.items():
            found = find_repeated(inputs, labels.per_row(spelling_key), rows)
            if found.pair is None:
                continue
            given = ""
            if labels.offsets is None:
                first, second = (f"row {row} is {labels.names[labels.codes[row]]!r}" for row in found.pair)
                given = f": {first}, {second}"
            several = "s" if found.num_disagreeing > 1 else ""
            fix = "Decide which label is right." if trusted else "Check them: at least one label of each is wrong."
            self.add(
                f"{trusted.strip() + '_' if trusted else ''}duplicates_with_different_labels",
                WARNING,
                part,
                found.disagreeing,
                f"{found.num_disagreeing:,} {what}{several} in {len(found.disagreeing):,} {trusted}rows of {part} "
                f"{'have' if several else 'has'} different labels{given}.",
                fix,
            )

    def check_images(self, at_most: int | None) -> None:
        column = self.columns.inputs[0]
        for part, data in self.parts.items():
            found = find_unreadable_images(data, column, at_most)
            if found:
                rows = [row for row, _ in found]
                self.add(
                    "unreadable_images", ERROR, part, rows,
                    f"{_number(rows, 'image', 'images')} of column {column!r} of {part} can't be read "
                    f"({some_rows(rows)}). Row {rows[0]}: {found[0][1]}.",
                    "Replace or remove them.",
                )  # fmt: skip

    # ------------------------------------------------------------------ result
    def report(self) -> DataReport:
        """Return the report."""
        gold = len(self.parts.get(GOLD, ()))
        return DataReport(
            rows=len(self.parts[TRAIN]) + gold,
            eval_rows=len(self.parts.get(EVAL, ())),
            trusted_rows=len(self.trusted_rows()) + gold,
            columns=self.columns,
            classes=self.class_counts(),
            votes=self.votes,
            has_labels=bool(len(self.labels[TRAIN].names)) or gold > 0,
            findings=sorted(self.findings, key=lambda finding: finding.severity != ERROR),
        )


def _classes(some: list[str], classes: list[Any]) -> str:
    """Return the start of a sentence about some of the classes: `1 of 6 classes has`, `2 of 6 classes have`."""
    return f"{len(some)} of {len(classes)} classes {'has' if len(some) == 1 else 'have'}"


def _number(rows: Any, one: str, several: str | None = None) -> str:
    """Return the number of rows and a phrase about them: `1 row has`, `3 rows have`."""
    if several is None:
        several = one.replace("row has", "rows have")
    return f"{len(rows):,} {one if len(rows) == 1 else several}"
