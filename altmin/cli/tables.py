"""Tables on the command line: an estimator of `altmin.sklearn` is trained on one, and kept in a model file."""

import time
import warnings
from dataclasses import fields
from typing import Any, Literal

from rich.console import Console

from altmin import models
from altmin.cli import options, output
from altmin.common.errors import unknown
from altmin.common.optional import need

Task = Literal["auto", "classification", "regression"]
SETTINGS = {"data", "model", "method", "lr", "epochs", "batch_size", "set_", "seed", "device", "threads"}
SETTINGS |= {"target", "task", "drop", "test_part", "save_model", "json_file"}
"""The options of `altmin train` that tables have."""
FEW = 20
"""Different whole numbers up to which a target is taken for classes."""


def train(args: Any) -> None:
    """Train an estimator on most rows of a table, and measure it on the others. ValueError for options that have no
    meaning there."""
    for field in fields(args):
        if field.name not in SETTINGS and getattr(args, field.name) != field.default:
            raise ValueError(f"--{field.name.replace('_', '-')} is for a data set, given the table {args.data}")
    need("sklearn", "sklearn", "a table")
    from sklearn.model_selection import train_test_split

    from altmin.sklearn import AltMinClassifier, AltMinRegressor, table_model

    device = options.prepare(args.device, args.threads)
    options.of_method(args)  # refuses what is no option of this method
    table, classes = _read(args)
    strata = table[args.target] if classes else None
    training, test = train_test_split(table, test_size=args.test_part, random_state=args.seed, stratify=strata)
    chosen = {name: getattr(args, name) for name in ("lr", "epochs", "batch_size") if getattr(args, name) is not None}
    pairs = (pair.partition("=") for pair in args.set_ or [])
    estimator = (AltMinClassifier if classes else AltMinRegressor)(
        network=lambda inputs, outputs: models.create(args.model, (inputs,), outputs),
        options={name.rpartition(".")[2]: options.value(text) for name, _, text in pairs},
        **{"method": args.method, "categorical": "auto", "random_state": args.seed, "device": str(device), **chosen},
    )
    start, x = time.perf_counter(), training.drop(columns=args.target)
    with Console(stderr=True).status(f"{args.method} on {args.data}"):
        estimator.fit(x, training[args.target].to_numpy())
    seconds, about = time.perf_counter() - start, table_model.describe(estimator, args.target)
    scores = table_model.scores(table_model.predict(estimator.module_, about, test), test, about)
    epochs: list[dict[str, Any]] = [{"epoch": n, "train_loss": loss} for n, loss in enumerate(estimator.loss_curve_, 1)]
    epochs[-1] |= {f"test_{name}": value for name, value in scores.items()} | {"seconds": seconds}
    shape, outputs = (estimator.inputs_of(x[:1]).shape[1],), len(about["classes"] or [args.target])
    output.write_model(args, estimator.module_, sample_shape=shape, outputs=outputs, table=about)
    rows = {"train": len(training), "test": len(test)}
    extra = {"table": {"target": args.target, "classes": about["classes"], "rows": rows}, "batches": []}
    config = {**chosen, "test_part": args.test_part, "device": str(device), "options": estimator.options}
    output.write_run(args, output.result(args, device, config) | extra | {"epochs": epochs})


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


def _read(args: Any) -> tuple[Any, bool]:
    """Return the rows of a table that have a target, without columns to drop, and whether the target has classes: as
    the task says or, if that is "auto", if it has texts, truth values or few different whole numbers."""
    from altmin.sklearn.tables import read_table

    table, drop = read_table(args.data), options.words(args.drop)
    if args.target is None:
        raise ValueError(f"--target names the column to predict, one of: {', '.join(map(str, table)):.500}")
    table = with_target(table, args.target)
    for name in drop:
        if name == args.target or name not in table:
            raise unknown("column to drop,", name, table.columns.drop(args.target))
    table, column = table.drop(columns=drop), table[args.target]
    if column.dtype.kind == "f" and (column == column.round()).all():  # of whole numbers, some of which were missing
        table = table.astype({args.target: int})
    few = table[args.target].dtype.kind not in "f" and column.nunique() <= max(2, min(FEW, len(column) // 2))
    return table, few or column.dtype.kind not in "fiu" if args.task == "auto" else args.task == "classification"
