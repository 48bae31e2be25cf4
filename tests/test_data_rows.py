"""Rows of a table: their order in an epoch, a permutation of whole blocks from any place on; and standardising them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from altmin.data.block_order import BlockOrder, share
from altmin.data.standardise import Scale

SIZES = st.tuples(st.integers(1, 300), st.integers(1, 20), st.integers(1, 6))


@given(SIZES, st.integers(0, 5), st.integers(0, 5))
def test_every_row_comes_once(sizes, seed, epoch):
    order = BlockOrder(sizes[0], seed, epoch, *sizes[1:])
    assert sorted(order[:]) == list(range(sizes[0]))


@given(SIZES)
def test_a_window_holds_whole_blocks(sizes):
    rows, block, window = sizes
    order, at = BlockOrder(rows, 0, 0, block, window), 0
    for end in order.ends:
        held = order[at:end]
        blocks = set(held // block)
        assert sorted(held) == sorted(r for b in blocks for r in range(b * block, min(rows, (b + 1) * block)))
        assert len(blocks) == window or end == rows
        at = end
    assert at == rows


@given(SIZES, st.integers(0, 300), st.integers(0, 300))
def test_any_places_can_be_had_without_those_before(sizes, start, length):
    whole = BlockOrder(sizes[0], 3, 1, *sizes[1:])[:]
    assert np.array_equal(BlockOrder(sizes[0], 3, 1, *sizes[1:])[start : start + length], whole[start : start + length])


def test_seed_epoch_and_window_each_make_another_order():
    first = BlockOrder(200, 0, 0, 10, 20)[:]
    for seed, epoch in ((1, 0), (0, 1), (1, 1)):
        assert not np.array_equal(BlockOrder(200, seed, epoch, 10, 20)[:], first)
    two = BlockOrder(400, 0, 0, 200, 1)
    assert not np.array_equal(two[:200] % 200, two[200:] % 200)
    assert np.array_equal(BlockOrder(200, 0, 0, 10, 20)[:], first)


def test_places_of_a_row_are_uniform_over_seeds():
    """Row 0 of 4 in one window of two blocks: each place in a quarter of 2,000 orders, within 5 deviations of 19.4."""
    places = [int(np.flatnonzero(BlockOrder(4, seed, 0, 2, 2)[:] == 0)[0]) for seed in range(2000)]
    assert np.all(np.abs(np.bincount(places, minlength=4) - 500) < 97)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_shares_are_those_of_tensor_split(ranks):
    for size in (1, 3, 12, 13):
        wanted = torch.arange(size).tensor_split(ranks)
        for rank in range(ranks):
            assert share(np.arange(size), rank, ranks).tolist() == wanted[rank].tolist()


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5)),
        elements=st.floats(-1000, 1000, width=32).map(lambda value: np.float32(round(value, 2))),
    ),
    st.integers(1, 64),
)
def test_statistics_agree_with_numpy_however_they_are_chunked(samples, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("altmin.data.standardise.CHUNK", chunk)
        scale = Scale.of(samples)
        result = scale.apply(samples)
    wide = samples.astype(np.float64)
    mean, std = wide.mean(axis=(0, 2)), wide.std(axis=(0, 2))
    constant = np.ptp(samples, axis=(0, 2)) == 0
    assert np.allclose(scale.mean, mean, atol=1e-9)
    assert np.all(scale.std[constant] == 1)
    assert np.allclose(scale.std[~constant], std[~constant], rtol=1e-4)
    expected = (wide - scale.mean[:, None]) / scale.std[:, None]
    assert np.allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_a_constant_feature_becomes_zero_and_not_noise():
    """0.1 has no exact sum: a naive deviation comes out as 1e-17 and blows the feature up."""
    samples = np.full((1000, 2), 0.1, np.float32)
    samples[:, 1] = np.arange(1000)
    result = Scale.of(samples).apply(samples)
    assert torch.equal(result[:, 0], torch.zeros(1000))
    assert result[:, 1].std(correction=0) == pytest.approx(1)


def test_statistics_are_computed_once_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("altmin.data.standardise._known", {})
    first = Scale.remembered("a", lambda: [np.array([[1.0], [3.0]])])
    assert (first.mean.tolist(), first.std.tolist()) == ([2.0], [1.0])
    assert Scale.remembered("a", lambda: pytest.fail("read again")) is first
    assert Scale.remembered("b", lambda: [np.array([[5.0], [9.0]])]).mean.tolist() == [7.0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any), st.integers(1, 64))
def test_statistics_of_parts_are_numpys_of_all_rows(sizes, chunk):
    """Far from zero, where a sum of squares would lose all digits; the last feature never varies."""
    samples = np.random.default_rng(sum(sizes)).normal(1e4, 1, (sum(sizes), 3, 2))
    samples[:, 2] = 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("altmin.data.standardise.CHUNK", chunk)
        scale = Scale.streamed(np.split(samples, np.cumsum(sizes)[:-1]))
    assert np.allclose(scale.mean, samples.mean(axis=(0, 2)), rtol=0, atol=1e-10)
    assert np.allclose(scale.std[:2], samples[:, :2].std(axis=(0, 2)), rtol=0, atol=1e-10)
    assert scale.std[2] == 1
