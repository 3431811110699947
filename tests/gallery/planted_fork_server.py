"""The fork server with a planted bug, named by its first argument. The product has no such option."""

import sys

from fencepost_torture import _fork_server as fork_server
from tests.gallery.mutants import planted

if __name__ == "__main__":
    with planted(sys.argv[1]):
        fork_server.main(sys.argv[2:])
