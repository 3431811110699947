"""What the testing kit raises.

AssertionError
└── KitError
    ├── NotATestDatabase    the clock of a database with work in it is not replaced
    ├── PointMissed         a crash was planned, and its point was never reached
    ├── ChildFailed         a child process ended otherwise than the test expects; the message has its output
    ├── HistoryBroken       the history breaks an invariant; the message lists how
    └── RunTooEasy          a torture in which too little happened to prove anything
"""


class KitError(AssertionError):
    """A test's own assumption does not hold."""


class NotATestDatabase(KitError):
    """The database has work in it, and nobody said by name that it is a test's."""


class PointMissed(KitError):
    """A crash point that a test planned for was never reached, so the test has shown nothing."""


class ChildFailed(KitError):
    """A child process ended, or did not end, against the test's expectation."""


class HistoryBroken(KitError):
    """What happened breaks an invariant."""


class RunTooEasy(KitError):
    """A torture broke nothing, and was not hard enough to tell."""
