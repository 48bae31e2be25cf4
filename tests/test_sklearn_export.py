"""An exported estimator is one module that takes raw numbers and gives what the estimator gives."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn_cases import SMALL, XM, XR, YM, YR, X, Y
from torch import nn

from altmin.sklearn import AltMinClassifier, AltMinRegressor

X = X * [1, 1000, 1, 1, 1e-3, 1] + 50
GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
GAPS[:, 2] = X[:, 2]  # one column without a missing value
AUTO = {**SMALL, "categorical": "auto"}
CASES = {
    "labels": (AltMinClassifier(**SMALL), X, Y),
    "not standardised": (AltMinClassifier(**SMALL, standardise=False), X, Y),
    "several labels": (AltMinClassifier(**SMALL), XM, YM),
    "a number": (AltMinRegressor(**SMALL), XR, YR * 1e4),
    "two numbers": (AltMinRegressor(**SMALL), XR, np.stack([YR, -5 * YR], 1)),
    "a number by itself in a row": (AltMinRegressor(**SMALL), XR, YR[:, None]),
    "missing values": (AltMinClassifier(**AUTO), GAPS, Y),
    "a network of one's own": (AltMinClassifier(**SMALL, network=lambda i, o: nn.Sequential(nn.Linear(i, o))), X, Y),
}
ALL = pytest.mark.parametrize("case", CASES)


def fitted(case: str, kind: Any = np.float64) -> tuple[Any, torch.Tensor, np.ndarray]:
    """An estimator, rows, and what it gives for them."""
    estimator, table, y = CASES[case]
    estimator.fit(table.astype(kind), y)
    ask = estimator.predict if isinstance(estimator, AltMinRegressor) else estimator.predict_proba
    return estimator, torch.from_numpy(table.astype(kind)), ask(table.astype(kind))


@ALL
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_module_gives_what_the_estimator_gives_and_can_be_made_single(case: str, kind: Any) -> None:
    estimator, x, expected = fitted(case, kind)
    module = estimator.export()
    found, single = module(x).numpy(), estimator.export().float()
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5 if expected.dtype == np.float32 else 1e-12)
    assert {t.dtype for t in [*single.parameters(), *single.buffers()]} <= {torch.float32, torch.int64}
    for other in (module(x.float()), single(x.float()), single(x)):
        np.testing.assert_allclose(other.numpy(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_the_module_is_a_copy_that_is_not_trained() -> None:
    estimator, x, _ = fitted("labels")
    module = estimator.export()
    before = module(x)
    estimator.partial_fit(X, Y)
    assert torch.equal(module(x), before)
    assert not any(p.requires_grad for p in module.parameters())
    assert not module.training
    assert next(estimator.module_.parameters()).requires_grad


@ALL
def test_torch_export_takes_any_number_of_rows_and_other_columns_are_refused(case: str) -> None:
    estimator, x, expected = fitted(case)
    module = estimator.export()
    program = torch.export.export(module, (x[:5],), dynamic_shapes=({0: torch.export.Dim("rows")},))
    np.testing.assert_allclose(
        program.module()(x).numpy(), expected, rtol=1e-5 if expected.dtype == np.float32 else 1e-12
    )
    for rows in (x[:, :1], torch.cat([x, x], 1), x[0]):
        with pytest.raises(ValueError):
            module(rows)


def test_a_category_is_its_place_in_the_list_of_its_column() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"size": X[:, 0], "city": ["Rome", "Bonn", None] * 20})
    found = AltMinClassifier(**AUTO).fit(table, Y)
    assert found.categories_ == {"size": None, "city": ["Bonn", "Rome", None]}
    x = torch.tensor([[50.0, 1.0], [49.0, torch.nan], [torch.nan, 0.0]])
    rows = pandas.DataFrame({"size": [50.0, 49.0, None], "city": ["Rome", None, "Bonn"]})
    np.testing.assert_allclose(found.export()(x), found.predict_proba(rows), rtol=1e-5)
