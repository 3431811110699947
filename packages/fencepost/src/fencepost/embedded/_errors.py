"""The errors of an embedded server. To a caller each of them is an unavailable server.

ServerUnavailable
└── EmbeddedError
    ├── BinaryMissingError    no server of this kind is installed; the message says what to install
    ├── DirectoryInUseError   a live process holds the directory; the message names it
        ├── IdentityError         this account cannot run the server, and no other account can be used
    ├── ServerStartError      the server ended, or was not ready in time; the message ends with its log
    └── NotRunningError       the call needs a running server
"""

from fencepost.errors import ServerUnavailable


class EmbeddedError(ServerUnavailable):
    """An embedded server could not do what was asked."""


class BinaryMissingError(EmbeddedError):
    """No server of this kind is installed."""


class DirectoryInUseError(EmbeddedError):
    """Another live process is using the server's directory."""


class IdentityError(EmbeddedError):
    """PostgreSQL refuses this account, and no other account can be used."""


class ServerStartError(EmbeddedError):
    """The server ended while it started, or was not ready in time."""


class NotRunningError(EmbeddedError):
    """The server is not running."""
