"""Downloads that resume where they broke off, and are checked before they take their name."""

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
    """The server was reached and would not give the file."""


class _Interrupted(Exception):
    """The connection failed, before or during the transfer."""


def download(url: str, target: Path, check: Callable[[Path], object], pause: float = 1.0) -> None:
    """Fetch `url` to `target`, which appears only once `check` has passed it.

    The bytes gather in `target` with `.part` appended. They stay there when the network fails, and the
    next call goes on from them. What fails the check is thrown away; if an earlier call had left a part
    of it, the file is fetched once more from the start, as it may have changed in between.
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
    """Transfer until `part` is whole, trying again for as long as each attempt brings it further."""
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
    """One request: append what is still missing to `part`, or all of it if the server gives all of it."""
    done = _size(part)
    try:
        response = _open(url, done)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        if error.headers.get("Content-Range") == f"bytes */{done}":
            return  # whole already: it was interrupted between the transfer and the check
        part.unlink()
        return _transfer(url, part, report)
    with response:
        given = response.headers.get("Content-Range", "")
        if done and response.status == 206 and not given.startswith(f"bytes {done}-"):
            part.unlink()  # not the bytes asked for: ask for all of them
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
    """The next bytes; network errors are told apart from those of the disc here."""
    try:
        return response.read1(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(str(error) or type(error).__name__) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
