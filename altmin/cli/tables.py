"""Tables on the command line: an estimator of `altmin.sklearn` is trained on one, and kept in a model file."""

import time
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from altmin import models
from altmin.cli import options, output
from altmin.common.errors import unknown
from altmin.common.optional import need
from altmin.training import model_file

OF_TABLES = {"target", "task", "drop", "test_part"}
OF_BOTH = {"data", "model", "method", "lr", "epochs", "batch_size", "set_", "seed", "device", "threads"}
OF_BOTH |= {"save_model", "json_file"}
FEW = 20
"""Different whole numbers up to which a target is taken for classes."""


def is_table(given: Any) -> bool:
    """Return whether the data of `altmin train` are a table, which has an ending as .csv. ValueError for options that
    are for data sets, or for tables, if it is the other."""
    found = bool(Path(given.data).suffix)
    for each in fields(given):
        fits = each.name in OF_BOTH or (each.name in OF_TABLES) == found
        if not fits and getattr(given, each.name) != each.default:
            kind = "a data set" if found else "a table"
            raise ValueError(f"--{each.name.replace('_', '-')} is for {kind}, given --data {given.data}")
    return found


def train(given: Any) -> None:
    """Train an estimator on most rows of a table, and measure it on the others."""
    need("sklearn", "sklearn", "a table")
    from altmin.sklearn import AltMinClassifier, AltMinRegressor, table_model

    device = options.prepare(given.device, given.threads)
    options.of_method(given)  # refuses what is no option of this method
    table, target = _read(given)
    classes = _are_classes(table[target], given.task)
    training, test = _split(table, table[target] if classes else None, given)
    chosen = {name: getattr(given, name) for name in ("lr", "epochs", "batch_size") if getattr(given, name) is not None}
    pairs = [pair.partition("=") for pair in given.set_ or []]
    estimator = (AltMinClassifier if classes else AltMinRegressor)(
        network=lambda inputs, outputs: models.create(given.model, (inputs,), outputs),
        options={name.rpartition(".")[2]: options.value(text) for name, _, text in pairs},
        **{"method": given.method, "categorical": "auto", "random_state": given.seed, "device": str(device), **chosen},
    )
    start = time.perf_counter()
    with Console(stderr=True).status(f"{given.method} on {given.data}"):
        estimator.fit(training.drop(columns=target), training[target].to_numpy())
    seconds, about = time.perf_counter() - start, table_model.describe(estimator, target)
    scores = table_model.scores(table_model.predict(estimator.module_, about, test), test, about)
    epochs = [{"epoch": n, "train_loss": loss} for n, loss in enumerate(estimator.loss_curve_, 1)]
    epochs[-1] |= {f"test_{name}": value for name, value in scores.items()} | {"seconds": seconds}
    reached = ", ".join(f"test {name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
    print(f"{given.method}, {given.model}, {given.data}: {reached} after {len(epochs)} epochs in {seconds:.1f} s")
    named = {key: getattr(given, key) for key in ("data", "model", "method", "seed")}
    if given.save_model is not None:
        shape, outputs = (estimator.inputs_of(test.drop(columns=target)[:1]).shape[1],), estimator._targets.outputs
        about_model = {"model": given.model, "data": given.data, "sample_shape": shape, "outputs": outputs}
        model_file.save(given.save_model, estimator.module_, about_model | {"table": about})
        print(f"wrote {given.save_model}")
    rows = {"train": len(training), "test": len(test)}
    result = {
        **named,
        "table": {"target": target, "classes": about["classes"], "rows": rows},
        "config": {**chosen, "test_part": given.test_part, "device": str(device), "options": estimator.options},
        **{"environment": output.environment(device), "batches": [], "epochs": epochs},
    }
    output.write_json(given.json_file, result)


def with_target(table: Any, target: str) -> Any:
    """Return the rows that have a target, with a warning if some have none."""
    if target not in table:
        raise unknown("column to predict,", target, table)
    absent = table[target].isna()
    if absent.any():
        warnings.warn(f"{absent.sum():,} rows without a value of {target!r} are left out", stacklevel=2)
        table = table[~absent]
        table = table.assign(**{target: table[target].infer_objects()})
    return table


def _read(given: Any) -> tuple[Any, str]:
    """Return the rows of a table that have a target, without columns to drop, and the name of the target."""
    from altmin.sklearn.tables import read_table

    table = read_table(given.data)
    target = given.target
    if target is None:
        raise ValueError(f"--target names the column to predict, one of: {', '.join(map(str, table)):.500}")
    table, drop = with_target(table, target), options.words(given.drop or "")
    others = table.drop(columns=target)
    for name in drop:
        if name not in others:
            raise unknown("column to drop,", name, others)
    column = table[target]
    whole = column.dtype.kind == "f" and (column == column.round()).all()
    return (table.astype({target: int}) if whole else table).drop(columns=drop), target


def _are_classes(target: Any, task: str) -> bool:
    """Return whether a target has classes: as the task says or, if that is "auto", if it has texts, truth values or few
    different whole numbers."""
    if task not in ("auto", "classification", "regression"):
        raise unknown("task", task, ["auto", "classification", "regression"])
    if task != "auto" or target.dtype.kind not in "fiu":
        return task != "regression"
    return target.dtype.kind != "f" and target.nunique() <= max(2, min(FEW, len(target) // 2))


def _split(table: Any, labels: Any, given: Any) -> tuple[Any, Any]:
    """Return the rows to train on and those to test on, of each class the same part; the only row of a class is for
    training."""
    from sklearn.model_selection import train_test_split
    from sklearn.utils.multiclass import check_classification_targets

    several = np.ones(len(table), bool)
    if labels is not None:
        check_classification_targets(labels.to_numpy())
        several = (labels.map(labels.value_counts()) > 1).to_numpy()
    rows, strata = np.flatnonzero(several), None if labels is None else labels[several]
    training, test = train_test_split(rows, test_size=given.test_part, random_state=given.seed, stratify=strata)
    return table.iloc[np.concatenate([training, np.flatnonzero(~several)])], table.iloc[test]
