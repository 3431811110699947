"""The errors of the testing kit.

AssertionError
└── KitError
    ├── NotATestDatabase    the database contains work, so its clock is not replaced
    ├── PointMissed         a crash was planned, and its point was never reached
    ├── ChildFailed         a child process ended otherwise than the test expects; the message has its output
    ├── EffectsDiffer       a workflow that crashed has left something else than one that did not
    ├── HistoryBroken       the history breaks an invariant; the message lists the breaches
    └── RunTooEasy          a torture run in which too little happened to prove anything
"""


class KitError(AssertionError):
    """A test's own assumption does not hold."""


class NotATestDatabase(KitError):
    """The database contains work, and the caller did not confirm by name that it is a test database."""


class PointMissed(KitError):
    """A crash point that a test planned for was never reached, so the test has shown nothing."""


class ChildFailed(KitError):
    """A child process ended, or did not end, contrary to the test's expectation."""


class EffectsDiffer(KitError):
    """A workflow with a crash or a pause in it has left something else behind than one without."""


class HistoryBroken(KitError):
    """The history breaks an invariant."""


class RunTooEasy(KitError):
    """A torture run broke nothing, and was not hard enough to prove anything."""
