"""Every parser of what comes from outside reads, or refuses in its own words, and never fails otherwise."""

import importlib
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import _http1 as http1
from fencepost._sentinel_url import SentinelUrl
from fencepost.errors import InvalidInput, SettingsError, from_sqlstate
from fencepost.http_client import Reply
from fencepost.jobs._cron import parse_cron
from fencepost.layered_settings import LayeredSettings, readers
from fencepost.redaction import redact_named, redact_text, redact_url
from fencepost.redis_streams import response_cache
from fencepost.server_addresses import read_note
from fencepost_judge import _protocol as protocol
from fencepost_judge._store import Store
from fencepost_judge.packages._archive import unpack
from fencepost_judge.packages._documents import parse_here
from fencepost_judge.packages._reading import read_problem
from fencepost_nonces.sending._classification import classify
from fencepost_nonces.signer import Signer
from fencepost_orders import _alpaca as alpaca
from fencepost_orders import _oanda as oanda
from fencepost_orders.request import OrderRequest
from fencepost_server.console._reports import read_reports
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed, refusal
from tests.unit.fuzz.hostile import DOCUMENTS, TEXTS, bodies, fuzzed, wrong_bytes, wrong_documents, wrong_text
from tests.unit.judge.test_packages import LEGACY
from tests.unit.judge.test_packages import write as write_package

RUN = {
    "schema_version": protocol.SCHEMA_VERSION,
    "verdict": "AC",
    "time_ms": 1,
    "mem_kb": 2,
    "exit_signal": 0,
    "sandbox_error": "",
    "job_id": "7",
    "attempt_id": 1,
}
ORDER = {
    "idempotency_key": "k",
    "broker": "paper",
    "account": "a",
    "symbol": "ABC",
    "intent": "BUY",
    "qty": 1.5,
    "limit_price": 2,
    "time_in_force": "DAY",
    "expires_at": "2030-01-01T00:00:00Z",
    "meta": {"a": [1, 2.5]},
}
ALPACA = {"id": "1", "status": "filled", "client_order_id": "k", "submitted_at": "2030-01-01T00:00:00Z"}
OANDA = {"id": "1", "state": "FILLED", "createTime": "2030-01-01T00:00:00Z", "clientExtensions": {"id": "k"}}
REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
)
SENTINELS = "redis+sentinel://user:hunter2@a:1,b/primary/3?sentinel_password=hunter2"


def read_request(body: bytes) -> None:
    request = OrderRequest.parse(body)
    # What was accepted can be stored, and says the same when it is read again.
    text = json.dumps(request.document())
    assert len(text) < 200_000
    assert OrderRequest.parse(text).digest() == request.digest()


def read_reply(data: bytes) -> http1.ParsedReply | None:
    reader = http1.ReplyReader()
    reader.feed(data)
    if reader.reply is None:
        reader.end()
    return reader.reply


def read_answer(text: str) -> object:
    return response_cache._read(text, response_cache.CacheKey("s", "k", "d"), 0, 5000)  # pyright: ignore[reportPrivateUsage]


def read_files(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "bench").mkdir()
        (place / "bench" / "one.json").write_bytes(text)
        (place / "up.json").write_bytes(text)
        read_reports(place)
        read_note(place)


def read_archive(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "a.zip").write_bytes(data)
        (place / "inner").mkdir()
        try:
            unpack(place / "a.zip", place / "inner", bytes_max=1 << 20)
        finally:
            assert {path.name for path in place.iterdir()} == {"a.zip", "inner"}


def read_yaml_package(texts: tuple[str, str]) -> None:
    described, tests = texts
    files = LEGACY | {"problem.yaml": described, "data/secret/testdata.yaml": tests}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("problem.yaml", "data/secret/testdata.yaml"):
            files[name].encode()  # A file holds what can be written.
        read_problem(write_package(place / "p", files), Store(place / "store"), parse=parse_here)


NEW_PACKAGE = {
    "problem": {
        "problem_format_version": "2025-09",
        "name": {"en": "x"},
        "type": ["scoring"],
        "limits": {"time_limit": 1, "code": 3, "time_multipliers": {"ac_to_time_limit": 2}},
        "languages": ["python3"],
        "constants": {"a": {"value": 3, "tex": "3"}},
    },
    "group": {"max_score": 3, "score_aggregation": "sum", "require_pass": ["sample"], "args": ["a"]},
    "case": {"output_validator_args": ["exact"], "args": ["x"], "hint": "h", "full_feedback": True},
    "submissions": {
        "accepted": {
            "language": "python3",
            "permitted": ["AC"],
            "secret/*": {"required": ["AC"]},
            "score": [1, 2],
        }
    },
    "old": {"grader_flags": "min", "range": "0 3", "output_validator_flags": {"name": "x", "flags": "y"}},
}


def read_new_package(documents: Any) -> None:
    said = cast("dict[str, Any]", documents) if isinstance(documents, dict) else dict[str, Any]()
    names = {
        "problem": "problem.yaml",
        "group": "data/secret/test_group.yaml",
        "case": "data/secret/a.yaml",
        "submissions": "submissions/submissions.yaml",
        "old": "data/sample/testdata.yaml",
    }
    texts = {names[key]: json.dumps(said.get(key), default=str) for key in names if key in said}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        read_problem(write_package(place / "p", LEGACY | texts), Store(place / "store"), parse=parse_here)


def a_package() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in LEGACY.items():
            archive.writestr(name, text)
    return packed.getvalue()


YAML = st.one_of(
    st.sampled_from(
        ["a: 2001-13-45", "a: &a [*a]", "? [1]\n: 2", "!!python/object:x {}", "limits: 1", "a: 0x_"]
    ),
    wrong_documents({"name": "x", "type": ["scoring"], "limits": {"memory": 64}, "validation": "custom"}).map(
        lambda document: json.dumps(document, default=str)
    ),
    st.text(alphabet="abc:-[]{}&*!|>'\"#%@`\n 0123", max_size=40),
).filter(lambda text: text.isprintable() or "\n" in text)

PARSERS = {
    "the sandbox's answer": Parser(
        protocol.parse, bodies(RUN).map(lambda b: b + b"\n"), (protocol.ProtocolError,)
    ),
    "an order": Parser(read_request, bodies(ORDER), (InvalidInput,)),
    "an HTTP answer": Parser(
        read_reply, st.one_of(wrong_bytes(REPLY), st.binary(max_size=80)), (ValueError,)
    ),
    "a URL to send to": Parser(http1.address_of, wrong_text("https://u:p@host:8080/a?b=c"), (ValueError,)),
    "a broker's body": Parser(lambda body: Reply(200, body=body).json(), bodies(ALPACA)),
    "an excerpt": Parser(lambda body: Reply(200, body=body).excerpt(), bodies(ALPACA)),
    "Alpaca's order": Parser(alpaca.read_order, st.one_of(wrong_documents(ALPACA), DOCUMENTS)),
    "OANDA's order": Parser(oanda.read_order, st.one_of(wrong_documents(OANDA), DOCUMENTS)),
    "Sentinels": Parser(SentinelUrl.read, wrong_text(SENTINELS), (ValueError,)),
    "a timetable": Parser(
        lambda text: parse_cron(text, "UTC"),
        st.one_of(wrong_text("*/5 1-3 * * mon"), wrong_text("every 90s"), st.just("every infs")),
        (InvalidInput,),
    ),
    "a zone": Parser(lambda text: parse_cron("* * * * *", text), TEXTS, (InvalidInput,)),
    "a signer": Parser(lambda text: Signer.of(1, text), wrong_text("0x" + "aB" * 20), (InvalidInput,)),
    "a node's error": Parser(classify, TEXTS),
    "an answer in Redis": Parser(
        read_answer,
        st.one_of(TEXTS, wrong_text("pending x 17"), st.just("pending x ²17"), bodies({}).map(repr)),
    ),
    "files that people leave": Parser(read_files, bodies({"name": "x", "rows": [], "goals": []})),
    "an archive": Parser(read_archive, wrong_bytes(a_package()), (InvalidInput,)),
    "a package of 2025-09": Parser(
        read_new_package,
        st.one_of(
            wrong_documents(NEW_PACKAGE),
            wrong_documents({key: one for key, one in NEW_PACKAGE.items() if key != "old"}),
            wrong_documents({key: NEW_PACKAGE[key] for key in ("old", "submissions")}),
        ),
        (InvalidInput,),
    ),
    "a package": Parser(read_yaml_package, st.tuples(YAML, YAML), (InvalidInput,)),
    "a detail of PostgreSQL": Parser(lambda text: from_sqlstate("ZF001", "x", text), TEXTS),
    "a text to hide from": Parser(redact_text, wrong_text(SENTINELS)),
    "a URL to hide from": Parser(redact_url, wrong_text(SENTINELS)),
    "a value to hide from": Parser(lambda value: redact_named("x", value), DOCUMENTS),
}


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_comes_is_read_or_refused(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_whatever_comes_is_read_or_refused_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


@fuzzed(QUICK)
@given(wrong_bytes(REPLY), st.lists(st.integers(1, 20), max_size=20))
def test_an_http_answer_means_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    def in_pieces() -> http1.ParsedReply | None:
        reader, rest = http1.ReplyReader(), data
        for cut in [*cuts, len(data)]:
            piece, rest = rest[:cut], rest[cut:]
            if piece:
                reader.feed(piece)
        if reader.reply is None:
            reader.end()
        return reader.reply

    def outcome(read: Callable[[], http1.ParsedReply | None]) -> object:
        try:
            return read()
        except ValueError:
            return "refused"

    assert outcome(in_pieces) == outcome(lambda: read_reply(data))


def settings_classes() -> list[type[LayeredSettings]]:
    found = (reader.split(":") for reader in readers())
    return [getattr(importlib.import_module(module), name) for module, name in found]


@pytest.mark.parametrize("reader", settings_classes(), ids=lambda reader: reader.__name__)
def test_any_environment_and_any_file_is_read_or_refused(
    reader: type[LayeredSettings], tmp_path: Path
) -> None:
    sources = reader.sources().values()
    variables = st.dictionaries(st.sampled_from([source.env for source in sources]), TEXTS, max_size=3)
    config = tmp_path / "config.yaml"

    @fuzzed(QUICK // 2)
    @given(variables, st.one_of(st.just(""), YAML, DOCUMENTS.map(json.dumps)))
    def load(environ: dict[str, str], text: str) -> None:
        config.write_text(text, encoding="utf-8", errors="replace")
        refusal(lambda: reader.load(environ, config), (SettingsError,))

    load()
