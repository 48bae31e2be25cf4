"""Opens a page in headless Chromium, which can reach no other machine, and asks it questions by a script put into a
copy."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # which a container or root has not; the page is our own
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)
PROBE = """
<script>
addEventListener("load", async () => {
  let found;
  try { found = await (async () => { %s })(); } catch (error) { found = { failed: String(error) }; }
  const note = document.createElement("pre");
  note.id = "found";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
});
</script>
</body>
"""


def browser() -> str:
    """Its path. Skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium to open a page with; install Debian's chromium, or Google Chrome")
    return found


def framed(page: Path, width: int) -> Path:
    """A page that shows another in a frame, #frame: a window cannot be as narrow as a phone."""
    outer = page.with_name("framed.html")
    frame = (
        f'<iframe id="frame" width="{width}" height="800" style="border: 0" srcdoc="{html.escape(page.read_text())}">'
    )
    outer.write_text(f"<!DOCTYPE html><html><body>{frame}</iframe></body></html>")
    return outer


def ask(page: Path, script: str, address: str | None = None) -> tuple[Any, list[str]]:
    """What a script, the body of an async function, returns in the page once it is loaded, and what the page wrote to
    the console. The page is left as it is. address: where its copy, probed.html, is opened; else as a file."""
    copy = page.with_name("probed.html")
    before, end, after = page.read_text().rpartition("</body>")
    assert end
    copy.write_text(before + PROBE % script + after)
    place = (f"--user-data-dir={page.parent / 'profile'}", "--window-size=1280,900")
    command = [browser(), *FLAGS, *place, "--dump-dom", address or copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page did not answer:\n{done.stderr[-2000:]}"
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console
