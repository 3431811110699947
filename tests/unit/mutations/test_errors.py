"""The error contract: Twirp's codes and statuses, and what each tells a client to do."""

import inspect

from fencepost_players.mutations import _execution as execution
from fencepost_players.mutations import errors
from fencepost_players.mutations.errors import Aborted, AlreadyExists, KeyReused, MutationError
from fencepost_players.mutations.http_routes import failure

# https://twitchtv.github.io/twirp/docs/spec_v7.html
TWIRP_STATUSES = {
    "aborted": 409,
    "bad_route": 404,
    "unimplemented": 501,
    "already_exists": 409,
    "invalid_argument": 400,
    "failed_precondition": 412,
    "not_found": 404,
    "unavailable": 503,
    "internal": 500,
}


def kinds() -> list[type[MutationError]]:
    found = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    return [kind for kind in found if issubclass(kind, MutationError) and kind is not MutationError]


def test_every_code_has_twirps_status() -> None:
    assert {kind.code: kind.status for kind in kinds()} == TWIRP_STATUSES


def test_the_two_conflicts_differ_by_their_code_and_by_whether_to_retry() -> None:
    aborted = failure(Aborted("Later.", retry_seconds=2.5), is_twirp=True)
    exists = failure(AlreadyExists("Done."), is_twirp=True)
    assert aborted.status_code == exists.status_code == 409
    assert aborted.headers["Retry-After"] == "3"
    assert "Retry-After" not in exists.headers


def test_a_reused_id_is_unprocessable_outside_twirp() -> None:
    error = KeyReused("Used.", reason="mismatch")
    assert failure(error, is_twirp=True).status_code == 400
    assert failure(error, is_twirp=False).status_code == 422
    assert error.body() == {"code": "invalid_argument", "msg": "Used.", "meta": {"reason": "mismatch"}}


def test_meta_has_texts_only() -> None:
    assert Aborted("Later.", version=7, nothing=None).meta == {"version": "7"}


def test_the_loop_of_tries_knows_no_planning() -> None:
    """A plan inside the loop would draw other numbers for each conflict."""
    names = set(vars(execution))
    assert not names & {"make_plan", "Rng", "Mutation", "mutation"}
    assert "Planned" in names
