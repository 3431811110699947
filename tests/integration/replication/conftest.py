"""A primary with one standby for each test: tests kill and promote them."""

from collections.abc import Iterator

import pytest

from tests.integration.replication.replicas import Replicas, replicas


@pytest.fixture
def pair() -> Iterator[Replicas]:
    with replicas() as both:
        yield both
