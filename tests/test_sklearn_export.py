"""An exported estimator is one module that takes raw numbers and gives what the estimator gives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification, make_friedman1, make_multilabel_classification
from sklearn.exceptions import NotFittedError
from torch import nn

from altmin.sklearn import AltMinClassifier, AltMinRegressor

SMALL: dict[str, Any] = {"hidden": (8,), "epochs": 3, "batch_size": 16, "random_state": 0}
X, Y = make_classification(60, 6, n_informative=4, n_classes=3, random_state=0)
X = X * [1, 1000, 1, 1, 1e-3, 1] + 50
XR, YR = make_friedman1(60, 6, random_state=0)
XM, YM = make_multilabel_classification(60, 6, n_classes=4, random_state=0)
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
def test_the_module_gives_what_the_estimator_gives(case: str, kind: Any) -> None:
    estimator, x, expected = fitted(case, kind)
    found = estimator.export()(x).numpy()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5 if expected.dtype == np.float32 else 1e-12)


@ALL
def test_the_module_takes_any_float_and_can_be_made_single(case: str) -> None:
    estimator, x, expected = fitted(case)
    single = estimator.export().float()
    assert {t.dtype for t in [*single.parameters(), *single.buffers()]} <= {torch.float32, torch.int64}
    for found in (estimator.export()(x.float()), single(x.float()), single(x)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


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
def test_other_columns_than_those_of_the_table_are_refused(case: str) -> None:
    estimator, x, _ = fitted(case)
    for rows in (x[:, :1], torch.cat([x, x], 1), x[0]):
        with pytest.raises(ValueError):
            estimator.export()(rows)


@ALL
def test_torch_export_takes_any_number_of_rows(case: str) -> None:
    estimator, x, expected = fitted(case)
    program = torch.export.export(estimator.export(), (x[:5],), dynamic_shapes=({0: torch.export.Dim("rows")},))
    np.testing.assert_allclose(
        program.module()(x).numpy(), expected, rtol=1e-5 if expected.dtype == np.float32 else 1e-12
    )


@pytest.mark.parametrize("case", ["two numbers", "missing values"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_onnx_gives_the_same(case: str, tmp_path: Path) -> None:
    for library in ("onnx", "onnxscript"):
        pytest.importorskip(library)
    onnxruntime = pytest.importorskip("onnxruntime")
    estimator, x, expected = fitted(case)
    shapes = ({0: torch.export.Dim("rows")},)
    torch.onnx.export(
        estimator.export().float(),
        (x[:5].float(),),
        tmp_path / "net.onnx",
        dynamo=True,
        verbose=False,
        dynamic_shapes=shapes,
    )
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: x.float().numpy()})
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_an_estimator_is_fitted_before_it_is_exported() -> None:
    with pytest.raises(NotFittedError):
        AltMinClassifier().export()


def test_a_category_is_its_place_in_the_list_of_its_column() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"size": X[:, 0], "city": ["Rome", "Bonn", None] * 20})
    found = AltMinClassifier(**AUTO).fit(table, Y)
    assert found.categories_ == {"size": None, "city": ["Bonn", "Rome", None]}
    x = torch.tensor([[50.0, 1.0], [49.0, torch.nan], [torch.nan, 0.0]])
    rows = pandas.DataFrame({"size": [50.0, 49.0, None], "city": ["Rome", None, "Bonn"]})
    np.testing.assert_allclose(found.export()(x), found.predict_proba(rows), rtol=1e-5)
