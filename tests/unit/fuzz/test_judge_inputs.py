"""What the judge reads of others: etcd, sandboxes, outputs and folders of problems."""

import base64
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from fencepost.errors import InvalidInput, ServerUnavailable
from fencepost.http_client import Reply
from fencepost_judge._comparison import Comparison, ExpectedAnswer, compare
from fencepost_judge._discovery_etcd import PREFIX, EtcdAddress, code_of, number_in, workers_in
from fencepost_judge._store import Store
from fencepost_judge.packages._documents import parse_here
from fencepost_judge.packages._reading import read_problem
from fencepost_judge.sandbox._agent import AgentFailed, read_hello
from fencepost_judge.sandbox._bubblewrap import _exit_code  # pyright: ignore[reportPrivateUsage]
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import DEEP, DOCUMENTS, TEXTS, bodies, wrong_bytes, wrong_documents, wrong_text
from tests.unit.judge.test_packages import LEGACY
from tests.unit.judge.test_packages import write as write_package

WHEN = "2030-01-01T00:00:00+00:00"
WORKER = {
    "owner": "judge-1",
    "host": "host",
    "version": "1",
    "languages": {"c": "gcc"},
    "slots": 2,
    "processors": 2,
    "sandbox": "box",
    "degraded": ["no cgroup"],
    "busy": 0,
    "running": 0,
    "load_average": 0.5,
    "entered_at": WHEN,
    "seen_at": WHEN,
    "expires_at": WHEN,
}
SIMPLE = {"problem.yaml": "title: Sum\n", "1.in": "1\n", "1.ans": "2\n", "check.cpp": "int main() {}\n"}
DESCRIBED = {
    "title": "Sum",
    "time_limit": 1.5,
    "memory": 256,
    "flags": ["float_tolerance", "1e-6"],
    "checker": "check.cpp",
}
# Names that archives can have, and that look like something else.
ODD_FILES = (
    "2.in",
    "2.in/x",
    "1.out/x",
    "x.h/y",
    "statement.md/x",
    "problem.yaml/x",
    "data/secret/3.in/x",
    "data/secret/3.ans/x",
    "data/sample/1.in/x",
    "data/secret/testdata.yaml/x",
    "data/testdata.yaml/x",
    "problem_statement/problem.en.md/x",
    "output_validators",
    "output_validators/v/w/x/main.c",
    "submissions",
    "submissions/accepted",
    "submissions/accepted/z/y/x.py",
    ".timelimit/x",
)


def coded(worker: Any) -> str:
    return base64.b64encode(json.dumps(worker).encode()).decode()


def listed(worker: Any) -> dict[str, Any]:
    key = base64.b64encode(f"{PREFIX}{WORKER['owner']}".encode()).decode()
    return {"kvs": [{"key": key, "value": coded(worker)}, {"key": "b"}, {"key": key, "value": coded(WORKER)}]}


def read_workers(found: Any) -> None:
    for worker in workers_in(found):
        # It is shown to people, and as JSON.
        f"{worker}{worker.entered_at - worker.seen_at}".encode()


def read_described(described: Any) -> None:
    read_files_of(SIMPLE | {"problem.yaml": json.dumps(described, default=str)})


def read_files_of(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "p"
        for name, text in files.items():
            # What an archive cannot hold beside the others is left out.
            with suppress(OSError):
                write_package(place, {name: text})
        read_problem(place, Store(Path(folder) / "store"), parse=parse_here)


def compare_by(flags: list[str], output: bytes, answer: bytes) -> None:
    how = Comparison.from_flags(flags)
    checked = compare(output, answer, how)
    checked.message.encode()
    assert len(checked.message) < 500
    assert compare(answer, answer, how).answer is ExpectedAnswer.AC


FLAGS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "case_sensitive",
                "space_change_sensitive",
                "float_tolerance",
                "exact",
                "presentation_errors",
                "1e-6",
            ]
        ),
        TEXTS,
    ),
    max_size=4,
)
OUTPUTS = st.one_of(
    wrong_bytes(b"1 2.5e3 yes\r\n -7\n"),
    st.binary(max_size=40),
    st.sampled_from([b"1e999 nan inf", b"1_0 0x1", b"9" * 5000, b"+-1 1e 1e+", b"\xff\xfe \x85"]),
)
ODD = st.lists(st.sampled_from(ODD_FILES), max_size=4)
PARSERS = {
    "workers in etcd": Parser(
        read_workers,
        st.one_of(
            wrong_documents(WORKER).map(listed),
            DOCUMENTS.map(listed),
            wrong_documents(listed(WORKER)),
            wrong_text(coded(WORKER)).map(lambda value: {"kvs": [{"value": value}]}),
        ),
    ),
    "etcd's code": Parser(
        lambda body: code_of(Reply(400, body=body)), bodies({"code": 5, "message": "x", "details": []})
    ),
    "etcd's lease": Parser(
        lambda answer: number_in(answer, "ID", left_out=0),
        st.one_of(wrong_documents({"ID": "7587"}), DOCUMENTS),
        (ServerUnavailable,),
    ),
    "where etcd is": Parser(EtcdAddress.read, wrong_text("etcd://user:hunter2@a:1,[::1]:2"), (InvalidInput,)),
    "bubblewrap's word": Parser(
        _exit_code, st.one_of(bodies({"exit-code": 7}), wrong_bytes(b'{"child-pid": 1}\n{"exit-code": 7}\n'))
    ),
    "an agent's greeting": Parser(
        read_hello, bodies({"ready": True, "error": "", "cgroup": "v2"}), (AgentFailed,)
    ),
    "an output": Parser(
        lambda given: compare_by(*given), st.tuples(FLAGS, OUTPUTS, OUTPUTS), (InvalidInput,)
    ),
    "a simple folder": Parser(
        read_described, st.one_of(wrong_documents(DESCRIBED), DOCUMENTS), (InvalidInput,)
    ),
    "files of a simple folder": Parser(
        read_files_of, ODD.map(lambda names: dict.fromkeys(names, "x") | SIMPLE), (InvalidInput,)
    ),
    "files of a package": Parser(
        read_files_of, ODD.map(lambda names: dict.fromkeys(names, "x") | LEGACY), (InvalidInput,)
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_the_judge_is_given_is_read_or_refused(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_whatever_the_judge_is_given_is_read_or_refused_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


@pytest.mark.parametrize("name", ODD_FILES)
@pytest.mark.parametrize("right", [SIMPLE, LEGACY], ids=["simple", "package"])
def test_a_file_of_an_odd_name_is_no_error(name: str, right: dict[str, str]) -> None:
    with suppress(InvalidInput):
        read_files_of({name: "x"} | right)


@pytest.mark.parametrize(
    "described",
    [
        {"checker": "a" * 5000},
        {"checker": 7},
        {"checker": "../1.in"},
        {"flags": 7},
        {"flags": None},
        {"time_limit": float("inf")},
        {"time_limit": [1]},
        {"memory": "1e999"},
        {"title": ""},
        {"unknown": 1, "7": 2},
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_description_that_is_wrong_is_refused(described: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        read_described(described)


def test_keys_that_are_no_words_are_named() -> None:
    with pytest.raises(InvalidInput, match="unknown 7, more"):
        read_files_of(SIMPLE | {"problem.yaml": "{7: 1, more: 2}"})


@pytest.mark.parametrize("body", [b'{"code": "x"}', b'{"code": null}', b'{"code": {}}', b"[]", b"7"])
def test_an_error_of_etcd_without_a_code_has_none(body: bytes) -> None:
    assert code_of(Reply(500, body=body)) == 0


@pytest.mark.parametrize(
    "answer", [{}, {"ID": None}, {"ID": {}}, {"ID": "x"}, {"ID": "9" * 5000}, [], None], ids=str
)
def test_an_answer_of_etcd_without_a_lease_is_none(answer: Any) -> None:
    with pytest.raises(ServerUnavailable, match="it has no ID"):
        number_in(answer, "ID")


def test_keys_in_etcd_that_are_none_leave_the_others() -> None:
    found = listed(WORKER)
    found["kvs"] += [7, None, {"value": 7}, {"value": {}}]

    assert [worker.owner for worker in workers_in(found)] == ["judge-1", "judge-1"]
    assert workers_in({"kvs": 7}) == []


@pytest.mark.parametrize("line", [b"[]", b"7", b'{"exit-code": []}', b'{"exit-code": {}}', DEEP[0].encode()])
def test_a_line_of_bubblewrap_that_says_no_code_is_passed_over(line: bytes) -> None:
    assert _exit_code(line + b'\n{"exit-code": 3}\n') == 3


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b"hello", b'{"ready": "yes"}', DEEP[1].encode()])
def test_an_agent_that_does_not_greet_is_not_ready(line: bytes) -> None:
    with pytest.raises(AgentFailed, match="The agent cannot start") as caught:
        read_hello(line)
    assert caught.value.reason == "not_ready"
