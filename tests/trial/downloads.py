"""Downloads from a server that does everything wrong that a server can do.

After each, either the right file is there, or one sentence was raised and nothing lies under the file's name; and the
next download from a server that works gives the right file, whatever the last one left behind.
"""

import dataclasses
import functools
import gzip
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' folder, however this was started

from file_server import Answer, Handler, Server, always, endless, raw, reset, running, status
from memory import MEGABYTE, peak, restart_peak
from tiny_data import bomb, idx, sha256

from altmin.data import download as downloading
from altmin.data.fashion_mnist import FASHION_MNIST
from altmin.data.idx_images import IdxImages

IMAGES = np.random.default_rng(0).integers(0, 256, (300, 28, 28), np.uint8)
LABELS = np.arange(300, dtype=np.uint8)
CONTENT = {name: idx(IMAGES if "idx3" in name else LABELS) for name in FASHION_MNIST.sha256}
NAME = "train-images-idx3-ubyte"
RIGHT = gzip.compress(CONTENT[NAME], mtime=0)
LIMIT = len(RIGHT) + 100_000
MOST_MEMORY = 32 * MEGABYTE

Draw = Callable[[random.Random], Answer]
OK = "HTTP/1.1 200 OK\r\n"


def serve(content: bytes, *headers: str, code: int = 200) -> Answer:
    return status(code, *headers, body=content)


def ranged(draw: random.Random) -> Answer:
    """A range with a start, an end and a total that are drawn: it fits what was asked for by chance only."""
    start, end, total = (draw.choice([0, 1, 1000, len(RIGHT) - 1, len(RIGHT), 10**15]) for _ in range(3))
    return serve(RIGHT[start:], f"Content-Range: bytes {start}-{end}/{draw.choice([total, '*', 'x'])}", code=206)


def slowly(draw: random.Random) -> Answer:
    """The right file, in pieces with pauses."""
    piece = len(RIGHT) // draw.randint(2, 6) + 1

    def answer(handler: Handler) -> None:
        handler.wfile.write((OK + f"Content-Length: {len(RIGHT)}\r\n\r\n").encode())
        for start in range(0, len(RIGHT), piece):
            time.sleep(0.01)
            handler.wfile.write(RIGHT[start : start + piece])

    return answer


def silent(draw: random.Random) -> Answer:
    """Some bytes of an answer, and then nothing for longer than a download waits."""
    answer = (OK + f"Content-Length: {len(RIGHT)}\r\n\r\n").encode() + RIGHT
    return raw(answer[: draw.choice([0, 5, 40, 1000])], lambda: time.sleep(0.3))


def spoilt(draw: random.Random) -> bytes:
    """The right file with some bytes changed."""
    content = bytearray(RIGHT)
    for _ in range(draw.randint(1, 5)):
        content[draw.randrange(len(content))] ^= draw.randint(1, 255)
    return bytes(content)


def garbage(draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice([0, 1, 100, 70_000]))


def cut(draw: random.Random) -> bytes:
    return RIGHT[: draw.randrange(len(RIGHT))]


@functools.cache
def bombs() -> list[bytes]:
    """Small files that unpack to 64 MB: of zeros, after the right header, and after one that announces all of it."""
    return [bomb(start, 64 * MEGABYTE) for start in (b"", HEADER, HEADER[:4] + b"\xff" * 12)]


LENGTH = f"Content-Length: {len(RIGHT)}"
HEADER = CONTENT[NAME][:16]
CHUNKED = OK + "Transfer-Encoding: chunked\r\n\r\n"

FAULTS: dict[str, Draw] = {
    "no fault": lambda draw: serve(RIGHT, LENGTH),
    "no length": lambda draw: serve(RIGHT),
    "busy": lambda draw: serve(
        b"", f"Retry-After: {draw.choice(['0', 'soon', '-1', ''])}", code=draw.choice([429, 503])
    ),
    "server error": lambda draw: serve(garbage(draw), code=draw.randint(500, 599)),
    "client error": lambda draw: serve(garbage(draw), code=draw.choice([400, 401, 403, 404, 405, 410, 418, 451])),
    "wrong range": lambda draw: serve(b"", f"Content-Range: bytes */{draw.randint(0, 10**6)}", code=416),
    "no range": lambda draw: serve(b"", code=416),
    "odd status": lambda draw: serve(draw.choice([b"", RIGHT]), code=draw.choice([201, 203, 204, 205, 299, 304, 399])),
    "cut, by length": lambda draw: serve(cut(draw), LENGTH),
    "cut, no length": lambda draw: serve(cut(draw)),
    "cut chunk": lambda draw: raw(f"{CHUNKED}{len(RIGHT):x}\r\n".encode() + cut(draw)),
    "odd chunk": lambda draw: raw(CHUNKED.encode() + draw.choice([b"-5\r\n", b"zz\r\n", b"\r\n", b"f" * 40]) + RIGHT),
    "endless chunk": lambda draw: raw(f"{CHUNKED}{1 << 60:x}\r\n".encode() + RIGHT + bytes(LIMIT)),
    "length too short": lambda draw: serve(RIGHT, f"Content-Length: {draw.randrange(len(RIGHT))}"),
    "length too long": lambda draw: serve(RIGHT, f"Content-Length: {len(RIGHT) + draw.randint(1, 10**6)}"),
    "huge length": lambda draw: serve(RIGHT, f"Content-Length: {10 ** draw.randint(9, 40)}"),
    "odd length": lambda draw: serve(
        RIGHT, f"Content-Length: {draw.choice(['-1', 'many', '1e5', '0x10', '9' * 5000])}"
    ),
    "two lengths": lambda draw: serve(RIGHT, "Content-Length: 10", LENGTH),
    "lying range": ranged,
    "range unasked": lambda draw: serve(RIGHT[5:], f"Content-Range: bytes 5-{len(RIGHT)}/*", code=206),
    "no Content-Range": lambda draw: serve(RIGHT, code=206),
    "endless": lambda draw: endless(),
    "endless, announced": lambda draw: endless(f"Content-Length: {10**15}"),
    "endless after the file": lambda draw: endless(block=RIGHT),
    "a little too long": lambda draw: serve(RIGHT + bytes(draw.randint(LIMIT, LIMIT + 100))),
    "more after the end": lambda draw: serve(RIGHT + garbage(draw)),
    "a page": lambda draw: serve(b"<html>Log in to the network</html>"),
    "another file": lambda draw: serve(gzip.compress(CONTENT["t10k-labels-idx1-ubyte"])),
    "spoilt": lambda draw: serve(spoilt(draw), LENGTH),
    "random bytes": lambda draw: serve(garbage(draw)),
    "gzip of garbage": lambda draw: serve(gzip.compress(garbage(draw))),
    "bomb": lambda draw: serve(draw.choice(bombs())),
    "compressed": lambda draw: serve(gzip.compress(RIGHT), "Content-Encoding: gzip"),
    "redirect": lambda draw: status(draw.choice([301, 302, 303, 307, 308]), "Location: /elsewhere"),
    "redirect in a circle": lambda draw: always(status(302, f"Location: /{NAME}.gz")),
    "redirect to nowhere": lambda draw: status(302, f"Location: {draw.choice(NOWHERE)}"),
    "redirect without a place": lambda draw: status(302),
    "slow": slowly,
    "silent": silent,
    "not HTTP": lambda draw: raw(
        draw.choice([b"SSH-2.0-OpenSSH_9.6\r\n", b"\0" * 100, b"HTTP/9.9 abc\r\n\r\n", b"\r\n\r\n"])
    ),
    "bytes for an answer": lambda draw: raw(garbage(draw)),
    "long line": lambda draw: raw(b"HTTP/1.1 200 " + b"x" * draw.choice([1000, 100_000]) + b"\r\n\r\n" + RIGHT),
    "many headers": lambda draw: raw(OK.encode() + b"A: b\r\n" * draw.randint(90, 300) + b"\r\n" + RIGHT),
    "odd headers": lambda draw: raw(OK.encode() + b"\xff\xfe\r\n: \r\n\x00\x80: x\r\n\r\n" + RIGHT),
    "reset at once": lambda draw: reset(b""),
    "reset in the middle": lambda draw: reset((OK + LENGTH + "\r\n\r\n").encode() + cut(draw)),
}
NOWHERE = [
    "http://[broken/",
    f"http://{'a' * 70}.example/",
    "http://127.0.0.1:port/",
    "http://127.0.0.1:1/",
    "file:///etc/passwd",
    "ftp://127.0.0.1:1/file",
    "http://\xff\xfe/",
    "http://127.0.0.1 /x y",
    "",
]


def trial(count: int, seed: int, failures: list[str]) -> dict[str, int]:
    """Runs `count` cases drawn with `seed`; adds a sentence to `failures` for each that went wrong; returns counters.

    Every fault comes once before any comes again; a case has one to three faults, one after the other or for ever, and
    half of the cases find a part that an earlier download left, of the right file or of another.
    """
    counters = {"downloads": 0, "refused": 0, "faults": 0}
    draw = random.Random(seed)
    waiting = patch.object(downloading, "TIMEOUT", 0.15), patch.object(downloading, "LONGEST_PAUSE", 0.001)
    with running() as server, waiting[0], waiting[1], tempfile.TemporaryDirectory() as folder:
        for number, first in enumerate(_in_turn(draw, count)):
            names = [first, *draw.choices(list(FAULTS), k=draw.randrange(3))]
            case = f"case {number} of seed {seed} ({', '.join(names)})"
            server.answers = [FAULTS[name](draw) for name in names]
            if draw.random() < 0.3:
                server.answers[-1] = always(server.answers[-1])
            refused = _case(server, Path(folder) / str(number), _left(draw), case, failures)
            counters["refused" if refused else "downloads"] += 1
    counters["faults"] = min(count, len(FAULTS))
    return counters


def _in_turn(draw: random.Random, count: int) -> Iterator[str]:
    """So many names of faults, each once before any comes again, in an order that is drawn."""
    for start in range(0, count, len(FAULTS)):
        yield from draw.sample(list(FAULTS), len(FAULTS))[: count - start]


def _left(draw: random.Random) -> bytes | None:
    """What an earlier download left: nothing, a part of the right file, all of it, or something else."""
    kinds = (None, None, None, cut(draw), RIGHT, RIGHT + b"more", garbage(draw), bytes(2 * LIMIT))
    return draw.choice(kinds)


def _data_set(server: Server) -> IdxImages:
    """A small data set in the form of Fashion-MNIST, from this server."""
    sums = {name: sha256(content) for name, content in CONTENT.items()}
    splits = {"train": 200, "validation": 100, "test": 300}
    return dataclasses.replace(FASHION_MNIST, splits=splits, sha256=sums, url=server.url("/"), download_size=LIMIT)


def _case(server: Server, root: Path, left: bytes | None, case: str, failures: list[str]) -> bool:
    """One download under faults, and one after them; whether the first was refused."""
    known = _data_set(server)
    server.files = {f"/{name}.gz": gzip.compress(content, mtime=0) for name, content in CONTENT.items()}
    server.files["/elsewhere"] = server.files[f"/{NAME}.gz"]
    target = known.files(root)[0]
    target.parent.mkdir(parents=True)
    if left is not None:
        target.with_name(target.name + ".part").write_bytes(left)
    for path in known.files(root)[1:]:
        path.write_bytes(server.files[f"/{path.name}"])
    before, begun = restart_peak(), time.monotonic()
    said = _fetch(known, root)
    taken, seconds = peak() - before, time.monotonic() - begun
    if said is None and not known.sound(target):
        failures.append(f"{case}: nothing was raised, and {target.name} is not sound")
    if said is not None and target.exists():
        failures.append(f"{case}: {said!r} was raised, and {target.name} is there")
    if said is not None and not said.startswith(("OSError: ", "ValueError: ")):
        failures.append(f"{case}: {said!r} is no OSError or ValueError")
    if said is not None and not (said.isprintable() and len(said.partition(": ")[2]) > 20):
        failures.append(f"{case}: {said!r} is not a sentence in one line")
    if taken > MOST_MEMORY:
        failures.append(f"{case}: {taken:,} bytes of memory were taken")
    if seconds > 5:
        failures.append(f"{case}: it took {seconds:.1f} s")
    server.answers = []
    with patch.object(downloading, "TIMEOUT", 30.0):  # a sound server answers, on a busy machine some time later
        after = _fetch(known, root)
    if after is not None or not known.sound(target):
        failures.append(f"{case}: the download that followed from a sound server failed: {after}")
    if others := [path for path in target.parent.iterdir() if path not in known.files(root)]:
        failures.append(f"{case}: {[path.name for path in others]} were left behind")
    shutil.rmtree(root)
    return said is not None


def _fetch(known: IdxImages, root: Path) -> str | None:
    """Fetch what is missing; what was raised, if anything was, after the name of its family."""
    try:
        known.fetch(root)
    except Exception as error:
        family = next((kind for kind in (OSError, ValueError) if isinstance(error, kind)), type(error))
        if isinstance(error, UnicodeError):
            family = UnicodeError
        return f"{family.__name__}: {error}"
    return None
