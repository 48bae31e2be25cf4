"""Large tables in shards: the rows of the arrays they were made of, for any number of ranks and from any batch on."""

import json
import pickle

import numpy as np
import pytest
import torch
from memory import MEGABYTE, memory_below
from torch import nn

import altmin
from altmin.data import Damaged, Shards, block_order, shard_writer, shards, write_shards
from altmin.data.atomic import replacing
from altmin.training.sources import Sharded

pytest.importorskip("pyarrow")

ROWS = 1003


@pytest.fixture(scope="module")
def arrays():
    random = np.random.default_rng(0)
    return random.normal(3, 2, (ROWS, 5)).astype(np.float32), random.integers(0, 3, ROWS)


@pytest.fixture
def folder(arrays, tmp_path):
    write_shards(tmp_path / "s", arrays, rows_per_shard=150)
    return tmp_path / "s"


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Windows of 60 rows, so that an epoch has many and maps are given back in between."""
    monkeypatch.setattr(shards, "BLOCK", 10)
    monkeypatch.setattr(shards, "WINDOW", 6)
    monkeypatch.setattr(block_order.BlockOrder.__init__, "__defaults__", (10, 6))


def test_rows_are_those_of_the_arrays_in_the_order_asked_for(arrays, folder):
    numbers = np.random.default_rng(1).integers(0, ROWS, 700)
    x, y = Shards(folder).rows(torch.from_numpy(numbers))
    assert np.array_equal(x.numpy(), arrays[0][numbers])
    assert np.array_equal(y.numpy(), arrays[1][numbers])


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [100, 1, 7, 2000])
def test_ranks_together_read_the_batches_of_one(arrays, folder, ranks, size):
    """The last batch is ragged; 1,003 rows are no multiple of any of the numbers."""
    parts = [Shards(folder).batches(size, seed=4, epoch=2, rank=rank, ranks=ranks) for rank in range(ranks)]
    order = block_order.BlockOrder(ROWS, 4, 2)[:]
    together = list(zip(*parts, strict=True))
    assert len(together) == -(-ROWS // size)
    for number, pieces in enumerate(together):
        rows = order[number * size : (number + 1) * size]
        assert np.array_equal(torch.cat([x for x, _ in pieces]).numpy(), arrays[0][rows])
        assert np.array_equal(torch.cat([y for _, y in pieces]).numpy(), arrays[1][rows])
        counts = [len(x) for x, _ in pieces]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("start", [0, 1, 5, 10, 11])
def test_an_epoch_goes_on_from_any_batch(folder, start):
    whole = list(Shards(folder).batches(100, 1, 1, rank=1, ranks=3))
    rest = list(Shards(folder).batches(100, 1, 1, rank=1, ranks=3, start=start))
    assert len(rest) == len(whole) - start
    for (x, y), (a, b) in zip(rest, whole[start:], strict=True):
        assert torch.equal(x, a)
        assert torch.equal(y, b)


def test_a_range_of_rows_is_a_table_of_its_own(arrays, folder):
    part = Shards(folder, start=140, stop=620)
    assert len(part) == 480
    assert np.array_equal(part.rows([0, 479])[0].numpy(), arrays[0][[140, 619]])
    seen = torch.cat([x for x, _ in part.batches(64)]).numpy()
    assert np.array_equal(np.sort(seen[:, 0]), np.sort(arrays[0][140:620, 0]))
    assert np.array_equal(np.concatenate([x for x, _ in part.parts()]), arrays[0][140:620])
    assert np.array_equal(part[-1][0].numpy(), arrays[0][619])


def test_statistics_are_numpys_and_standardise_other_rows(arrays, folder):
    scale = Shards(folder, stop=800).statistics()
    wide = arrays[0].astype(np.float64)
    assert np.allclose(scale.mean, wide[:800].mean(0), rtol=0, atol=1e-10)
    assert np.allclose(scale.std, wide[:800].std(0), rtol=0, atol=1e-10)
    x, _ = Shards(folder, scale=scale, start=800).rows([0, 202])
    assert torch.equal(x, torch.from_numpy(((wide[[800, 1002]] - scale.mean) / scale.std).astype(np.float32)))


@pytest.mark.parametrize("ranks", [1, 4])
def test_files_are_unmapped_after_a_window_of_rows(folder, ranks):
    """60 rows of all ranks are a window: six batches of 10."""
    read, held = Shards(folder), []
    for _ in read.batches(10, ranks=ranks, rank=ranks - 1):
        held.append(read._mapped)
    held.append(read._mapped)
    assert len({id(each) for each in held}) == 1 + ROWS // 60
    read.rows(range(ROWS))
    assert read._mapped == {}
    read.rows(range(10))
    Sharded("train", read).take(torch.arange(5), of=50)  # 45 of other ranks: with 10 before, 60 in all
    assert read._mapped == {}


def test_fit_takes_shards_in_their_order_and_goes_on_inside_an_epoch(arrays, folder, tmp_path):
    """The second way: steps over `batches`, by hand."""

    def method():
        torch.manual_seed(0)
        return altmin.AltMin(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))

    by_hand, fitted, stopped, resumed = (method() for _ in range(4))
    for epoch in range(2):
        for x, y in Shards(folder).batches(100, 7, epoch):
            by_hand.step(x, y)
        by_hand.end_epoch()
    run = {"epochs": 2, "batch_size": 100, "seed": 7}
    altmin.fit(fitted, Shards(folder), Shards(folder, stop=50), **run)
    kept = run | {"checkpoint": tmp_path / "run", "checkpoint_every": 3}
    stop = altmin.training.EachBatch(lambda progress: progress.batch == 15)
    altmin.fit(stopped, Shards(folder), **kept, callbacks=[stop])
    altmin.fit(resumed, Shards(folder), **kept, resume=True)
    for name, value in by_hand.model.state_dict().items():
        assert torch.equal(fitted.model.state_dict()[name], value)
        assert torch.equal(resumed.model.state_dict()[name], value)
        assert not torch.equal(stopped.model.state_dict()[name], value)
    other = write_shards(tmp_path / "other", (arrays[0][::-1], arrays[1]), rows_per_shard=150)
    with pytest.raises(ValueError, match="its training data is"):
        altmin.fit(method(), other, **kept, resume=True)


def test_a_data_loader_and_a_pickle_read_the_same(arrays, folder):
    read = Shards(folder)
    read.rows([1])
    loader = torch.utils.data.DataLoader(pickle.loads(pickle.dumps(read)), batch_size=500)
    assert np.array_equal(torch.cat([x for x, _ in loader]).numpy(), arrays[0])


# What is wrong
def test_verify_finds_a_single_changed_byte(folder):
    Shards(folder).verify()
    path = folder / "shard-00003.arrow"
    content = bytearray(path.read_bytes())
    content[1500] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r"shard-00003.arrow is damaged: its content has sha256"):
        Shards(folder).verify()


def test_a_file_that_is_no_arrow_file_is_refused_when_it_is_read(folder):
    path = folder / "shard-00000.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(Damaged, match="it is not a sound Arrow file"):
        Shards(folder)[0]


def test_a_shard_with_other_columns_is_refused(arrays, folder, tmp_path):
    x, y = arrays
    write_shards(tmp_path / "other", (x[:, :4], y), rows_per_shard=150)
    index = json.loads((folder / "index.json").read_text())
    content = (tmp_path / "other/shard-00000.arrow").read_bytes()
    index["shards"][0]["bytes"] = len(content)
    (folder / "shard-00000.arrow").write_bytes(content)
    with replacing(folder / "index.json") as file:
        file.write(json.dumps(index).encode())
    with pytest.raises(Damaged, match=r"has 150 rows of x of .*\[4\].* and by the index 150 of x of .*\[5\]"):
        Shards(folder)[0]


def test_a_shard_with_fewer_rows_than_the_index_says_is_refused(folder):
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["rows"], index["shards"][1]["rows"] = 151, 149
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(Damaged, match=r"it has 150 rows of .*, and by the index 151 of"):
        Shards(folder)[0]


def test_wrong_numbers_are_refused(folder):
    read = Shards(folder)
    with pytest.raises(ValueError, match=r"rows -1 to 1003 were asked for; .* has 0 to 1002"):
        read.rows([-1, 1003])
    with pytest.raises(IndexError):
        read[1003]
    for odd in ([0.5], [True, False], ["1"]):
        with pytest.raises(ValueError, match=r"rows of .* are whole numbers, given"):
            read.rows(odd)
    with pytest.raises(ValueError, match=r"rows 5 to 2,000 are not in .*, which has 1,003 rows"):
        Shards(folder, start=5, stop=2000)
    with pytest.raises(ValueError, match="batch_size of batches is a whole number of at least 1, given 0"):
        read.batches(0)
    with pytest.raises(ValueError, match="start of batches is a whole number of at least 0, given -1"):
        read.batches(5, start=-1)
    with pytest.raises(ValueError, match="rank of batches is one of 0 to 1, given 2"):
        read.batches(5, rank=2, ranks=2)


def table(rows=100, features=(3,)):
    random = np.random.default_rng(0)
    return random.normal(size=(rows, *features)).astype(np.float32), random.integers(0, 5, rows)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("cuts", [(), (50,), (1, 2, 3), (30, 30, 99)])
def test_files_do_not_depend_on_how_the_rows_come(tmp_path, cuts):
    x, y = table()
    write_shards(tmp_path / "whole", (x, y), rows_per_shard=30)
    parts = zip(np.split(x, cuts), np.split(torch.from_numpy(y).numpy(), cuts), strict=True)
    write_shards(tmp_path / "parts", ((torch.from_numpy(a), b) for a, b in parts), rows_per_shard=30)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    index = json.loads((tmp_path / "whole/index.json").read_text())
    assert [each["rows"] for each in index["shards"]] == [30, 30, 30, 10]


def test_wide_rows_are_fewer_in_a_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writer, "BYTES", 40 * (3 * 4 + 8) + 19)
    write_shards(tmp_path / "wide", table())
    write_shards(tmp_path / "given", table(), rows_per_shard=70)
    monkeypatch.setattr(shard_writer, "BYTES", 1)
    write_shards(tmp_path / "each", table(3))
    rows = [[each["rows"] for each in Shards(tmp_path / name).files] for name in ("wide", "given", "each")]
    assert rows == [[40, 40, 20], [70, 30], [1, 1, 1]]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8", "int32"])
def test_types_and_shapes_come_back(tmp_path, dtype):
    x = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(dtype)
    y = np.array([[0.5, 1], [2, 3]])
    read = write_shards(tmp_path, (x, y))
    assert (read.sample_shape, read.target_shape, read.dtype) == ((3, 4), (2,), x.dtype)
    a, b = read.rows([1, 0])
    assert a.numpy().dtype == x.dtype
    assert np.array_equal(a.numpy(), x[::-1])
    assert np.array_equal(b.numpy(), y[::-1])


def test_files_are_plain_arrow_that_others_read(tmp_path):
    import pyarrow.ipc

    x, y = table()
    write_shards(tmp_path, (x, y), rows_per_shard=60)
    found = pyarrow.ipc.open_file(str(tmp_path / "shard-00001.arrow")).read_all().to_pydict()
    assert np.array_equal(np.array(found["x"], np.float32), x[60:])
    assert np.array_equal(np.array(found["y"])[:, 0], y[60:])


def test_memory_is_that_of_a_shard_and_of_a_window(tmp_path, monkeypatch):
    """32 batches of 4 MB go into shards of 8 MB; with windows of 8 blocks, 16 are mapped at most where a batch has rows
    of two windows, and the kernel maps up to 2 MB more around each."""
    monkeypatch.setattr(shards, "WINDOW", 8)
    monkeypatch.setattr(block_order.BlockOrder.__init__, "__defaults__", (4096, 8))
    write_shards(tmp_path / "first", table(5))
    batches = ((np.ones((32768, 32), np.float32), np.zeros(32768, np.int64)) for _ in range(32))
    with memory_below(80 * MEGABYTE):
        write_shards(tmp_path / "all", batches, rows_per_shard=65536)
    read = Shards(tmp_path / "all")
    with memory_below(80 * MEGABYTE):
        assert sum(len(x) for x, _ in read.batches(5000)) == 32 * 32768
    with memory_below(80 * MEGABYTE):
        assert read.statistics().mean.tolist() == [1] * 32


def test_a_failure_in_the_middle_leaves_no_index_and_can_be_repaired(tmp_path):
    x, y = table()

    def breaking():
        yield x[:50], y[:50]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(tmp_path, breaking(), rows_per_shard=20)
    with pytest.raises(FileNotFoundError):
        Shards(tmp_path)
    write_shards(tmp_path, (x, y), rows_per_shard=30).verify()


def test_shards_are_not_written_over(tmp_path):
    write_shards(tmp_path, table())
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="is a folder of shards already; give another, or delete it"):
        write_shards(tmp_path, table(50))
    assert contents(tmp_path) == before


X, Y = table(4)


@pytest.mark.parametrize(
    "batches, what",
    [
        ([], "samples of write_shards has no rows"),
        ([(X[:0], Y[:0])], "samples of write_shards has no rows"),
        ([(X, Y), (X[:, :2], Y)], r"batch 1 has samples \(2,\) of float32 .* those before \(3,\) of float32 and"),
        (
            [(X, Y), (X, Y.astype(np.float32))],
            r"batch 1 has .* targets \(\) of float32, those before .* \(\) of int64;",
        ),
        ([(X, Y[:3])], r"batch 0 has samples \(4, 3\) and targets \(3,\); give one target a sample"),
        ([(X, Y), (X * np.nan, Y)], "batch 1 holds NaN or infinite values; clean them"),
        *(([(X.astype(odd), Y)], "shards hold rows of numbers") for odd in (str, ">f4", np.longdouble)),
    ],
)
def test_batches_that_do_not_fit_are_refused_and_no_index_is_written(tmp_path, batches, what):
    with pytest.raises(ValueError, match=what):
        write_shards(tmp_path, batches)
    assert not (tmp_path / "index.json").exists()


def test_a_shard_has_at_least_a_row(tmp_path):
    with pytest.raises(ValueError, match="rows_per_shard of write_shards is a whole number of at least 1, given 0"):
        write_shards(tmp_path, (X, Y), rows_per_shard=0)
