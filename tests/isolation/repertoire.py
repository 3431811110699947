"""All scenarios, by the name under which a test plays them."""

from collections.abc import Iterable, Iterator

from tests.isolation import (
    checkpoint_pairs,
    checkpoint_stories,
    job_batch_pairs,
    job_fence_stories,
    job_key_pairs,
    job_lost_pairs,
    job_pairs,
    job_running_pairs,
    job_stories,
    lease_pairs,
    lease_stories,
    marker_pairs,
    marker_stories,
    outbox_pairs,
    outbox_stories,
    triangles,
)
from tests.isolation.pairs import Pair
from tests.isolation.scenario import Scenario


def repertoire() -> dict[str, tuple[Scenario, ...]]:
    """Each name with its scenarios: a pair has one for every way in which its transactions can end."""
    return dict(_named())


def _named() -> Iterator[tuple[str, tuple[Scenario, ...]]]:
    yield from _of("lease", lease_pairs.PAIRS, (*lease_stories.STORIES, *triangles.LEASES))
    yield from _of("marker", marker_pairs.PAIRS, marker_stories.STORIES)
    yield from _of("outbox", outbox_pairs.PAIRS, (*outbox_stories.STORIES, *triangles.OUTBOX))
    yield from _of("job", job_pairs.PAIRS, job_stories.STORIES)
    yield from _of("running job", job_running_pairs.PAIRS, job_fence_stories.STORIES)
    yield from _of("lost job", job_lost_pairs.PAIRS, ())
    yield from _of("jobs", (*job_key_pairs.PAIRS, *job_batch_pairs.PAIRS), triangles.JOBS)
    yield from _of("checkpoint", checkpoint_pairs.PAIRS, checkpoint_stories.STORIES)


def _of(
    noun: str, pairs: Iterable[Pair], stories: Iterable[Scenario]
) -> Iterator[tuple[str, tuple[Scenario, ...]]]:
    for pair in pairs:
        yield f"{noun}: {pair.title}", tuple(pair.scenarios())
    for story in stories:
        yield f"{noun}: {story.title}", (story,)
