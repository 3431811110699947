"""The nursery with a bug in it: its first argument is the mutant's name. The product has no such door."""

import sys

from fencepost.torture import nursery
from tests.gallery.mutants import planted

if __name__ == "__main__":
    with planted(sys.argv[1]):
        nursery.main(sys.argv[2:])
