"""The index of a folder of shards: what write_shards wrote is read, and nothing else, in one sentence."""

import json
import os
import shutil

import numpy as np
import pytest
from memory import MEGABYTE, memory_below

from altmin.data import Damaged, Shards, write_shards

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    table = random.normal(size=(20, 3)).astype(np.float32), random.integers(0, 5, 20)
    write_shards(tmp_path / "s", table, rows_per_shard=8)
    return tmp_path / "s"


def test_a_folder_without_an_index_is_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"has no index.json; give a folder that altmin.data.write_shards wrote"
    ):
        Shards(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"{}", b"\xff", b"[" * 100_000, b"1" * 5000, b'{"format": "altmin shards 0"}']
)
def test_an_index_of_something_else_is_refused(folder, content):
    (folder / "index.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"index.json is damaged: .*; write the shards again"):
        Shards(folder)


def test_a_missing_or_shortened_shard_is_named_at_once(folder):
    second = folder / "shard-00001.arrow"
    size = second.stat().st_size
    os.truncate(second, size - 8)
    with pytest.raises(Damaged, match=rf"shard-00001.arrow is damaged: it has {size - 8:,} bytes, expected {size:,}"):
        Shards(folder)
    second.unlink()
    with pytest.raises(Damaged, match=r"shard-00001.arrow is damaged: it is missing"):
        Shards(folder)


def changed(folder, value, *keys):
    """Writes the index with one entry changed; deleted if the value is `...`."""
    index = json.loads((folder / "index.json").read_text())
    entry = index
    for key in keys[:-1]:
        entry = entry[key]
    if value is ...:
        del entry[keys[-1]]
    else:
        entry[keys[-1]] = value
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("keys", [("rows",), ("shards", 0, "rows"), ("shards", 2, "bytes"), ("x", "shape", 0)])
@pytest.mark.parametrize("value", [-5, 0, True, 8.0, "8", None, [8], 10**30, float("inf")])
def test_numbers_are_whole_and_positive(folder, keys, value):
    changed(folder, value, *keys)
    with pytest.raises(Damaged, match=r"index.json is damaged: it is no index of shards: .*; write the shards again"):
        Shards(folder)


@pytest.mark.parametrize(
    "keys",
    [("format",), ("rows",), ("y",), ("x", "dtype"), ("x", "shape"), ("shards",)]
    + [("shards", 1, name) for name in ("file", "rows", "bytes", "sha256")],
)
def test_an_entry_that_is_missing_is_named(folder, keys):
    changed(folder, ..., *keys)
    with pytest.raises(
        Damaged, match=rf"index.json is damaged: it is no index of shards: it has no '{keys[-1]}'; write"
    ):
        Shards(folder)


@pytest.mark.parametrize("rows", [7, 10**3, 10**18])
def test_rows_that_do_not_add_up_or_do_not_fit_into_their_file_are_refused(folder, rows):
    changed(folder, rows, "shards", 1, "rows")
    with pytest.raises(
        Damaged, match=r"it has 20 rows, and its shards have 19|do not fit into its [\d,]+ bytes; write"
    ):
        Shards(folder)


@pytest.mark.parametrize("shape", [[10**12], [2**62, 2**62], [3] + [1] * 100, 3, None, {"3": 3}, [[3]]])
def test_a_shape_that_no_row_of_the_file_has_is_refused(folder, shape):
    changed(folder, shape, "x", "shape")
    with pytest.raises(Damaged, match="it is no index of shards"), memory_below(64 * MEGABYTE):
        Shards(folder)


@pytest.mark.parametrize(
    "dtype", [None, 5, "O", "V8", "S5", "f4,f4", "<c8", "<M8[s]", ">f4", "(9,9)f4", "<f3", [["a", "<f4"]]]
)
def test_a_type_that_is_not_one_of_numbers_is_refused(folder, dtype):
    changed(folder, dtype, "x", "dtype")
    with pytest.raises(Damaged, match="it is no index of shards"):
        Shards(folder)


def test_only_files_of_the_folder_are_read(folder, tmp_path):
    shutil.copy(folder / "shard-00000.arrow", tmp_path / "x.arrow")
    for name in (
        "../x.arrow",
        str(tmp_path / "x.arrow"),
        "./shard-00000.arrow",
        "shard-00001.arrow",
        "",
        "..",
        5,
        "x" * 300,
    ):
        changed(folder, name, "shards", 0, "file")
        with pytest.raises(Damaged, match=r"the file of shard 0 is .*, expected 'shard-00000.arrow'; write the shards"):
            Shards(folder)


@pytest.mark.parametrize("value", [None, 5, "", "x" * 64])
def test_an_index_without_checksums_is_refused(folder, value):
    changed(folder, value, "shards", 0, "sha256")
    with pytest.raises(Damaged, match="it is no index of shards"):
        Shards(folder)


@pytest.mark.parametrize("value", [[], {}, None, 5, "abc", [1], [[]]])
def test_an_index_without_shards_is_refused(folder, value):
    changed(folder, value, "shards")
    with pytest.raises(Damaged, match="it is no index of shards"):
        Shards(folder)


def test_an_index_too_large_for_memory_is_not_read(folder):
    os.truncate(folder / "index.json", 1 << 40)  # a sparse file
    with (
        memory_below(64 * MEGABYTE),
        pytest.raises(Damaged, match="bytes, expected at most 67,108,864; write the shards"),
    ):
        Shards(folder)


def test_a_shard_with_damaged_bytes_gives_its_rows_or_is_refused(folder):
    """Its numbers may have changed, which verify finds; nothing else is raised, and no other memory read."""
    path, draw = folder / "shard-00000.arrow", np.random.default_rng(0)
    sound, refused = path.read_bytes(), 0
    for _ in range(300):
        content = bytearray(sound)
        for place in draw.integers(0, len(content), draw.choice([1, 2, 8])):
            content[place] = draw.choice([0, 127, 255])
        path.write_bytes(content)
        try:
            x, y = Shards(folder).rows(range(8))
        except Damaged:
            refused += 1
        else:
            assert (x.shape, y.shape) == ((8, 3), (8,))
    assert 50 < refused < 300
