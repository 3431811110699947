"""The documentation's site and the pages that are written from code: `make docs`, `make references`."""
