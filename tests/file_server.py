"""A server of files on this machine that can break off, ignore ranges and lie about them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

from altmin.data import download as downloading

CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves `files`; each entry of `cuts` makes one answer break off after so many bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT}
        self.ranges, self.lengths = True, True
        self.shift = 0  # how far a range starts from where it was asked to
        self.cuts = []
        self.asked = []

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.asked.append((self.path, asked))
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
