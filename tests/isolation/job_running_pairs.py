"""Two calls on one job that runs."""

from tests.isolation.job_calls import (
    BURY,
    CANCEL,
    CANCELLED,
    CLAIM_B,
    FENCE,
    FINISH,
    FINISHED,
    IN_FLIGHT,
    MISMATCH,
    NOT_OWNER,
    NOT_RUNNING,
    PROGRESS,
    RELEASE,
    RENEW,
    RETRY,
    RUNNING,
)
from tests.isolation.pairs import Call, Pair, Second

CANCEL_RUNNING = Call(
    "cancel what runs", "select fencepost.job_cancel(1, 'anna', 'running')", "requested", CANCEL.leaves
)

# An open finish has deleted the running row: a renewal must not wait for it, as it renews other jobs too.
PAIRS = (
    Pair("two finishes", RUNNING, FINISH, FINISH, Second(FINISHED), Second(FINISHED)),
    Pair("a finish meets a cancel", RUNNING, FINISH, CANCEL, Second(CANCELLED), Second(FINISHED)),
    Pair("a finish meets a renewal", RUNNING, FINISH, RENEW, Second("done"), Second(FINISHED, IN_FLIGHT)),
    Pair("a finish meets a progress", RUNNING, FINISH, PROGRESS, Second("done"), Second(FINISHED)),
    Pair("a finish meets a retry", RUNNING, FINISH, RETRY, Second(NOT_RUNNING), Second(FINISHED)),
    Pair("a finish meets a release", RUNNING, FINISH, RELEASE, Second(NOT_RUNNING), Second(FINISHED)),
    Pair("a finish meets a burial", RUNNING, FINISH, BURY, Second(FINISHED), Second(FINISHED)),
    Pair(
        "a claim in vain meets a finish",
        RUNNING,
        CLAIM_B.answering(NOT_OWNER),
        FINISH,
        Second(FINISHED, NOT_OWNER),
        Second("done"),
    ),
    Pair(
        "a claim in vain meets a release",
        RUNNING,
        CLAIM_B.answering(NOT_OWNER),
        RELEASE,
        Second("attempt 2", NOT_OWNER),
        Second("pending"),
        # Put back between the claim's look at the waiting jobs and its look at the running ones.
        overlapping=((NOT_RUNNING, "pending"),),
    ),
    Pair("two renewals", RUNNING, RENEW, RENEW, Second("renewed", IN_FLIGHT), Second("renewed", IN_FLIGHT)),
    Pair("a renewal meets a cancel", RUNNING, RENEW, CANCEL, Second("stop", IN_FLIGHT), Second("requested")),
    Pair(
        "a renewal meets a release",
        RUNNING,
        RENEW,
        RELEASE,
        Second(NOT_RUNNING, IN_FLIGHT),
        Second("pending"),
    ),
    Pair("a renewal meets a retry", RUNNING, RENEW, RETRY, Second(NOT_RUNNING, IN_FLIGHT), Second("pending")),
    Pair("a retry meets a cancel", RUNNING, RETRY, CANCEL, Second("cancelled"), Second("cancelled")),
    Pair("a release meets a cancel", RUNNING, RELEASE, CANCEL, Second("cancelled"), Second("cancelled")),
    Pair(
        "a retry meets a cancel of what runs",
        RUNNING,
        RETRY,
        CANCEL_RUNNING,
        Second("cancelled"),
        Second(MISMATCH),
    ),
    Pair("a burial meets a cancel", RUNNING, BURY, CANCEL, Second("cancelled"), Second(MISMATCH)),
    Pair("a progress meets a cancel", RUNNING, PROGRESS, CANCEL, Second(CANCELLED), Second("requested")),
    Pair("two releases", RUNNING, RELEASE, RELEASE, Second(NOT_RUNNING), Second(NOT_RUNNING)),
    Pair("a release meets a retry", RUNNING, RELEASE, RETRY, Second(NOT_RUNNING), Second(NOT_RUNNING)),
    Pair("two cancels of a running job", RUNNING, CANCEL, CANCEL, Second("requested"), Second("requested")),
    Pair("a fence passes a fence", RUNNING, FENCE, FENCE, Second("done", "done"), Second("done", "done")),
    Pair(
        "a renewal passes a fence",
        RUNNING,
        FENCE,
        RENEW,
        Second("done", "done"),
        Second("renewed", "renewed"),
    ),
    Pair(
        "a progress passes a fence", RUNNING, FENCE, PROGRESS, Second("done", "done"), Second("done", "done")
    ),
    Pair(
        "a cancel passes a fence",
        RUNNING,
        FENCE,
        CANCEL,
        Second(CANCELLED, "done"),
        Second("requested", "requested"),
    ),
    Pair("a finish waits for a fence", RUNNING, FENCE, FINISH, Second(FINISHED), Second("done")),
    Pair("a release waits for a fence", RUNNING, FENCE, RELEASE, Second(NOT_RUNNING), Second("pending")),
)
