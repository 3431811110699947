"""Test data by content: an object is named by the digest of its content, and checked when it is read.

The store is a folder by default, or a bucket by URL. In both, an object appears whole or not at all, and
several processes may use the store at once: two that write the same name write the same content.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store

from fencepost.errors import InvalidInput, ServerUnavailable
from fencepost.private_folder import make_private, tighten
from fencepost.redaction import redact_text, redact_words
from fencepost_judge._bucket import Bucket, BucketError

REASON_MAX = 300
S3 = "s3://"
_OBJECTS = re.compile("[0-9a-f]{2}")


class CorruptData(Exception):
    """The content stored under a digest does not match it: a broken disk, or manual modification."""


class StoreUnavailable(ServerUnavailable):
    """The test data cannot be reached, or not with these keys."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Keys:
    """The credentials of a bucket. Missing values come from AWS's own variables, or from the machine's
    role."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    timeout_seconds: float = 30.0


class Store:
    """`place` is a folder, or `s3://bucket/prefix`."""

    def __init__(self, place: str | Path, keys: Keys | None = None) -> None:
        self.place = str(place)
        self._keys = keys or Keys()
        if "://" in self.place and not self.place.startswith(S3):
            raise InvalidInput(
                f"JUDGE_STORE is {redact_text(self.place)}; it must be a folder or s3://bucket/prefix.",
                field="store",
            )

    @property
    def is_bucket(self) -> bool:
        return self.place.startswith(S3)

    @cached_property
    def _objects(self) -> _Folder | Bucket:
        """Opened at first use: a command that only asks for a status needs neither the folder nor the
        bucket."""
        objects = open_objects(self.place, self._keys)
        return (
            Bucket(objects, self._keys.timeout_seconds) if isinstance(objects, S3Store) else _Folder(objects)
        )

    def put(self, content: bytes) -> str:
        """Store a content; returns its digest. An intact object is left as it is; a corrupt one is
        replaced."""
        digest = hashlib.sha256(content).hexdigest()
        try:
            self.get(digest)
        except (FileNotFoundError, CorruptData):
            with self._reached():
                self._objects.put(_name(digest), content)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises FileNotFoundError, or CorruptData when the content does not match the digest."""
        with self._reached():
            content = self._objects.get(_name(digest))
        if hashlib.sha256(content).hexdigest() != digest:
            raise CorruptData(
                f"The test data {digest[:12]}… is not what was stored. Import the problem again."
            )
        return content

    @contextmanager
    def _reached(self) -> Generator[None]:
        """Raises StoreUnavailable for access errors. A missing object stays FileNotFoundError."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, BucketError, OSError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            # The error of a bucket that refuses a key contains the key.
            why = redact_text(redact_words(said, (self._keys.access_key, self._keys.secret_key)))
            raise StoreUnavailable(
                f"JUDGE_STORE {redact_text(self.place)} cannot be reached: {why[:REASON_MAX]}"
            ) from None


@dataclass(frozen=True, slots=True)
class _Folder:
    objects: ObjectStore

    def get(self, name: str) -> bytes:
        return bytes(self.objects.get(name).bytes())

    def put(self, name: str, content: bytes) -> None:
        self.objects.put(name, content)


def open_objects(place: str, keys: Keys) -> ObjectStore:
    if not place.startswith(S3):
        return LocalStore(_private(Path(place).absolute()))
    given = {
        "endpoint": keys.endpoint,
        "region": keys.region,
        "access_key_id": keys.access_key,
        "secret_access_key": keys.secret_key,
    }
    return S3Store.from_url(
        place,
        config={name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        client_options={
            "timeout": timedelta(seconds=keys.timeout_seconds),
            "allow_http": (keys.endpoint or "").startswith("http://"),
        },
        retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=keys.timeout_seconds)},
    )


def _private(folder: Path) -> Path:
    """The folder of a store. If it holds only objects of the store, its permissions are restricted to the
    owner."""
    make_private(folder)
    if all(_OBJECTS.fullmatch(one.name) for one in folder.iterdir()):
        tighten(folder)
    return folder


def _name(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def remove_folder(folder: Path) -> None:
    """Only for folders that the judge created and filled; links in them are removed, not followed."""
    shutil.rmtree(folder, ignore_errors=True)
