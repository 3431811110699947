"""A bucket of an object store, as flows read and write it: whole objects, each in one version."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from fencepost.flows._errors import FlowError, GraphRefused, StartRefused
from fencepost.flows.sources._file_set import FoundFile, OpenFile
from fencepost.redaction import redact_text, redact_words

ANSWER_SECONDS = 30.0
REASON_MAX = 300
_SECRET = ("key", "secret", "token", "password", "credential")


class Bucket:
    """The objects below a URL: `s3://bucket/prefix`, and what else obstore knows. Blocks; for threads."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        if "://" not in url:
            raise GraphRefused(f"{url!r} is no URL of a bucket: write s3://bucket/prefix.")
        self.place = url.rstrip("/")
        self._options = dict(options)

    @cached_property
    def _library(self) -> Any:
        try:
            return importlib.import_module("obstore")
        except ModuleNotFoundError:
            raise StartRefused("Buckets need obstore: pip install 'fencepost[bucket]'.") from None

    @cached_property
    def _objects(self) -> Any:
        from_url = self._library.store.from_url
        seconds = timedelta(seconds=ANSWER_SECONDS)
        if not self.place.startswith("s3://"):
            return from_url(self.place, config=self._options)
        return from_url(
            self.place,
            config=self._options,
            client_options={
                "timeout": seconds,
                "allow_http": str(self._options.get("endpoint", "")).startswith("http://"),
            },
            retry_config={"max_retries": 3, "retry_timeout": seconds},
        )

    def check(self) -> None:
        """Raise StartRefused if it cannot be listed."""
        try:
            with self._reached():
                next(iter(self._library.list(self._objects, chunk_size=1)), None)
        except FlowError as error:
            raise StartRefused(
                f"{error} Check the URL, and the endpoint, region and keys in options=."
            ) from None

    def found(self) -> Iterator[FoundFile]:
        with self._reached():
            pages = [list(page) for page in self._library.list(self._objects, chunk_size=1000)]
        metas = sorted((meta for page in pages for meta in page), key=_age)
        return (FoundFile(meta["path"], _version(meta), meta["size"]) for meta in metas)

    def open(self, file: FoundFile) -> OpenFile:
        """Download an object into a file that has no name. Raises FileNotFoundError."""
        stream = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 - The caller closes it.
        try:
            with self._reached():
                answer = self._library.get(self._objects, file.path)
                self._download(answer, stream)
            stream.seek(0)
            return OpenFile(stream, _version(answer.meta))
        except BaseException:
            stream.close()
            raise

    def _download(self, answer: Any, stream: BinaryIO) -> None:
        path, size = answer.meta["path"], answer.meta["size"]
        for block in answer.stream():
            stream.write(block)
            if stream.tell() > size:
                raise FlowError(f"{path} is longer than the {size} bytes that {self.place} announced.")
        if stream.tell() < size:
            raise FlowError(f"{path} ended after {stream.tell()} of {size} bytes.")

    def version_of(self, stream: BinaryIO) -> str | None:
        """None: what was downloaded does not change."""
        return None

    def put(self, name: str, content: bytes) -> None:
        """Write an object; it appears whole, in place of one of this name."""
        with self._reached():
            self._library.put(self._objects, name, content)

    @contextmanager
    def _reached(self) -> Generator[None]:
        """Raise FlowError for what the store answers, without its secrets. A missing object stays
        FileNotFoundError."""
        failure = self._library.exceptions.BaseError
        try:
            yield
        except FileNotFoundError:
            raise
        except (failure, OSError) as error:
            secrets = [
                str(value)
                for name, value in self._options.items()
                if any(word in str(name).lower() for word in _SECRET)
            ]
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            why = redact_text(redact_words(said, secrets))[:REASON_MAX]
            raise FlowError(f"{redact_text(self.place)} cannot be reached: {why}") from None


def _age(meta: Any) -> tuple[Any, str]:
    return meta["last_modified"], meta["path"]


def _version(meta: Any) -> str:
    """The ETag; where a store has none, size and time."""
    return str(meta["e_tag"] or f"{meta['size']}-{meta['last_modified'].timestamp()}")
