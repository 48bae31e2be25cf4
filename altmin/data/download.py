"""Downloads that can be resumed, and that are checked before the file gets its name."""

import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path

from altmin.data.atomic import followed, naming
from altmin.data.damage import Damaged
from altmin.data.folders import prepare
from altmin.data.progress import Report, progress

BLOCK = 1 << 16
TIMEOUT = 30.0
ATTEMPTS = 20
BUSY = 4
"""The number of requests to a server that answers with 429 or 5xx."""
LONGEST_PAUSE = 30.0


class Refused(OSError):
    """The server answered with an HTTP error."""


class _Interrupted(Exception):
    """The connection failed, before or during the transfer."""


def download(url: str, target: Path, check: Callable[[Path], object], limit: int, pause: float = 1.0) -> None:
    """Download `url` to `target`, or to what it links to. The file gets that name only after `check` has accepted it.

    Until then the bytes are in `target` with `.part` appended. They stay there if the network fails, and the next call
    continues from them. A file that fails the check, or that has more than `limit` bytes, is deleted; if a part of it
    was from an earlier call, it is downloaded once more from the start, since the file on the server may have changed.
    Of a file that is too long no more than `limit` bytes are ever written. pause: seconds between attempts.

    Raises Refused if the server answers with an error, ConnectionError if the network fails or does not speak HTTP,
    ValueError if the file is not the right one, PermissionError if the folder is read-only, and another OSError, which
    names the file, if the disc is full.
    """
    target = followed(target)
    prepare(target.parent)
    part = target.with_name(target.name + ".part")
    resumed = part.exists()
    try:
        with progress(target.name) as report:
            _complete(url, part, target, limit, report, pause)
        check(part)
    except Damaged as error:
        part.unlink(missing_ok=True)
        if resumed:
            return download(url, target, check, limit, pause)
        mend = f"nothing was kept; try again later, or put a sound copy at {target} by hand"
        raise ValueError(f"{url} gave a wrong file: {error.what}; {mend}") from None
    with naming(target):
        os.replace(part, target)


def _complete(url: str, part: Path, target: Path, limit: int, report: Report, pause: float) -> None:
    """Transfer until `part` is complete.

    Tries again as long as each attempt adds to it, at most ATTEMPTS times, and if the server is busy (429 or 5xx) after
    the number of seconds that it requests, or after pauses that double, BUSY times in all.
    """
    busy = 0
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            return _transfer(url, part, limit, report)
        except urllib.error.HTTPError as error:
            error.close()
            busy += 1
            if (error.code != 429 and error.code < 500) or busy == BUSY:
                by_hand = f"get the file elsewhere and put it at {target}"
                raise Refused(f"the server answered {error.code} ({_line(error.reason)}) to {url}; {by_hand}") from None
            reason = f"the server answered {error.code}"
            asked = _number(error.headers, "Retry-After", r"(\d{1,9})")
            time.sleep(min(pause * 2**busy if asked is None else asked, LONGEST_PAUSE))
            continue
        except _Interrupted as error:
            reason = str(error)
        if _size(part) <= before:
            break
        time.sleep(min(pause, LONGEST_PAUSE))
    kept = f", which goes on from the {_size(part):,} bytes that are there," if _size(part) else ""
    raise ConnectionError(f"cannot download {url} ({reason}); try again{kept} or put the file at {target} by hand")


def _transfer(url: str, part: Path, limit: int, report: Report) -> None:
    """One request: append the missing bytes to `part`, or write it again if the server sends the whole file."""
    done = _size(part)
    try:
        response = _open(url, done)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        error.close()
        return  # nothing is left to send: the check tells whether this is the file
    with response:
        start = 0 if response.status != 206 else _number(response.headers, "Content-Range", r"bytes (\d{1,18})-\d+/.+")
        if start not in (0, done):
            raise Damaged(part, "the server sent another part of the file than it was asked for")
        done = start or 0
        total = _number(response.headers, "Content-Range", r"bytes \d+-\d+/(\d{1,18})")
        if total is None and (length := _number(response.headers, "Content-Length", r"(\d{1,18})")) is not None:
            total = done + length
        if total is not None and total > limit:
            raise Damaged(part, f"it has {total:,} bytes, expected at most {limit:,}")
        with naming(part), part.open("ab" if done else "wb") as file:
            while block := _read(response):
                if done + len(block) > limit:
                    raise Damaged(part, f"it has more than {limit:,} bytes")
                file.write(block)
                done += len(block)
                report(done, total)
    if total is not None and done < total:
        raise _Interrupted(f"the connection closed after {done:,} of {total:,} bytes")


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "altmin"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: redirected to what is no address
        raise _Interrupted(_reason(error)) from None
    if not isinstance(response, http.client.HTTPResponse):
        raise _Interrupted("the server redirected to an address that is not HTTP")
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes. Network errors become _Interrupted, so that they are not confused with errors of the disc."""
    try:
        return response.read1(BLOCK)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _Interrupted(_reason(error)) from None


def _reason(error: Exception) -> str:
    """What went wrong with a connection, in a few words."""
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"its answer is not HTTP: {type(error).__name__} {_line(error)}".strip()
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT:g} seconds"
    return _line(getattr(reason, "strerror", None) or reason) or type(error).__name__


def _line(text: object) -> str:
    """`text`, which a server may have written, as one line of at most 200 printable characters."""
    return "".join(c if c.isprintable() else " " for c in " ".join(str(text).split()))[:200]


def _number(headers: Message, name: str, pattern: str) -> int | None:
    """The number in a header, if it has the form of `pattern`."""
    match = re.fullmatch(pattern, headers.get(name, "").strip(), re.ASCII)
    return int(match[1]) if match else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
