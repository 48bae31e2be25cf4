"""What the estimators share: settings, checks of tables, and how a network is made and trained."""

import copy
import inspect
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from altmin import methods, models
from altmin.common.unchanged import changed
from altmin.sklearn import settings
from altmin.sklearn.export import Encode, Exported, Standardise
from altmin.sklearn.tables import Columns, frame
from altmin.sklearn.training import Rows, Training, learn_scale, own_random_numbers


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):
    """An estimator whose network is trained by one of altmin's methods; a subclass determines the kind."""

    hidden: Sequence[int] = (100, 100)
    _: KW_ONLY
    network: Any = None
    method: str = "am-adam"
    options: dict[str, Any] | None = None
    lr: float | str | None = "auto"
    weight_decay: float | str = "auto"
    batch_size: int = 64
    epochs: int = 200
    tol: float = 1e-4
    patience: int = 10
    early_stopping: bool = False
    validation_fraction: float = 0.1
    standardise: bool = True
    categorical: str | None = None
    warm_start: bool = False
    verbose: bool = False
    random_state: Any = None
    device: str = "cpu"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = settings.CONSTRAINTS
    _tuned: ClassVar[dict[str, tuple[float, float]]]
    """By method: learning rate and weight decay, where they are not those of `settings`."""

    # What a kind of estimator says of its targets

    def _check_targets(self, y: Any, kind: Any) -> np.ndarray:
        """Return targets as they are kept, of a table of numbers of this type. ValueError for another kind."""
        raise NotImplementedError

    def _new_targets(self, y: np.ndarray, classes: Any) -> Any:
        """Return what the first targets are; changes nothing."""
        raise NotImplementedError

    def _row_weights(self, y: np.ndarray, w: Any, targets: Any) -> Any:
        """Return the weights of rows, of which w were given; None if all are 1."""
        return w

    def set_params(self, **params: Any) -> Any:
        """Set parameters as in scikit-learn; `options__NAME` sets one of the method's options and keeps the others, so
        that a search can vary it."""
        nested = {name: value for name, value in params.items() if name.startswith("options__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        if nested:
            new = {name.removeprefix("options__"): value for name, value in nested.items()}
            self.options = {**(self.options or {}), **new}
        return self

    # Training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train a network on a table and its targets, and return itself. It is a new one, unless `warm_start`.

        X: numpy, pandas or sparse; of a sparse one only mini-batches are made dense. sample_weight: a row of weight w
        counts as w rows in its mini-batch. ValueError or TypeError for input or settings that do not fit, `Diverged` if
        the network or its outputs for these rows are not finite in the end; then the estimator is as it was.
        """
        with changed(self) as new:
            new._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._check_settings()
        again = self.warm_start and hasattr(self, "module_")
        X, y, w, targets = self._read(X, y, sample_weight, first=not again)
        training = self._continued(targets) if again else self._begun(X, y, w, targets)
        self._check_training(training, X, w, targets)
        train, held = self._parted(training, y, targets)
        rows, rest = (self._rows(X[part], y[part], w if w is None else w[part], targets) for part in (train, held))
        watched = rest if self.early_stopping else None
        training.fit(rows, watched, self.epochs, self.tol, self.patience, bool(self.verbose))
        self._keep(training, targets)

    def _parted(self, training: Training, y: np.ndarray, targets: Any) -> tuple[Any, Any]:
        """Return which rows are trained on, and which are held back: all are both without early stopping."""
        if not self.early_stopping:
            return slice(None), slice(None)
        with training.random_numbers():
            seed = int(torch.randint(2**31 - 1, ()))
        strata, fraction = targets.strata(y, self.validation_fraction), self.validation_fraction
        train, held = train_test_split(np.arange(len(y)), test_size=fraction, random_state=seed, stratify=strata)
        return train, held

    def _go_on(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        """Make one pass over the rows in their order, by a copy of the network there is or by a new one."""
        with changed(self, "_training", "_targets") as new:
            new._partial_fit(X, y, sample_weight, classes)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> None:
        first = not hasattr(self, "module_")
        if first:
            self._check_settings()
        X, y, w, targets = self._read(X, y, sample_weight, first, classes)
        if first:
            training = self._begun(X, y, w, targets)
        else:
            training = self._training
            self._learn(training.scaler, targets, X, y, w)
        self._check_training(training, X, w, targets)
        training.once(self._rows(X, y, w, targets))
        if self.verbose:
            training.print_losses()
        self._keep(training, targets)

    def _begun(self, X: Any, y: np.ndarray, w: Any, targets: Any) -> Training:
        """Return a new network, not trained yet, at the scale of these rows."""
        scaler = StandardScaler() if self.standardise and self._columns is None else None
        self._learn(scaler, targets, X, y, w)
        with own_random_numbers():
            torch.manual_seed(check_random_state(self.random_state).randint(2**31 - 1))
            module = self._made(X.shape[1], targets.outputs)
            generator = torch.get_rng_state()
        module = module.to(torch.float32 if X.dtype == np.float32 else torch.float64)
        return self._training_of(module, targets, scaler, generator)

    def _continued(self, targets: Any) -> Training:
        """Return a new training of a copy of the network there is, at the scale that it knows."""
        old = self._training
        new = self._training_of(copy.deepcopy(self.module_), targets, old.scaler, old.generator)
        new.losses, new.held_losses = [*old.losses], [*old.held_losses] if self.early_stopping else []
        return new

    def _training_of(self, module: nn.Module, targets: Any, scaler: Any, generator: Tensor) -> Training:
        given = settings.method_options(self, targets) | copy.deepcopy(self.options or {})
        method = methods.create(self.method, module.to(self.device).eval(), **given)
        return Training(method, targets.loss(), scaler, self.batch_size, generator)

    def _made(self, n_inputs: int, n_outputs: int) -> nn.Module:
        if self.network is None:
            return models.mlp(n_inputs, tuple(self.hidden), n_outputs)
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        made = self.network(n_inputs, n_outputs)
        if not isinstance(made, nn.Module):
            raise TypeError(f"network is a module or a function (inputs, outputs) -> module, which makes {made!r:.60}")
        return made

    def _learn(self, scaler: StandardScaler | None, targets: Any, X: Any, y: np.ndarray, w: Any) -> None:
        """Add rows to what is known of the scale of the columns, and of the targets."""
        if scaler is not None:
            learn_scale(scaler, X, w)
        targets.learn(y, w)

    def _rows(self, X: Any, y: np.ndarray, w: Any, targets: Any) -> Rows:
        t = targets.encode(y)
        return Rows(X, torch.from_numpy(t.astype(X.dtype) if t.dtype.kind == "f" else t), w)

    def _keep(self, training: Training, targets: Any) -> None:
        """Set the attributes of a fitted estimator."""
        self._training, self._targets = training, targets
        if self._columns is not None:
            self.categories_ = self._columns.categories()
        self.module_, self.loss_curve_, self.n_iter_ = training.method.model, training.losses, len(training.losses)
        if training.held_losses:
            self.validation_curve_ = training.held_losses
        elif hasattr(self, "validation_curve_"):
            del self.validation_curve_

    # Predicting

    def inputs_of(self, X: Any) -> Tensor:
        """Return the rows of X as `module_` takes them: encoded, standardised, of its type, on its device."""
        X = self._table(X)
        found = self._training.inputs(X, slice(None))
        demand_finite(found.cpu().numpy(), "standardised values")
        return found

    def export(self) -> nn.Module:
        """Return a module with the standardisation inside: it takes rows of the table as they are, a tensor (rows,
        columns) of floats, and gives what `predict_proba` gives, for a regressor what `predict` gives.

        With `categorical="auto"` NaN stands for a missing value, and a category is its place in the list that
        `categories_` has for the column. `torch.export` and `torch.onnx.export` take the module as any other.
        """
        check_is_fitted(self)
        prepare: nn.Module = nn.Identity()
        if self._columns is not None:
            prepare = Encode(**self._columns.layout())
        elif (scaler := self._training.scaler) is not None:
            prepare = Standardise(scaler.mean_, scaler.scale_)
        return Exported(prepare, self.module_, self._targets.head(), self.n_features_in_)

    def _outputs(self, X: Any) -> np.ndarray:
        X = self._table(X)
        found = self._training.outputs(X).cpu().numpy()
        demand_finite(found, "outputs")
        return found

    def _table(self, X: Any) -> Any:
        check_is_fitted(self)
        table, _ = self._checked(X)
        return table if self._columns is None else self._columns.encode(table)

    # Checks

    def _read(
        self, X: Any, y: Any, sample_weight: Any, first: bool, classes: Any = None
    ) -> tuple[Any, np.ndarray, Any, Any]:
        """Return X, y and weights as arrays, and what the targets are; rows of weight zero are left out."""
        table, y = self._checked(X, first, y=y, multi_output=True)
        kind = np.float32 if hasattr(table, "columns") else table.dtype
        y, w = self._check_targets(y, kind), None
        if sample_weight is not None:
            w = _check_sample_weight(sample_weight, y, dtype=kind, ensure_non_negative=True)
            table, y, w = _counting(table, y, w)
        targets = self._new_targets(y, classes) if first else self._targets
        targets.check(y)
        if (w := self._row_weights(y, w, targets)) is not None:
            table, y, w = _counting(table, y, w)
        if first:
            self._columns = Columns(table) if self.categorical is not None else None
        return table if self._columns is None else self._columns.encode(table), y, w, targets

    def _checked(self, X: Any, first: bool = False, **y: Any) -> tuple[Any, Any]:
        """Return X as an array of numbers, or with categories as a data frame, and y, None if there is none."""
        encoded = self.categorical is not None if first else self._columns is not None
        if encoded:
            how: dict[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan"}
        else:
            single = not first and next(self.module_.parameters()).dtype == torch.float32
            kinds = (np.float64, np.float32) if first else np.float32 if single else np.float64
            how = {"dtype": kinds, "accept_sparse": "csr"}
        found = validate_data(self, X, reset=first, **how, **y)
        array, target = found if y else (found, None)
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return frame(X, array, [str(name) for name in names]) if encoded else array, target

    def _check_settings(self) -> None:
        """ValueError for a setting that has no meaning."""
        self._validate_params()
        if self.categorical is not None and not self.standardise:
            raise ValueError('categorical="auto" standardises the columns of numbers; leave standardise=True')

    def _check_training(self, training: Training, X: Any, w: Any, targets: Any) -> None:
        """ValueError unless the network makes of a row what the targets need, and the method takes the weights."""
        shape = tuple(training.outputs(X[:1]).shape)
        if shape != (1, targets.outputs):
            raise ValueError(f"the network's output for one row has shape {shape}, expected (1, {targets.outputs})")
        if w is not None and "sample_weight" not in inspect.signature(training.method.step).parameters:
            raise ValueError(f"method {self.method!r} takes no sample weights; am-adam, am-mem, adam and sgd do")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        plain = self.categorical is None
        tags.input_tags.sparse = plain
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = not plain
        return tags


def _counting(table: Any, y: np.ndarray, w: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the rows whose weight is above zero."""
    if not w.any():
        raise ValueError("all sample weights are zero; at least one has to be above zero")
    return table[w > 0], y[w > 0], w[w > 0]


def demand_finite(found: np.ndarray, what: str) -> None:
    """ValueError unless what was computed for each row is finite."""
    if len(wrong := np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(1))):
        raise ValueError(
            f"the {what} for row {wrong[0]} are not finite: its numbers are too large; scale them as those that the "
            "network was trained on"
        )
