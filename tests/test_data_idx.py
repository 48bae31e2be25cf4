"""The idx format: what was written is read, and no unsound file is taken for a sound one."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tiny_data import idx

from altmin.data import Damaged
from altmin.data.idx import parse_idx, read_idx

SOMEWHERE = Path("somewhere")


@pytest.mark.parametrize(
    "content, what",
    [
        (b"", "it starts with nothing"),
        (gzip.compress(b"\x00\x00\x08\x03" + b"\0" * 8, mtime=0), "it ends within its header, after 12 of 16 bytes"),
        (gzip.compress(b"\x00\x00\x0d\x03" + b"\0" * 12, mtime=0), "it starts with 00000d03, .* with 00000803"),
        (gzip.compress(idx(np.zeros((2, 3), np.uint8)), mtime=0), "it starts with 00000802"),
        (gzip.compress(idx(np.zeros((2, 3, 4), np.uint8))[:-1], mtime=0), "announces 2 x 3 x 4 bytes and holds 23"),
        (
            gzip.compress(idx(np.zeros((2, 3, 4), np.uint8)) + b"\0", mtime=0),
            "announces 2 x 3 x 4 bytes and holds more",
        ),
        (gzip.compress(idx(np.zeros((20, 30, 40), np.uint8)), mtime=0)[:-10], "cut short"),
        (b"<html>Not found</html>", "not a sound gzip file"),
        (gzip.compress(b"\x00\x00\x08\x03", mtime=0)[:-8] + b"\1" * 8, "not a sound gzip file"),
    ],
)
def test_unsound_idx_files_are_named_with_what_is_wrong(content, what, tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(Damaged, match=what) as caught:
        read_idx(path, 3, 24_000)
    assert caught.value.path == path


images = arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6))


@given(images)
def test_idx_gives_back_what_was_written(array):
    parsed = parse_idx(idx(array), SOMEWHERE, array.ndim)
    assert parsed.shape == array.shape
    assert np.array_equal(parsed, array)


@given(images, st.data())
def test_idx_accepts_no_part_of_a_file(array, data):
    content = idx(array)
    cut = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(Damaged, match="somewhere is damaged"):
        parse_idx(content[:cut], SOMEWHERE, array.ndim)


@given(st.binary(max_size=64))
def test_idx_never_fails_but_by_damaged(content):
    try:
        array = parse_idx(content, SOMEWHERE, 1)
    except Damaged:
        return
    assert idx(array) == content
