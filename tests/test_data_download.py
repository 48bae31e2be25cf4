"""Downloads from a server on this machine: resumed, restarted, refused, cut off and damaged."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from file_server import CONTENT, Server, always, endless, raw, reset, running, status
from memory import MEGABYTE, memory_below

from altmin.data.damage import digest, expect
from altmin.data.download import LONGEST_PAUSE, Refused, download


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as each:
        yield each


def fetch(server, target, content=CONTENT):
    sha256 = hashlib.sha256(content).hexdigest()
    download(
        server.url("/file"), target, lambda p: expect(p, "sha256", digest(p, "sha256"), sha256), len(CONTENT), pause=0
    )


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
    download(server.url("/file"), target, lambda _: None, len(CONTENT))
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
            download(url, target, lambda _: None, len(CONTENT))
    assert not list(target.parent.iterdir())


def test_a_refusal_ends_in_a_sentence(server, target):
    with pytest.raises(Refused, match=r"answered 404 \(Not Found\) to http.*/none; get the file elsewhere"):
        download(server.url("/none"), target, lambda _: None, len(CONTENT))


@pytest.mark.parametrize(
    "answer, what",
    [
        (endless(), "it has more than 512,000 bytes"),
        (endless(f"Content-Length: {1 << 50}"), "it has 1,125,899,906,842,624 bytes, expected at most 512,000"),
        (status(200, body=CONTENT + b"more"), "it has more than 512,000 bytes"),
        (status(206, "Content-Range: bytes 0-511999/512001", body=CONTENT), "it has 512,001 bytes"),
    ],
    ids=["endless", "announced", "a little more", "of a longer file"],
)
def test_more_bytes_than_expected_are_refused_early_and_not_kept(server, target, answer, what):
    server.answers = [answer]
    with memory_below(4 * MEGABYTE), pytest.raises(ValueError, match=f"gave a wrong file: {what}"):
        fetch(server, target)
    assert list(target.parent.iterdir()) == []
    assert len(server.asked) == 1


def test_a_part_that_grows_too_long_is_thrown_away_and_fetched_anew(server, target, part):
    part.write_bytes(b"x" * 400_000)
    server.answers = [status(206, "Content-Range: bytes 400000-599999/*", body=CONTENT[:200_000])]
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=400000-", None]


@pytest.fixture
def slept(monkeypatch):
    seconds = []
    monkeypatch.setattr("altmin.data.download.time.sleep", seconds.append)
    return seconds


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504, 599])
def test_a_busy_server_is_asked_again_after_a_pause(server, target, slept, code):
    server.answers = [status(code)] * 3
    download(server.url("/file"), target, lambda _: None, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert slept == [2, 4, 8]


@pytest.mark.parametrize(
    "asked, pause", [("7", 7), ("0", 0), ("86400", LONGEST_PAUSE), ("soon", 2), ("-1", 2), ("\xb2", 2)]
)
def test_a_busy_server_says_how_long_to_wait_within_reason(server, target, slept, asked, pause):
    server.answers = [status(503, f"Retry-After: {asked}")]
    download(server.url("/file"), target, lambda _: None, len(CONTENT))
    assert target.read_bytes() == CONTENT
    assert slept == [pause]


def test_a_server_that_stays_busy_is_given_up(server, target):
    server.answers = [always(status(503))]
    with pytest.raises(Refused, match=r"answered 503 \(Reason\) to http.*/file; get the file elsewhere"):
        fetch(server, target)
    assert len(server.asked) == 4


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 416, 451])
def test_another_refusal_is_final(server, target, code):
    server.answers = [status(code)]
    with pytest.raises(Refused, match=f"answered {code}"):
        fetch(server, target)
    assert len(server.asked) == 1


def test_a_server_that_sends_a_part_of_the_range_is_asked_for_the_rest(server, target, part):
    part.write_bytes(CONTENT[:1000])
    head = ("Content-Range: bytes 1000-1999/512000", "Content-Length: 1000")
    server.answers = [status(206, *head, body=CONTENT[1000:2000])]
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-", "bytes=2000-"]


def test_a_range_that_nobody_asked_for_is_refused(server, target):
    server.answers = [always(status(206, "Content-Range: bytes 5-511999/512000", body=CONTENT[5:]))]
    with pytest.raises(ConnectionError, match="sent another part of the file than it was asked for"):
        download(server.url("/file"), target, lambda _: None, len(CONTENT))
    assert list(target.parent.iterdir()) == []


GARBAGE = "its answer is not HTTP: "


@pytest.mark.parametrize(
    "answer, what",
    [
        (raw(b""), "the server closed the connection without an answer"),
        (raw(b"SSH-2.0-OpenSSH_9.6\r\n"), GARBAGE + "BadStatusLine SSH-2.0"),
        (raw(bytes(range(256)) * 300), GARBAGE),
        (raw(b"x" * 100_000), GARBAGE + "LineTooLong"),
        (
            raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"),
            GARBAGE + "HTTPException got more than 100 headers",
        ),
        (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), GARBAGE + "IncompleteRead"),
        (status(302, "Location: http://[broken/"), "Invalid IPv6 URL"),
        (status(302, f"Location: http://{'a' * 70}.example/"), "label"),
        (status(302, "Location: http://127.0.0.1:port/"), "nonnumeric port"),
        (reset(b""), "Connection reset by peer"),
        (reset(b"HTTP/1.1 200 OK\r\n\r\n"), "Connection reset by peer"),
    ],
)
def test_what_is_not_http_ends_in_a_sentence(server, target, answer, what):
    server.answers = [always(answer)]
    with pytest.raises(ConnectionError, match=f"cannot download {server.url('/file')} .*{what}") as caught:
        fetch(server, target)
    message = str(caught.value)
    assert message.isprintable(), "one line"
    assert len(message) < 600
    assert not target.exists()


@pytest.mark.parametrize(
    "headers", [["Location: /file"], ["Location: file:///etc/passwd"], []], ids=["loop", "a local file", "nowhere"]
)
def test_a_redirection_that_leads_nowhere_is_refused(server, target, headers):
    server.answers = [always(status(302, *headers))]
    with pytest.raises(Refused, match="the server answered 302") as caught:
        fetch(server, target)
    assert str(caught.value).isprintable()
    assert list(target.parent.iterdir()) == []


def test_a_redirection_to_the_file_is_followed(server, target):
    server.answers = [status(302, f"Location: {server.url('/file')}")]
    fetch(server, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 512000\r\n\r\nabc"], ids=["no", "half an"])
def test_a_server_that_falls_silent_is_left_in_time(server, target, monkeypatch, start):
    monkeypatch.setattr("altmin.data.download.TIMEOUT", 0.2)
    done = threading.Event()
    server.answers = [always(raw(start, done.wait))]
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match=r"no answer within 0\.2 seconds"):
        fetch(server, target)
    done.set()
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize("length", ["512000", "-1", "many", "9" * 5000, ""])
def test_a_length_that_is_no_number_is_passed_over(server, target, length):
    server.answers = [status(200, f"Content-Length: {length}", body=CONTENT)]
    fetch(server, target)
    assert target.read_bytes() == CONTENT


def test_a_full_disc_is_told_with_the_name_of_the_part(server, target, part):
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"No space left on device: '{part}'"):
        fetch(server, target)
