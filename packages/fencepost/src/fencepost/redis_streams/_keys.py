"""The names of all keys in Redis. Each begins with `fencepost:`, so that the rule `~fencepost:*` grants them.

A cluster puts keys with the same part in braces into one slot, and a script may use keys of one slot only:

    fencepost:{jobs}                          the stream of the default queue, at normal priority
    fencepost:{jobs}:urgent:q:mail            the stream of another queue and priority
    fencepost:{jobs}:incarnation              names one life of Redis; a wipe removes it
    fencepost:{jobs}:probe                    written to learn whether Redis takes writes
    fencepost:{flow:NAME/GROUP}:channel:…     records for a key group of a flow; also incarnation, rewind
    fencepost:mutation:{SCOPE/KEY}            the response of a request with an idempotency key
    fencepost:frontier:{KEY}                  how far a flow has written the user's key KEY; also seen

A stream key without braces, which JOBS_STREAM_KEY may name, is put into braces in the keys derived from it.
"""

from __future__ import annotations

PREFIX = "fencepost:"
RESPONSES = f"{PREFIX}mutation:*"
"""The pattern of all responses."""
JOBS_STREAM = f"{PREFIX}{{jobs}}"
JOBS_GROUP = f"{PREFIX}workers"


def beside(stream: str, what: str) -> str:
    """A key that lies in the stream's slot of a cluster, so that one script may touch both.

    The slot is computed from the part in braces, or from the whole key if there is none: `{jobs}:urgent` is
    in the slot of `jobs`.
    """
    return f"{stream}:{what}" if "{" in stream else f"{{{stream}}}:{what}"


def channel(flow: str, group: int | str, what: str, sender: str) -> str:
    """A key of the channel from one sender to one key group: all of a group lie in one slot."""
    return f"{PREFIX}{{flow:{flow}/{group}}}:{what}:{sender}"


def response(scope: str, key: str) -> str:
    return f"{PREFIX}mutation:{{{scope}/{key}}}"


def of_sink(what: str, key: str) -> str:
    """A key of ours for a key of the user, in the same slot."""
    start = key.find("{")
    end = key.find("}", start + 1)
    return f"{PREFIX}{what}:{key}" if 0 <= start < end - 1 else f"{PREFIX}{what}:{{{key}}}"
