"""Rows of sparse tables are made dense a few at a time, with the numbers that dense ones have."""

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from altmin.sklearn import training as rows
from altmin.sklearn.training import chunks, dense, inputs, learn_scale


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr(rows, "CHUNK", 4)
    random = np.random.default_rng(0)
    return random.normal(3.0, 2.0, (11, 3)) * (random.random((11, 3)) < 0.5)


def test_chunks_cover_every_row_once(table: np.ndarray) -> None:
    assert [i for part in chunks(11) for i in range(11)[part]] == list(range(11))
    assert max(part.stop - part.start for part in chunks(11)) == 4


def test_sparse_rows_are_the_dense_ones_and_copies(table: np.ndarray) -> None:
    for form in (table, sparse.csr_array(table), sparse.csr_matrix(table)):
        part = dense(form, np.array([3, 0]))
        assert type(part) is np.ndarray
        assert np.array_equal(part, table[[3, 0]])
        part[:] = 7
    assert not (table == 7).any()


def test_the_scale_learnt_in_chunks_is_mean_and_deviation_of_the_whole(table: np.ndarray) -> None:
    w = np.arange(1.0, 12)
    for weights in (None, w):
        found, other = StandardScaler(), StandardScaler()
        learn_scale(found, table, weights)
        learn_scale(other, sparse.csr_array(table), weights)
        assert np.allclose(found.mean_, np.average(table, axis=0, weights=weights))
        assert np.allclose(found.var_, np.average((table - found.mean_) ** 2, axis=0, weights=weights))
        assert np.array_equal(found.mean_, other.mean_)
        assert np.array_equal(found.scale_, other.scale_)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_inputs_are_standardised_in_the_type_of_the_table(table: np.ndarray, kind: type) -> None:
    table = table.astype(kind)
    scaler = StandardScaler()
    learn_scale(scaler, table)
    x = inputs(sparse.csr_array(table), slice(None), scaler)
    assert x.dtype == (torch.float64 if kind is np.float64 else torch.float32)
    assert torch.allclose(x.mean(0), torch.zeros(3, dtype=x.dtype), atol=1e-6)
    assert torch.allclose(x.var(0, unbiased=False), torch.ones(3, dtype=x.dtype), atol=1e-5)
    assert torch.equal(x, inputs(table, slice(None), scaler))
    assert np.array_equal(inputs(table, np.array([5]), None).numpy(), table[[5]])


@pytest.mark.parametrize("size", [1e160, 1e307])
def test_columns_without_a_finite_mean_and_variance_are_refused(table: np.ndarray, size: float) -> None:
    table[:, 1] *= size
    with pytest.raises(ValueError, match="column 1 has no finite mean and variance: its numbers are too large"):
        learn_scale(StandardScaler(), table)
