"""A fitted estimator as a model file holds it: a network, and in plain values how rows of a table become its inputs and
its outputs predictions."""

from typing import Any

import numpy as np
import torch
from sklearn import metrics
from torch import nn

from altmin.common.optional import need
from altmin.sklearn.base import demand_finite
from altmin.sklearn.export import Encode, Exported, Unscale
from altmin.sklearn.tables import codes, name_of, numbers_of


def describe(estimator: Any, target: str) -> dict[str, Any]:
    """Return the description of an estimator of `categorical="auto"` and one target, the column of this name."""
    known = {"target": target, "categories": estimator.categories_, "encode": estimator._columns.layout}
    if hasattr(estimator, "classes_"):
        return {**known, "classes": estimator.classes_.tolist(), "scale": None}
    targets = estimator._targets
    return {**known, "classes": None, "scale": [targets.mean.tolist(), targets.scaler.scale_.tolist()]}


def predict(network: nn.Module, table: dict[str, Any], frame: Any) -> np.ndarray:
    """Return probabilities (rows, classes), or predictions (rows,), for the rows of a data frame. ValueError for
    columns that do not fit, and for outputs that are not finite."""
    head = nn.Softmax(1) if table["classes"] else Unscale(*table["scale"])
    module = Exported(Encode(**table["encode"]), network, head, len(table["categories"]))
    x = torch.from_numpy(codes(frame, table["categories"])).to(next(network.parameters()).device)
    outputs: np.ndarray = module(x).double().cpu().numpy()
    demand_finite(outputs)
    return outputs


def check(network: nn.Module, table: dict[str, Any], sample_shape: tuple[int, ...]) -> None:
    """Raise, of any type, unless `describe` may have given `table` for a network and samples of this shape."""
    encode, known = table["encode"], table["categories"]
    texts = [(n, len(names), None in names) for n, names in enumerate(known.values()) if names]
    inputs = len(encode["numbers"]) + len(encode["marked"]) + sum(count for _, count, _ in texts)
    numbers = np.array([encode[name] for name in ("numbers", "mean", "scale")], np.float64)
    if (
        not np.isfinite(numbers).all()
        or encode["texts"] != texts
        or sample_shape != (inputs,)
        or not isinstance(table["target"], str)
    ):
        raise ValueError("numbers, categories and inputs do not fit")
    outputs = predict(network, table, need("pandas").DataFrame({name: [np.nan] for name in known}))
    if outputs.shape != ((1,) if table["classes"] is None else (1, len(table["classes"]))):
        raise ValueError(f"outputs for a row have shape {outputs.shape}")


def scores(outputs: np.ndarray, frame: Any, table: dict[str, Any]) -> dict[str, float]:
    """Return accuracy and log loss of probabilities, R^2 and root mean squared error of predictions. ValueError for a
    label that is none of the classes."""
    target = frame[table["target"]]
    if table["classes"] is None:
        y = numbers_of(target)
        return {"r2": float(metrics.r2_score(y, outputs)), "rmse": float(metrics.root_mean_squared_error(y, outputs))}
    place = {name_of(label): n for n, label in enumerate(table["classes"])}
    if new := [label for label in target.map(name_of) if label not in place]:
        raise ValueError(f"{new[0]!r:.60} of column {table['target']!r} is no class of: {', '.join(place):.200}")
    y = target.map(name_of).map(place).to_numpy()
    probable = outputs[np.arange(len(y)), y].clip(np.finfo(np.float64).tiny)
    return {"accuracy": float((outputs.argmax(1) == y).mean()), "log_loss": float(-np.log(probable).mean())}
