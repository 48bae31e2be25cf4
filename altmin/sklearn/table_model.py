"""A fitted estimator as a model file holds it: a network, and in plain values how rows of a table become its inputs and
its outputs predictions."""

from typing import Any

import numpy as np
import torch
from sklearn import metrics
from torch import nn

from altmin.sklearn.base import demand_finite
from altmin.sklearn.export import Encode, Exported, Unscale
from altmin.sklearn.tables import codes, name_of, numbers_of


def describe(estimator: Any, target: str) -> dict[str, Any]:
    """Return the description of an estimator of `categorical="auto"` and one target, the column of this name."""
    classes, scaler = getattr(estimator, "classes_", None), getattr(estimator._targets, "scaler", None)
    return {
        "target": target,
        "categories": estimator.categories_,
        "encode": estimator._columns.layout(),
        "classes": None if classes is None else classes.tolist(),
        "scale": None if scaler is None else [scaler.mean_.tolist(), scaler.scale_.tolist()],
    }


def inputs(table: dict[str, Any]) -> int:
    """Return the number of inputs of the network."""
    encode = table["encode"]
    return len(encode["numbers"]) + len(encode["marked"]) + sum(encode["counts"])


def module(network: nn.Module, table: dict[str, Any]) -> nn.Module:
    """Return the module that takes `codes` of rows, and gives probabilities of classes or predictions of numbers."""
    mean, scale = table["scale"] or ([], [])
    head = Unscale(mean, scale, ()) if mean else nn.Softmax(1)
    return Exported(Encode(**table["encode"]), network, head, len(table["categories"]))


def predict(network: nn.Module, table: dict[str, Any], frame: Any) -> np.ndarray:
    """Return probabilities (rows, classes), or predictions (rows,), for the rows of a data frame. ValueError for
    columns that do not fit, and for outputs that are not finite."""
    x, device = torch.from_numpy(codes(frame, table["categories"])), next(network.parameters()).device
    with torch.no_grad():
        found: np.ndarray = module(network, table)(x.to(device)).double().cpu().numpy()
    demand_finite(found, "outputs")
    return found


def scores(found: np.ndarray, frame: Any, table: dict[str, Any]) -> dict[str, float]:
    """Return accuracy and log loss of probabilities, R^2 and root mean squared error of predictions. ValueError for a
    label that is none of the classes."""
    target = frame[table["target"]]
    if table["classes"] is None:
        y = numbers_of(target)
        return {"r2": float(metrics.r2_score(y, found)), "rmse": float(metrics.root_mean_squared_error(y, found))}
    place = {name_of(label): n for n, label in enumerate(table["classes"])}
    if new := [label for label in target.unique() if name_of(label) not in place]:
        raise ValueError(f"{new[0]!r:.60} of column {table['target']!r} is no class of: {', '.join(place):.200}")
    y = np.array([place[name_of(label)] for label in target])
    probable = found[np.arange(len(y)), y].clip(np.finfo(np.float64).tiny)
    return {"accuracy": float((found.argmax(1) == y).mean()), "log_loss": float(-np.log(probable).mean())}
