"""`make docs`: build the site into dist/docs/VERSION, beside other versions. A warning is an error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.site import references
from docs.site.conf import ROOT, release, root_doc

REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>Fencepost</title>'
    '<meta http-equiv="refresh" content="0; url={}">\n'
)


def build(source: Path, site: Path, cache: Path, version: str) -> int:
    """Build one version of the site below `site`; answers Sphinx's exit code."""
    place = site / version
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
    here = ["--conf-dir", str(Path(__file__).parent), "--doctree-dir", str(cache)]
    if code := build_main([*options, *here, str(source), str(place)]):
        return code
    (place / "index.html").write_text(REDIRECT.format(f"{root_doc}.html"))
    versions = sorted((folder.name for folder in site.iterdir() if folder.is_dir()), key=_order, reverse=True)
    (site / "versions.json").write_text(json.dumps(versions))
    (site / "index.html").write_text(REDIRECT.format(f"{versions[0]}/{root_doc}.html"))
    return 0


def _order(version: str) -> tuple[tuple[int, str], ...]:
    """0.10 comes after 0.9."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in version.split("."))


def main() -> int:
    references.write(references.generated())
    if code := build(ROOT, ROOT / "dist/docs", ROOT / ".fencepost/doctrees", release):
        return code
    sys.stderr.write("The site is in dist/docs: `fencepost docs` shows it.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
