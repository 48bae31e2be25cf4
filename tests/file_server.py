"""A server of files on this machine that can break off, ignore ranges, lie about them, and answer anything at all."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

from altmin.data import download as downloading

CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves `files`; each entry of `cuts` makes one answer break off after so many bytes.

    Each entry of `answers` is called in place of one answer.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.ranges, self.lengths = True, True
        self.shift = 0  # how far a range starts from where it was asked to
        self.cuts = []
        self.answers: list[Answer] = []
        self.asked = []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
        if self.server.answers:
            return self.server.answers.pop(0)(self)
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        start += self.server.shift if start else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.lengths:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(content)
        self.wfile.write(content[start : start + cut])

    def handle(self) -> None:
        with suppress(ConnectionError):  # the other side may leave in the middle of an answer
            super().handle()


Answer = Callable[[Handler], object]


def raw(content: bytes, then: Callable[[], object] = lambda: None) -> Answer:
    """An answer of these bytes, headers and all; `then` is called before the connection is closed."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(content)
        handler.wfile.flush()
        then()

    return answer


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    """An answer with this status, these headers and this body, and no Content-Length but where it is given."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {code} Reason", *headers, "Connection: close", ""))
    return raw(head.encode("latin-1") + body)


def endless(*headers: str, block: bytes = bytes(1 << 16)) -> Answer:
    """An answer whose body never ends."""

    def answer(handler: Handler) -> None:
        handler.wfile.write("".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", *headers, "")).encode())
        while True:
            handler.wfile.write(block)

    return answer


def always(answer: Answer) -> Answer:
    """The same answer to every request from now on."""

    def again(handler: Handler) -> None:
        handler.server.answers.insert(0, again)
        answer(handler)

    return again


def reset(after: bytes) -> Answer:
    """An answer that ends in a reset of the connection after these bytes, not in its end."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(after)
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(handler.connection.detach())

    return answer


@contextmanager
def running() -> Iterator[Server]:
    """A server that answers until the end of the block; downloads wait 5 seconds for it, and use no proxy."""
    with (
        patch.dict("os.environ", {"no_proxy": "127.0.0.1"}),
        patch.object(downloading, "TIMEOUT", 5.0),
        Server() as server,
    ):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
