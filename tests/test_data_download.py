"""Downloads from a server on this machine: resumed, restarted, refused, cut off and damaged."""

import hashlib
import socket
from collections.abc import Iterator

import pytest
from file_server import CONTENT, Server, running

from altmin.data.damage import digest, expect
from altmin.data.download import Refused, download


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as each:
        yield each


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
