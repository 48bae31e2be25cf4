"""Downloads from a server on this machine: resumed, restarted, refused, cut off and damaged."""

import hashlib
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from file_server import CONTENT, always, endless, raw, reset, running, status
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import MEGABYTE, memory_below

from altmin.data.damage import digest, expect
from altmin.data.download import LONGEST_PAUSE, Refused, download


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


@pytest.mark.parametrize("lengths", [True, False])
def test_a_plain_download(server, target, lengths, capfd):
    server.lengths = lengths
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert capfd.readouterr() == ("", "")  # nobody watches a pipe


HALF = ("Content-Range: bytes 1000-1999/512000", "Content-Length: 1000")
LEFT: dict[str, tuple[dict[str, Any], bytes, list[str | None]]] = {
    "broken off twice": ({"cuts": [100_000, 200_000]}, b"", [None, "bytes=100000-", "bytes=300000-"]),
    "a part": ({}, CONTENT[:12345], ["bytes=12345-"]),
    "a part, and no ranges": ({"ranges": False}, b"x" * 1000, ["bytes=1000-"]),
    "a part, and another range": ({"shift": -5}, CONTENT[:1000], ["bytes=1000-", None]),
    "a part, and half of the range": (
        {"answers": [status(206, *HALF, body=CONTENT[1000:2000])]},
        CONTENT[:1000],
        ["bytes=1000-", "bytes=2000-"],
    ),
    "a part that grows too long": (
        {"answers": [status(206, "Content-Range: bytes 400000-599999/*", body=CONTENT[:200_000])]},
        b"x" * 400_000,
        ["bytes=400000-", None],
    ),
    "all of it": ({}, CONTENT, ["bytes=512000-"]),
    "more than that": ({}, CONTENT + b"more", ["bytes=512004-", None]),
    "a part of another file": ({}, b"x" * 1000, ["bytes=1000-", None]),
}
"""What the server does, what an earlier download left, and what is then asked for."""


@pytest.mark.parametrize("server_does, left, asked", LEFT.values(), ids=LEFT)
def test_a_download_goes_on_where_the_last_one_broke_off(server, target, part, server_does, left, asked):
    vars(server).update(server_does)
    if left:
        part.write_bytes(left)
    fetch(server, target)
    assert target.read_bytes() == CONTENT
    assert [given for _, given in server.asked] == asked
    assert not part.exists()


def test_another_range_than_asked_for_is_not_appended_even_where_no_checksum_would_notice(server, target, part):
    server.shift = -5
    part.write_bytes(CONTENT[:1000])
    download(server.url("/file"), target, lambda _: None, len(CONTENT))
    assert target.read_bytes() == CONTENT


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
    assert server.asked[-1][1] == "bytes=1000-"
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


TOO_LONG = [
    (endless(), "it has more than 512,000 bytes"),
    (endless(f"Content-Length: {1 << 50}"), "it has 1,125,899,906,842,624 bytes, expected at most 512,000"),
    (status(200, body=CONTENT + b"more"), "it has more than 512,000 bytes"),
    (status(206, "Content-Range: bytes 0-511999/512001", body=CONTENT), "it has 512,001 bytes"),
]


@pytest.mark.parametrize("answer, what", TOO_LONG, ids=["endless", "announced", "a little more", "of a longer file"])
def test_more_bytes_than_expected_are_refused_early_and_not_kept(server, target, answer, what):
    server.answers = [answer]
    with memory_below(4 * MEGABYTE), pytest.raises(ValueError, match=f"gave a wrong file: {what}"):
        fetch(server, target)
    assert list(target.parent.iterdir()) == []
    assert len(server.asked) == 1


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


def test_a_range_that_nobody_asked_for_is_refused(server, target):
    server.answers = [always(status(206, "Content-Range: bytes 5-511999/512000", body=CONTENT[5:]))]
    with pytest.raises(ValueError, match="sent another part of the file than it was asked for"):
        download(server.url("/file"), target, lambda _: None, len(CONTENT))
    assert list(target.parent.iterdir()) == []


GARBAGE = "its answer is not HTTP: "


NOT_HTTP = [
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
]


@pytest.mark.parametrize("answer, what", NOT_HTTP)
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
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("length", ["512000", "-1", "many", "9" * 5000, ""])
def test_a_length_that_is_no_number_is_passed_over(server, target, length):
    server.answers = [status(200, f"Content-Length: {length}", body=CONTENT)]
    fetch(server, target)
    assert target.read_bytes() == CONTENT


def test_a_full_disc_is_told_with_the_name_of_the_part(server, target, part):
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"No space left on device: '{part}'"):
        fetch(server, target)


SPOILT = CONTENT[:1000] + b"x" + CONTENT[1001:]
FAULTS = [
    *(answer for answer, _ in [*NOT_HTTP, *TOO_LONG]),
    *(status(code, body=CONTENT[:50]) for code in (204, 206, 304, 399, 404, 416, 429, 500)),
    *(status(200, *head, body=body) for head in ([], ["Content-Length: 512000"]) for body in (SPOILT, CONTENT[:999])),
    *(status(206, f"Content-Range: bytes {start}-{end}/*", body=CONTENT) for start in (0, 7) for end in (0, 10**15)),
    *(status(302, f"Location: {place}") for place in ("/file", "file:///etc/passwd", "http://\xff\xfe/", "")),
    *(reset(b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT[:n]) for n in (1, 300_000)),
]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([b"", CONTENT[:777], CONTENT, CONTENT + b"more", b"x" * 100, bytes(10**6)]),
)
def test_after_any_faults_the_file_is_right_or_not_there_and_the_next_download_succeeds(faults, forever, left):
    with running() as server, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file"
        if left:
            target.with_name("file.part").write_bytes(left)
        server.answers = [*faults[:-1], always(faults[-1]) if forever else faults[-1]]
        refusal = None
        try:
            fetch(server, target)
        except (OSError, ValueError) as error:
            refusal = error
        assert target.exists() == (refusal is None)
        assert refusal is None or (str(refusal).isprintable() and len(str(refusal)) > 20)
        assert not isinstance(refusal, UnicodeError)
        server.answers = []
        fetch(server, target)
        assert target.read_bytes() == CONTENT
        assert list(target.parent.iterdir()) == [target]
