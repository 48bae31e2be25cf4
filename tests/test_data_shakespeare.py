"""The text: windows that join to it again, the character after each, and files that are damaged."""

import dataclasses
import gzip
import hashlib
from pathlib import Path

import pytest
import torch
from tiny_data import bomb

import altmin.data
from altmin.data import Damaged, windows
from altmin.data.shakespeare import SHAKESPEARE, Text

SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def whole() -> str:
    """The text as the package has it."""
    return gzip.decompress(SHAKESPEARE.embedded.read_bytes()).decode("ascii")


def test_the_text_is_the_published_one_of_65_characters() -> None:
    text = whole()
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256
    assert SHAKESPEARE.alphabet == "".join(sorted(set(text)))
    assert len(SHAKESPEARE.alphabet) == SHAKESPEARE.classes == 65


def test_windows_of_all_parts_join_to_the_text() -> None:
    """Nine tenths, a twentieth and a twentieth, each but for less than a window and the last character's successor."""
    text, start = whole(), 0
    for split, size in zip(("train", "validation", "test"), (1_003_854, 55_770, 55_770), strict=True):
        x, y = altmin.data.load("shakespeare", split)
        part = text[start : start + size]
        start += size
        assert x.dtype == y.dtype == torch.int64
        assert x.shape == y.shape == (SHAKESPEARE.splits[split], 64)
        assert part.startswith(SHAKESPEARE.decode(x.flatten()))
        assert part[1:].startswith(SHAKESPEARE.decode(y.flatten()))
        assert size - 64 <= x.numel() < size
    assert start == len(text) == 1_115_394
    assert len(text) * 9 // 10 == 1_003_854


def test_each_target_is_the_token_after_and_what_is_left_over_is_left_out() -> None:
    x, y = windows(torch.arange(10), 4)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert len(windows(torch.arange(9), 4)[0]) == 2
    assert len(windows(torch.arange(8), 4)[0]) == 1, "the last token has no successor"
    with pytest.raises(ValueError, match="a window of 4 tokens and the one after it are more than the 4 given"):
        windows(torch.arange(4), 4)
    with pytest.raises(ValueError, match="context of windows"):
        windows(torch.arange(4), 0)


def test_a_text_is_its_tokens_and_back() -> None:
    line = "Speak, speak.\nAll: $3 & go?"
    tokens = SHAKESPEARE.encode(line)
    assert SHAKESPEARE.decode(tokens) == SHAKESPEARE.decode(tokens.tolist()) == line
    assert SHAKESPEARE.encode("\n !z").tolist() == [0, 1, 2, 64]
    with pytest.raises(ValueError, match="shakespeare has no character '7'"):
        SHAKESPEARE.encode("my 7")


def tiny(root: Path, content: bytes, written: bytes | None = None) -> Text:
    """A text of 12 + 6 + 6 characters in `root`."""
    folder = root / "shakespeare"
    folder.mkdir(exist_ok=True)
    (folder / "input.txt").write_bytes(content if written is None else written)
    sums = {"parts": (12, 6, 6), "sha256": hashlib.sha256(content).hexdigest()}
    return dataclasses.replace(SHAKESPEARE, sample_shape=(4,), **sums)


def test_a_file_in_the_data_folder_is_read_in_place_of_the_embedded_one(tmp_path: Path) -> None:
    content = b"to be, or not to be: the"
    text = tiny(tmp_path, content)
    for split, words in (("train", "to be, o"), ("validation", "t to"), ("test", "e: t")):
        assert text.decode(text.load(split, tmp_path)[0].flatten()) == words
    assert text.describe(tmp_path).state == "found"
    assert [check.state for check in text.verify(tmp_path)] == ["sound"]
    empty = tmp_path / "empty"
    assert altmin.data.describe("shakespeare", empty).state == "embedded"
    assert [check.detail for check in altmin.data.verify("shakespeare", empty)] == [f"sha256 {SHA256}"]
    assert altmin.data.fetch("shakespeare", empty) == []


@pytest.mark.parametrize(
    "written, words",
    [
        (b"to be, or not to be: teh", "its content has sha256 .*; delete it: altmin embeds a sound copy"),
        (b"to be", "it has 5 bytes, expected 24"),
        (b"to be, or not to be: then", "it has 25 or more bytes, expected 24"),
    ],
)
def test_a_damaged_file_is_named_and_not_used(tmp_path: Path, written: bytes, words: str) -> None:
    text = tiny(tmp_path, b"to be, or not to be: the", written)
    with pytest.raises(Damaged, match=f"input.txt is damaged: {words}"):
        text.load("train", tmp_path)


def test_an_embedded_file_that_unpacks_to_more_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "input.txt.gz"
    path.write_bytes(bomb(b"to be", 5 << 20))
    with pytest.raises(Damaged, match=r"1,115,395 or more bytes, expected 1,115,394; reinstall altmin"):
        dataclasses.replace(SHAKESPEARE, embedded=path).load("test", tmp_path)
