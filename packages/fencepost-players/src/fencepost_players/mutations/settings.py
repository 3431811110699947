"""Settings of mutations: how long records are kept, and how long a request waits."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings


class MutationSettings(LayeredSettings):
    """A repeat gets the first response for `key_keep_seconds`, and not longer.

    The idempotency key of a mutation has its own expiry, by default an hour after the request; every
    long-running process deletes it then, however long its own `Settings` keep other keys.
    """

    key_keep_seconds: Annotated[
        float, Field(ge=1, le=31_536_000), From("IDEMPOTENCY_KEEP_SEC", "idempotency.keep_sec")
    ] = 3600.0
    answer_keep_seconds: Annotated[
        float, Field(ge=1, le=31_536_000), From("MUTATION_ANSWER_KEEP_SEC", "mutations.answer_keep_sec")
    ] = 3600.0
    pending_seconds: Annotated[
        float, Field(ge=0.1, le=300), From("MUTATION_PENDING_SEC", "mutations.pending_sec")
    ] = 5.0
    cache_wait_seconds: Annotated[
        float, Field(ge=0.005, le=10), From("MUTATION_CACHE_WAIT_SEC", "mutations.cache_wait_sec")
    ] = 0.1
    tries_max: Annotated[int, Field(ge=1, le=100), From("MUTATION_TRIES_MAX", "mutations.tries_max")] = 8
    batch_max: Annotated[int, Field(ge=1, le=50), From("MUTATION_BATCH_MAX", "mutations.batch_max")] = 32
    ordered_ids: Annotated[bool, From("MUTATION_ORDERED_IDS", "mutations.ordered_ids")] = False
    unkeyed_window_seconds: Annotated[
        float, Field(ge=1, le=31_536_000), From("MUTATION_UNKEYED_WINDOW_SEC", "mutations.unkeyed_window_sec")
    ] = 86_400.0

    @model_validator(mode="after")
    def _keys_outlive_answers(self) -> Self:
        if self.key_keep_seconds < self.answer_keep_seconds:
            raise ValueError(
                f"IDEMPOTENCY_KEEP_SEC is {self.key_keep_seconds:g} and MUTATION_ANSWER_KEEP_SEC is "
                f"{self.answer_keep_seconds:g}; allowed: a key that is kept at least as long as its "
                "answer in Redis, because the key in PostgreSQL carries the guarantee"
            )
        return self
