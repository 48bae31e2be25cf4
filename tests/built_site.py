"""The site of docs/, built once for all tests that look at it, and what its pages hold."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """What `make docs` runs, into another folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, "--site-dir", str(folder)], capture_output=True, text=True, cwd=ROOT, env=environment
    )


@functools.cache
def built() -> Path:
    """The folder of the site. Skips the test where mkdocs is missing."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = Path(tempfile.mkdtemp(prefix="altmin-site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = build(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


class Contents(HTMLParser):
    """Of one page: its tags, the ids one can link to, links, and what it loads by itself."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.loads.add(given["href"])
        elif tag in ("img", "script", "iframe") and "src" in given:
            self.loads.add(given["src"])


@functools.cache
def pages() -> dict[str, Contents]:
    """Every page of the site by its place in it, but the one that a server shows for others that are missing."""
    found = sorted(path for path in built().rglob("*.html") if path.name != "404.html")
    return {path.relative_to(built()).as_posix(): Contents(path.read_text()) for path in found}
