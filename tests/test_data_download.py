"""Downloads from a server on this machine: resumed, restarted, refused, cut off and spoilt."""

import dataclasses
import gzip
import hashlib
import io
import socket
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from altmin.data import Damaged
from altmin.data import download as downloading
from altmin.data.cifar10 import CIFAR10
from altmin.data.damage import digest, expect
from altmin.data.download import Refused, download
from altmin.data.fashion_mnist import FASHION_MNIST
from altmin.data.higgs import HIGGS

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


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloading, "TIMEOUT", 5.0)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def fetch(server, target, content=CONTENT):
    sha256 = hashlib.sha256(content).hexdigest()
    download(server.url("/file"), target, lambda p: expect(p, "sha256", digest(p, "sha256"), sha256), pause=0)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file"


@pytest.fixture
def part(target):
    target.parent.mkdir()
    return target.with_name("file.part")


def ranges(server):
    return [asked for _, asked in server.asked]


@pytest.mark.parametrize("lengths", [True, False])
def test_a_plain_download(server, target, lengths, capfd):
    server.lengths = lengths
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert capfd.readouterr() == ("", "")  # nobody watches a pipe


def test_an_interrupted_download_goes_on_where_it_broke_off(server, target):
    server.cuts = [100_000, 200_000]
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=300000-"]


def test_what_another_run_left_is_continued(server, target, part):
    part.write_bytes(CONTENT[:12345])
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=12345-"]
    assert not part.exists()


def test_a_server_without_ranges_starts_over(server, target, part):
    server.ranges = False
    part.write_bytes(b"x" * 1000)
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


def test_another_range_than_asked_for_is_not_appended(server, target, part):
    server.shift = -5
    part.write_bytes(CONTENT[:1000])
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-", None]
    part.write_bytes(CONTENT[:1000])
    download(server.url("/file"), target, lambda _: None)
    assert target.read_bytes() == CONTENT  # not even where no checksum would notice


def test_a_part_that_is_already_whole_is_only_checked(server, target, part):
    part.write_bytes(CONTENT)
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(CONTENT)}-"]


def test_a_part_longer_than_the_file_is_thrown_away(server, target, part):
    part.write_bytes(CONTENT + b"more")
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server)[1:] == [None]


def test_a_part_of_another_file_is_found_out_and_fetched_anew(server, target, part):
    part.write_bytes(b"x" * 1000)
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-", None]


def test_wrong_content_is_never_kept(server, target):
    server.files["/file"] = b"<html>Log in to the network</html>"
    with pytest.raises(ValueError, match=f"{server.url('/file')} gave a wrong file: .* put a sound copy at {target}"):
        fetch(server, target)
    assert list(target.parent.iterdir()) == []
    assert len(server.asked) == 1


def test_a_connection_that_brings_nothing_more_ends_in_a_sentence(server, target):
    server.cuts = [1000, 0, 0]
    with pytest.raises(ConnectionError, match=f"from the 1,000 bytes that are there, or put the file at {target}"):
        fetch(server, target)
    assert not target.exists()
    server.cuts = []
    fetch(server, target)
    assert ranges(server)[-1] == "bytes=1000-"
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_that_always_breaks_off_is_given_up(server, target):
    server.ranges, server.cuts = False, [1000] * 50
    with pytest.raises(ConnectionError, match="the connection closed after 1,000 of 512,000 bytes"):
        fetch(server, target)
    assert len(server.asked) == 2


def test_an_unreachable_server_ends_in_a_sentence(target, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(ConnectionError, match=f"cannot download {url} .*put the file at {target} by hand"):
            download(url, target, lambda _: None)
    assert not list(target.parent.iterdir())


def test_a_refusal_ends_in_a_sentence(server, target):
    with pytest.raises(Refused, match=r"answered 404 \(Not Found\) to http.*/none; get the file elsewhere"):
        download(server.url("/none"), target, lambda _: None)


def test_progress_is_shown_on_a_terminal(server, target, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    fetch(server, target)
    assert "file" in capsys.readouterr().err


def test_fetching_fashion_mnist_replaces_only_what_is_not_sound(server, tmp_path):
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6])
    images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9])
    sums = {}
    for name in FASHION_MNIST.md5:
        content = images if "idx3" in name else labels
        server.files[f"/{name}.gz"] = gzip.compress(content)
        sums[name] = hashlib.md5(content).hexdigest()
    tiny = dataclasses.replace(FASHION_MNIST, url=server.url("/"), md5=sums)
    assert tiny.fetch(tmp_path) == tiny.files(tmp_path)
    assert tiny.fetch(tmp_path) == []
    assert len(server.asked) == 4
    spoilt = tiny.files(tmp_path)[2]
    spoilt.write_bytes(b"spoilt")
    assert tiny.fetch(tmp_path) == [spoilt]
    assert [check.state for check in tiny.verify(tmp_path)] == ["sound"] * 4


RECORD = bytes(3073)


def tar(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def cifar(server, members):
    content = server.files["/cifar.tar.gz"] = tar(members)
    sums = {f"data_batch_{batch}": hashlib.md5(RECORD).hexdigest() for batch in (1, 2)}
    url, archive_md5 = server.url("/cifar.tar.gz"), hashlib.md5(content).hexdigest()
    return dataclasses.replace(CIFAR10, url=url, md5=sums, archive_md5=archive_md5, batch=1)


def test_fetching_cifar10_unpacks_the_batches_and_nothing_else(server, tmp_path):
    batches = {f"cifar-10-batches-bin/data_batch_{batch}.bin": RECORD for batch in (1, 2)}
    evil = {"../evil": b"evil", "/evil": b"evil", "cifar-10-batches-bin/../../evil": b"evil", "readme": b"-"}
    tiny = cifar(server, evil | batches)
    root = tmp_path / "data"
    assert tiny.fetch(root) == tiny.files(root)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(found) == tiny.files(root)
    tiny.files(root)[0].write_bytes(b"")
    assert tiny.fetch(root) == tiny.files(root)[:1]


def test_a_cifar10_archive_put_there_by_hand_is_not_downloaded(server, tmp_path):
    tiny = cifar(server, {f"cifar-10-batches-bin/data_batch_{batch}.bin": RECORD for batch in (1, 2)})
    (tmp_path / "cifar10").mkdir()
    archive = tmp_path / "cifar10" / "cifar-10-binary.tar.gz"
    archive.write_bytes(server.files["/cifar.tar.gz"])
    tiny.fetch(tmp_path)
    assert server.asked == []
    assert not archive.exists()


def test_a_cifar10_archive_with_wrong_or_missing_batches_is_refused(server, tmp_path):
    first, second = (f"cifar-10-batches-bin/data_batch_{batch}.bin" for batch in (1, 2))
    with pytest.raises(Damaged, match=f"lacks {second}"):
        cifar(server, {first: RECORD}).fetch(tmp_path / "a")
    with pytest.raises(Damaged, match=r"data_batch_2\.bin is damaged: its content has md5"):
        cifar(server, {first: RECORD, second: b"\1" + RECORD[1:]}).fetch(tmp_path / "b")
    assert not list((tmp_path / "b").rglob("data_batch_2*"))


def higgs(server, content):
    url, zip_url = server.url("/HIGGS.csv.gz"), server.url("/higgs.zip")
    return dataclasses.replace(HIGGS, url=url, zip_url=zip_url, sha256=hashlib.sha256(content).hexdigest())


def zipped(name, content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def test_fetching_higgs(server, tmp_path):
    content = server.files["/HIGGS.csv.gz"] = gzip.compress(b"1.0\n")
    tiny = higgs(server, content)
    (path,) = tiny.fetch(tmp_path)
    assert path.read_bytes() == content
    assert tiny.fetch(tmp_path) == []
    assert len(server.asked) == 1


def test_higgs_comes_from_the_zip_archive_where_the_plain_file_is_gone(server, tmp_path):
    content = gzip.compress(b"1.0\n")
    server.files["/higgs.zip"] = zipped("HIGGS.csv.gz", content)
    (path,) = higgs(server, content).fetch(tmp_path)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "archive, what",
    [
        (b"<html>", "gave a wrong file: it is not the archive expected"),
        (zipped("other", b""), "gave a wrong file: it is not the archive expected"),
        (zipped("HIGGS.csv.gz", b"other"), "higgs.zip is damaged: its content has sha256"),
    ],
)
def test_a_wrong_higgs_archive_is_refused(server, tmp_path, archive, what):
    server.files["/higgs.zip"] = archive
    with pytest.raises(ValueError, match=what):
        higgs(server, b"right").fetch(tmp_path)
    assert not (tmp_path / "higgs" / "HIGGS.csv.gz").exists()
