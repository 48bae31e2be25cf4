"""Downloads that can be resumed, and that are checked before the file gets its name."""

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from altmin.data.damage import Damaged
from altmin.data.folders import prepare
from altmin.data.progress import Report, progress

BLOCK = 1 << 16
TIMEOUT = 30.0
ATTEMPTS = 20


class Refused(OSError):
    """The server answered with an HTTP error."""


class _Interrupted(Exception):
    """The connection failed, before or during the transfer."""


def download(url: str, target: Path, check: Callable[[Path], object], pause: float = 1.0) -> None:
    """Download `url` to `target`. The file gets that name only after `check` has accepted it.

    Until then the bytes are in `target` with `.part` appended. They stay there if the network fails, and the next call
    continues from them. A file that fails the check is deleted; if a part of it was from an earlier call, it is
    downloaded once more from the start, since the file on the server may have changed. pause: seconds between attempts.

    Raises Refused if the server answers with an error, ConnectionError if the network fails, ValueError if the file is
    not the right one, PermissionError if the folder is read-only.
    """
    prepare(target.parent)
    part = target.with_name(target.name + ".part")
    resumed = part.exists()
    with progress(target.name) as report:
        _complete(url, part, target, report, pause)
    try:
        check(part)
    except Damaged as error:
        part.unlink()
        if resumed:
            return download(url, target, check, pause)
        mend = f"nothing was kept; try again later, or put a sound copy at {target} by hand"
        raise ValueError(f"{url} gave a wrong file: {error.what}; {mend}") from None
    os.replace(part, target)


def _complete(url: str, part: Path, target: Path, report: Report, pause: float) -> None:
    """Transfer until `part` is complete; try again as long as each attempt adds to it, at most ATTEMPTS times."""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            return _transfer(url, part, report)
        except urllib.error.HTTPError as error:
            by_hand = f"get the file elsewhere and put it at {target}"
            raise Refused(f"the server answered {error.code} ({error.reason}) to {url}; {by_hand}") from None
        except _Interrupted as error:
            reason = error
        if _size(part) <= before:
            break
        time.sleep(pause)
    kept = f", which goes on from the {_size(part):,} bytes that are there," if _size(part) else ""
    raise ConnectionError(f"cannot download {url} ({reason}); try again{kept} or put the file at {target} by hand")


def _transfer(url: str, part: Path, report: Report) -> None:
    """One request: append the missing bytes to `part`, or write it anew if the server sends the whole file."""
    done = _size(part)
    try:
        response = _open(url, done)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        if error.headers.get("Content-Range") == f"bytes */{done}":
            return  # complete already: the earlier call ended between the transfer and the check
        part.unlink()
        return _transfer(url, part, report)
    with response:
        given = response.headers.get("Content-Range", "")
        if done and response.status == 206 and not given.startswith(f"bytes {done}-"):
            part.unlink()  # not the bytes that were asked for: start over
            return _transfer(url, part, report)
        if response.status != 206:
            done = 0  # the server ignores ranges
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            while block := _read(response):
                file.write(block)
                done += len(block)
                report(done, total)
    if total is not None and done < total:
        raise _Interrupted(f"the connection closed after {done:,} of {total:,} bytes")


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "altmin"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise _Interrupted(getattr(reason, "strerror", None) or str(reason) or type(error).__name__) from None


def _read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes. Network errors become _Interrupted, so that they are not confused with errors of the disc."""
    try:
        return response.read1(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(str(error) or type(error).__name__) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
