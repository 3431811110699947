"""The nursery with a bug in it: its first argument is the mutant's name. The product has no such door."""

import sys

from fencepost_torture import _fork_server as fork_server
from tests.gallery.mutants import planted

if __name__ == "__main__":
    with planted(sys.argv[1]):
        fork_server.main(sys.argv[2:])
