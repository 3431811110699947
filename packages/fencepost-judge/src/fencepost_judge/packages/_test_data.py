"""Reads the tests of a package: their names, their groups, and their scores."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fencepost.errors import InvalidInput
from fencepost_judge._problem import Aggregation, Group, Rules, TestCase, VerdictMode
from fencepost_judge._store import Store
from fencepost_judge.packages._documents import Documents
from fencepost_judge.packages._metadata import CaseFile, GroupFile, LegacyGroup, Metadata, Version, checked
from fencepost_judge.packages._unsupported import unsupported

KNOWN_DATA = ("sample", "secret", "invalid_input", "invalid_output", "valid_output", "bad")
"""`bad` is what BAPCtools once called `invalid_input`."""
OLD_FILE, NEW_FILE = "testdata.yaml", "test_group.yaml"
FILES_MAX = 10
_NOT_TESTS = (".statement.in", ".download.in")
_HANDED_ON = ("output_validator_args", "input_validator_args", "args")
"""The keys that a group of the new format passes on to the tests below it."""


def check_tests(data: Path) -> None:
    """Refuses test files that would be ignored silently."""
    for path in sorted(data.rglob("*")):
        where = path.relative_to(data)
        if any(part.startswith(".") for part in where.parts) or not path.is_file():
            continue
        if any(part.endswith(".files") for part in where.parts[:-1]):
            continue
        if path.suffix == ".in" and (len(where.parts) < 2 or where.parts[0] not in KNOWN_DATA):
            raise InvalidInput(
                f"data/{where} is not used: tests are in data/sample and data/secret.", field=path.name
            )
        if path.suffix == ".ans" and where.parts[0] in KNOWN_DATA and not path.with_suffix(".in").is_file():
            raise InvalidInput(f"data/{where} has no {path.stem}.in beside it.", field=path.name)


def read_tests(root: Path, store: Store, documents: Documents, metadata: Metadata) -> Group:
    """`data`, with the groups `sample` and `secret`."""
    check_tests(root / "data")
    old_files = sorted((root / "data").rglob(OLD_FILE))
    if metadata.version is Version.RELEASED and old_files:
        raise InvalidInput(
            f"{old_files[0].relative_to(root)} is of the old format; 2025-09 has {NEW_FILE}.", field=OLD_FILE
        )
    new_files = sorted((root / "data").rglob(NEW_FILE))
    if metadata.version is Version.LEGACY and new_files:
        raise InvalidInput(
            f"{new_files[0].relative_to(root)} is of the new format; say problem_format_version: 2025-09.",
            field=NEW_FILE,
        )
    reader = _Reader(root, store, documents, metadata, tuple(shlex.split(metadata.validator_flags)))
    # A draft of the new format with files of the old one: its usual tools grade it as the old one.
    if metadata.version is Version.LEGACY or (old_files and not new_files):
        return _OldReader(reader).data()
    return _NewReader(reader, {}).data()


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    store: Store
    documents: Documents
    metadata: Metadata
    flags: Sequence[str]
    """The flags of problem.yaml; those of a group are appended."""

    def inputs(self, folder: Path) -> list[Path]:
        """Sorted by the name of the test, not of its file."""
        found = [
            path for path in folder.glob("*.in") if path.is_file() and not path.name.endswith(_NOT_TESTS)
        ]
        return sorted(found, key=lambda path: path.stem)

    def folders(self, folder: Path) -> list[Path]:
        found = (path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        return sorted(path for path in found if path.suffix != ".files")

    def case(self, path: Path, flags: Sequence[str] | None, validator: str | None, **more: Any) -> TestCase:
        name = str(path.relative_to(self.root / "data").with_suffix(""))
        return TestCase(
            name=name,
            input=self.store.put(path.read_bytes()),
            answer=self.store.put(_answer(path)),
            flags=None if flags is None else [*self.flags, *flags],
            validator=validator,
            files=self._files(path.with_suffix(".files")),
            sample=name.startswith("sample/"),
            **more,
        )

    def _files(self, folder: Path) -> dict[str, str]:
        if not folder.is_dir():
            return {}
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        contents = {path.name: path.read_bytes() for path in entries if path.is_file()}
        # A bind of the sandbox maps one stored content to one name.
        if len(contents) != len(entries) or len(set(contents.values())) != len(contents):
            raise unsupported(folder.name, "a folder in it, or two files with one content,")
        if len(contents) > FILES_MAX:
            raise unsupported(folder.name, f"more than {FILES_MAX} files")
        return {name: self.store.put(content) for name, content in contents.items()}

    def case_file(self, path: Path) -> dict[str, Any]:
        beside = path.with_suffix(".yaml")
        name = str(beside.relative_to(self.root))
        if beside.name == NEW_FILE:
            raise InvalidInput(f"{name}: no test may be called test_group.", field=path.name)
        return checked(CaseFile, name, self.documents.get(beside)).model_dump(exclude_unset=True)


def _answer(path: Path) -> bytes:
    answer = path.with_suffix(".ans")
    if not answer.is_file():
        raise InvalidInput(f"{path.name} has no {answer.name} beside it.", field=path.name)
    return answer.read_bytes()


@dataclass(frozen=True, slots=True)
class _OldReader:
    """The old format: `testdata.yaml` applies to all folders below, and graders grade."""

    reader: _Reader

    def data(self) -> Group:
        place = self.reader.root / "data"
        above = self._described(place, {})
        groups = [self._group(place / name, name, above) for name in ("sample", "secret")]
        return Group(name="data", groups=groups, rules=_rules("data", above))

    def _described(self, folder: Path, above: Mapping[str, Any]) -> dict[str, Any]:
        path = folder / OLD_FILE
        name = str(path.relative_to(self.reader.root))
        own = checked(LegacyGroup, name, self.reader.documents.get(path))
        return {**above, **own.model_dump(exclude_unset=True), **self.reader.metadata.every_group}

    def _group(self, folder: Path, name: str, above: Mapping[str, Any]) -> Group:
        if not folder.is_dir():
            return Group(name=name, rules=_rules(name, above))
        described = self._described(folder, above)
        flags, validator = _old_flags(name, described.get("output_validator_flags"))
        is_new = self.reader.metadata.version.is_new
        cases = [
            self.reader.case(path, flags, validator, **self._own(path) if is_new else {})
            for path in self.reader.inputs(folder)
        ]
        below = [self._group(path, f"{name}/{path.name}", described) for path in self.reader.folders(folder)]
        return Group(name=name, cases=cases, groups=below, rules=_rules(name, described))

    def _own(self, path: Path) -> dict[str, Any]:
        return {"args": self.reader.case_file(path).get("args") or []}


def _old_flags(name: str, said: Any) -> tuple[list[str] | None, str | None]:
    """Arguments of all validators, or the name of one validator and its arguments."""
    if said is None:
        return None, None
    if isinstance(said, str):
        return shlex.split(said), None
    parts = cast("dict[str, Any]", said)
    if set(parts) - {"name", "flags"} or not all(isinstance(one, str) for one in parts.values()):
        raise InvalidInput(
            f"{name}: output_validator_flags must be a text, or name and flags.",
            field="output_validator_flags",
        )
    return shlex.split(parts.get("flags", "")), parts.get("name")


_SCORES = {one.value: one for one in (Aggregation.SUM, Aggregation.MIN, Aggregation.MAX, Aggregation.AVG)}
_VERDICTS = {one.value: one for one in VerdictMode} | {"no_errors": VerdictMode.WORST}


def _rules(name: str, described: Mapping[str, Any]) -> Rules:
    words = shlex.split(described.get("grader_flags") or "")
    custom = described.get("grading") == "custom"
    least, most = described.get("range") or (None, None)
    made: dict[str, Any] = {
        "accept_score": described.get("accept_score", 1),
        "reject_score": described.get("reject_score", 0),
        "stops": described.get("on_reject", "break") == "break",
        "grader_flags": words if custom else None,
        "least": least,
        "most": most,
    }
    for word in [] if custom else words:
        # If there are several modes, the last one counts.
        if word in _SCORES:
            made["score"] = _SCORES[word]
        elif word in _VERDICTS:
            made["verdict"] = _VERDICTS[word]
        elif word == "accept_if_any_accepted":
            made["accept_if_any"] = True
        elif word == "ignore_sample":
            # Inherited like everything else, but it applies to the root only.
            made["ignore_sample"] = name == "data"
        else:
            raise InvalidInput(f"{name}: the default grader has no flag {word[:40]!r}.", field="grader_flags")
    return Rules(**made)


@dataclass(frozen=True, slots=True)
class _NewReader:
    """The new format: folders with a `test_group.yaml` are groups, and pass on only arguments."""

    reader: _Reader
    secret: dict[str, Any] = field(default_factory=dict[str, Any])

    def data(self) -> Group:
        place = self.reader.root / "data"
        sample = self._group(place / "sample", "sample", {})
        if sample.groups:
            raise InvalidInput(f"{sample.groups[0].name}: samples have no groups.", field="sample")
        self.secret.update(self._described(place / "secret", {}))
        secret = self._group(place / "secret", "secret", {})
        self._check_requirements(secret)
        return Group(name="data", groups=[sample.model_copy(update={"score": 0}), secret])

    @property
    def _is_scoring(self) -> bool:
        return "scoring" in self.reader.metadata.kinds

    def _described(self, folder: Path, above: Mapping[str, Any]) -> dict[str, Any]:
        path = folder / NEW_FILE
        name = str(path.relative_to(self.reader.root))
        own = checked(GroupFile, name, self.reader.documents.get(path)).model_dump(exclude_unset=True)
        scoring = sorted({"max_score", "score_aggregation", "require_pass"} & set(own))
        if scoring and (not self._is_scoring or folder.name == "sample"):
            raise InvalidInput(f"{name}: {scoring[0]} is for groups of scoring problems.", field=scoring[0])
        return {**{key: above[key] for key in _HANDED_ON if key in above}, **own}

    def _group(self, folder: Path, name: str, above: Mapping[str, Any]) -> Group:
        if not folder.is_dir():
            return Group(name=name)
        described = self._described(folder, above)
        cases, below = self._below(folder, name, described)
        if cases and below:
            raise InvalidInput(
                f"{name} has tests and groups of tests; it may have one or the other.", field=name
            )
        cases.sort(key=lambda case: case.name)
        scores = self._scores(name, described, len(cases)) if self._is_scoring and name != "sample" else {}
        return Group(name=name, cases=[*self._static(name, described), *cases], groups=below, **scores)

    def _static(self, name: str, described: Mapping[str, Any]) -> list[TestCase]:
        """The static validation test case of a group, if it has one."""
        score = described.get("static_validation_score")
        if score is None:
            if "static_validator_args" in described:
                raise InvalidInput(
                    f"{name}: static_validator_args need a static_validation_score.",
                    field="static_validator_args",
                )
            return []
        counts = self._is_scoring and name != "sample" and _mode(name, described) != "pass-fail"
        if (score == "pass-fail") is counts:
            kind = "is scored" if counts else "is all or nothing"
            wanted = "a number" if counts else "pass-fail"
            raise InvalidInput(
                f"{name}: it {kind}, so its static_validation_score must be {wanted}.",
                field="static_validation_score",
            )
        nothing = self.reader.store.put(b"")
        return [
            TestCase(
                name=f"{name}/static validation",
                input=nothing,
                answer=nothing,
                sample=name == "sample",
                flags=described.get("static_validator_args") or [],
                static=True,
                worth=float(score) if counts else None,
            )
        ]

    def _below(
        self, folder: Path, name: str, described: Mapping[str, Any]
    ) -> tuple[list[TestCase], list[Group]]:
        """A folder without a file of its own belongs to the group that contains it."""
        cases, groups = self._cases(folder, described), list[Group]()
        for path in self.reader.folders(folder):
            inner = f"{name}/{path.name}"
            if (path / NEW_FILE).is_file():
                groups.append(self._group(path, inner, described))
                continue
            more_cases, more_groups = self._below(path, inner, described)
            cases, groups = [*cases, *more_cases], [*groups, *more_groups]
        return cases, groups

    def _cases(self, folder: Path, described: Mapping[str, Any]) -> list[TestCase]:
        made: list[TestCase] = []
        for path in self.reader.inputs(folder):
            said = {**described, **self.reader.case_file(path)}
            flags = said.get("output_validator_args")
            made.append(self.reader.case(path, flags, None, args=said.get("args") or []))
        return made

    def _scores(self, name: str, described: Mapping[str, Any], count: int) -> dict[str, Any]:
        """The score of a group, and whether its tests share it. If unbounded, only the validator awards
        points."""
        whole = name == "secret"
        mode = _mode(name, described)
        most: Any = described.get("max_score", 100 if whole else "unbounded")
        if most == "unbounded" and mode == "pass-fail":
            raise InvalidInput(
                f"{name}: a group that is all or nothing needs a max_score.", field="max_score"
            )
        if most == "unbounded" and not whole and self.secret.get("max_score", 100) != "unbounded":
            raise InvalidInput(f"{name}: secret is bounded, so a group needs a max_score.", field="max_score")
        static = described.get("static_validation_score")
        score = 0.0 if most == "unbounded" else float(most)
        if mode == "sum" and most != "unbounded" and isinstance(static, int):
            if static > score:
                raise InvalidInput(
                    f"{name}: static_validation_score is more than max_score.",
                    field="static_validation_score",
                )
            score -= static
        return {
            "aggregation": _NEW_MODES[mode],
            "score": score / count if mode == "sum" and count else score,
            "require": described.get("require_pass", []),
        }

    def _check_requirements(self, secret: Group) -> None:
        earlier = {"sample"}
        for group in (secret, *secret.groups):
            missing = [name for name in group.require if name not in earlier]
            if missing:
                raise InvalidInput(
                    f"{group.name}: require_pass names {missing[0][:80]!r}, which is no earlier group.",
                    field="require_pass",
                )
            earlier.add(group.name)


def _mode(name: str, described: Mapping[str, Any]) -> str:
    return str(described.get("score_aggregation", "sum" if name == "secret" else "pass-fail"))


_NEW_MODES = {"sum": Aggregation.SUM, "min": Aggregation.MIN, "pass-fail": Aggregation.ALL}


def asked_graders(group: Group) -> Iterator[str]:
    """Groups that are graded by the package's own grader."""
    if group.rules is not None and group.rules.grader_flags is not None:
        yield group.name
    for below in group.groups:
        yield from asked_graders(below)


def asked_validators(group: Group) -> Iterator[str]:
    return (case.validator for case in group.all_cases() if case.validator is not None)
