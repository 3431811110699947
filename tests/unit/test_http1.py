"""What is exactly an answer is read as one, byte by byte or at once; everything else is refused."""

import pytest

from fencepost._http1 import (
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    ParsedReply,
    ReplyReader,
    address_of,
    request_bytes,
)

OK = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"4\r\nWiki\r\n6;note=x\r\npedia \r\n0\r\nTrailer: x\r\n\r\n"
)


def read(*parts: bytes, ends: bool = False) -> ParsedReply | None:
    reader = ReplyReader()
    for part in parts:
        reader.feed(part)
    if ends:
        reader.end()
    return reader.reply


@pytest.mark.parametrize("whole", [OK, CHUNKED])
def test_an_answer_is_the_same_however_it_is_cut_into_pieces(whole: bytes) -> None:
    at_once = read(whole)
    assert at_once is not None
    assert read(*(whole[place : place + 1] for place in range(len(whole)))) == at_once
    for place in range(1, len(whole)):
        assert read(whole[:place], whole[place:]) == at_once
        assert read(whole[:place]) is None


def test_an_answer_has_its_status_its_headers_and_its_body() -> None:
    reply = read(OK)
    assert reply is not None
    assert (reply.status, reply.body, reply.keeps_connection) == (201, b"{}", True)
    assert reply.headers == {"content-type": "application/json", "content-length": "2"}
    chunked = read(CHUNKED)
    assert chunked is not None
    assert chunked.body == b"Wikipedia "


def test_an_answer_without_a_length_ends_with_the_connection_and_one_with_a_length_does_not() -> None:
    reply = read(b"HTTP/1.1 200 OK\r\n\r\n", b"all of it", ends=True)
    assert reply is not None
    assert (reply.body, reply.keeps_connection) == (b"all of it", False)
    for cut in (OK[:-1], CHUNKED[:-1], b"HTTP/1.1 200", b""):
        with pytest.raises(ValueError, match="cut off"):
            read(cut, ends=True)


def test_what_comes_before_the_answer_is_passed_over() -> None:
    reply = read(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK)
    assert reply is not None
    assert reply.status == 201


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n", True),
    ],
)
def test_a_connection_is_kept_only_if_both_sides_want_it(head: bytes, *, keeps: bool) -> None:
    reply = read(head)
    assert reply is not None
    assert reply.keeps_connection == keeps


@pytest.mark.parametrize(
    "garbled",
    [
        b"<html>It works!</html>\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 What\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: value\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_BYTES_MAX + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (HEAD_BYTES_MAX + 1),
        OK + b"HTTP/1.1 200 OK\r\n",
        CHUNKED + b"x",
    ],
)
def test_what_is_not_exactly_an_answer_is_refused(garbled: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(garbled)


def test_a_second_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one"):
        read(OK, OK)


def test_a_request_is_written_as_it_was_asked_for() -> None:
    address = address_of("https://api.example.com:8443/v2/orders?x=1")
    assert (address.host, address.port, address.is_secure) == ("api.example.com", 8443, True)
    assert request_bytes("POST", address, {"Idempotency-Key": "k"}, b"{}") == (
        b"POST /v2/orders?x=1 HTTP/1.1\r\nHost: api.example.com:8443\r\nAccept: */*\r\n"
        b"Idempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert address_of("http://[::1]").head == "Host: [::1]\r\nAccept: */*\r\n"
    assert address_of("http://a/b c").target == "/b%20c"
    assert "Authorization: Basic dTpw\r\n" in address_of("http://u:p@a/").head


@pytest.mark.parametrize("url", ["ftp://a/", "/orders", "http://", "http://a:99999/"])
def test_what_is_nowhere_to_send_to_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        address_of(url)


@pytest.mark.parametrize("header", [("X", "a\r\nHost: evil"), ("X: y", "a"), ("X", "a\0")])
def test_a_header_cannot_bring_another_one_along(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        request_bytes("GET", address_of("http://a/"), dict([header]), None)
