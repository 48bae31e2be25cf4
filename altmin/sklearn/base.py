"""Base class of the estimators: settings, checks of tables, and the making and training of a network."""

import copy
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
from altmin.common.optional import need
from altmin.common.unchanged import changed
from altmin.sklearn import settings
from altmin.sklearn.export import Encode, Exported, Standardise
from altmin.sklearn.tables import Columns
from altmin.sklearn.targets import Labels, Targets
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
    weight_decay: float | str | None = "auto"
    batch_size: int = 64
    epochs: int = 200
    tol: float = 1e-4
    patience: int = 10
    early_stopping: bool = False
    validation_fraction: float = 0.1
    standardise: bool = True
    categorical: str | None = None
    verbose: bool = False
    random_state: Any = None
    device: str = "cpu"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = settings.CONSTRAINTS
    _tuned: ClassVar[dict[str, tuple[float, float]]]
    """By method: learning rate and weight decay, where they are not those of `settings`."""

    def _new_targets(self, y: Any, classes: Any) -> Targets:
        """Return what the first targets are. classes: as `partial_fit` has them."""
        raise NotImplementedError

    # Training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Train a new network on a table and its targets, and return the estimator.

        X: numpy, pandas or sparse; of a sparse one only mini-batches are made dense. sample_weight: a row of weight w
        counts as w rows in its mini-batch. ValueError or TypeError for input or settings that do not fit, `Diverged` if
        the network or its outputs for these rows are not finite in the end; then the estimator is as it was.
        """
        with changed(self) as new:
            y, rows = new._read(X, y, sample_weight, first=True)
            train: Any = slice(None)
            val: Any = None
            if self.early_stopping:
                with new._training.random_numbers():
                    seed = int(torch.randint(2**31 - 1, ()))
                part, strata = self.validation_fraction, y if type(new._targets) is Labels else None
                train, val = train_test_split(np.arange(len(y)), test_size=part, random_state=seed, stratify=strata)
            watched = None if val is None else rows.some(val)
            new._training.fit(rows.some(train), watched, self.epochs, self.tol, self.patience, bool(self.verbose))
            new._keep()
        return self

    def _go_on(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        """Make one pass over the rows in their order, by a copy of the network there is or by a new one."""
        with changed(self, "_training", "_targets", "_scaler") as new:
            _, rows = new._read(X, y, sample_weight, not hasattr(self, "module_"), classes)
            new._training.once(rows)
            new._keep()
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, first: bool, classes: Any = None) -> tuple[np.ndarray, Rows]:
        """Return targets and rows to train on, without those of weight zero, and set what is learnt from them: the
        columns, the scale and the kind of the targets; if they are the first also a new network."""
        if first:
            self._validate_params()
            if self.categorical is not None and not self.standardise:
                raise ValueError('categorical="auto" standardises the columns of numbers; leave standardise=True')
        X, y = self._checked(X, first, y=y, multi_output=True)
        w = None
        if sample_weight is not None:
            w = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            if not w.any():
                raise ValueError("all sample weights are zero; at least one has to be above zero")
            X, y, w = X[w > 0], y[w > 0], w[w > 0]
        if first:
            self._targets = self._new_targets(y, classes)
            self._columns = Columns(X) if self.categorical is not None else None
            self._scaler = StandardScaler() if self.standardise and self._columns is None else None
        y = self._targets.checked(y)
        if (of_classes := self._targets.weights(y)) is not None:
            w = of_classes if w is None else of_classes * w
        X = X if self._columns is None else self._columns.encode(X)
        if first:
            self._training = self._new_training(X.shape[1], X.dtype == np.float32)
        if self._scaler is not None:
            learn_scale(self._scaler, X, w)
            self._training.prepare = Standardise(self._scaler.mean_, self._scaler.scale_)
        self._targets.learn(y, w)
        shape = tuple(self._training.outputs(X[:1]).shape)
        if shape != (1, self._targets.outputs):
            raise ValueError(f"the network's output for one row has shape {shape}, not (1, {self._targets.outputs})")
        t = self._targets.encoded(y)
        t = t.astype(X.dtype) if t.dtype.kind == "f" else t
        return y, Rows(X, torch.from_numpy(t), None if w is None else torch.from_numpy(w))

    def _new_training(self, columns: int, single: bool) -> Training:
        """Return a new network that is not trained yet. single: whether it computes in float32."""
        make = self.network if self.network is not None else lambda i, o: models.mlp(i, tuple(self.hidden), o)
        with own_random_numbers():
            torch.manual_seed(check_random_state(self.random_state).randint(2**31 - 1))
            module = copy.deepcopy(make) if isinstance(make, nn.Module) else make(columns, self._targets.outputs)
            generator = torch.get_rng_state()
        module = module.to(self.device, torch.float32 if single else torch.float64).eval()
        options = settings.method_options(self, self._targets) | copy.deepcopy(self.options or {})
        method = methods.create(self.method, module, **options)
        return Training(method, self._targets.loss, self.batch_size, generator)

    def _keep(self) -> None:
        """Set the attributes of a fitted estimator."""
        if self._columns is not None:
            self.categories_ = self._columns.categories
        self.module_, self.loss_curve_ = self._training.method.model, self._training.losses
        self.n_iter_, self.validation_curve_ = len(self.loss_curve_), self._training.held_losses or None

    # Predicting

    def predict(self, X: Any) -> np.ndarray:
        """Return a prediction for each row: the most probable label, for each of several labels 1 if it is more
        probable than not, else 0, or numbers in their own unit."""
        answers = self._answers(X)
        return self._targets.predicted(answers)

    def inputs_of(self, X: Any) -> Tensor:
        """Return the rows of X as `module_` takes them: encoded, standardised, of its type, on its device."""
        X = self._table(X)
        return self._training.inputs(X)

    def export(self) -> nn.Module:
        """Return a module with the standardisation inside: it takes rows of the table as they are, a tensor (rows,
        columns) of floats, and gives what `predict_proba` gives, for a regressor what `predict` gives.

        With `categorical="auto"` NaN stands for a missing value, and a category is its place in the list that
        `categories_` has for the column. `torch.export` and `torch.onnx.export` take the module as any other.
        """
        check_is_fitted(self)
        prepare = self._training.prepare if self._columns is None else Encode(**self._columns.layout)
        return Exported(prepare, self.module_, self._targets.head(), self.n_features_in_)

    def _answers(self, X: Any) -> np.ndarray:
        """Return `head` of the network's outputs. ValueError if it is not finite."""
        X = self._table(X)
        outputs: np.ndarray = self._targets.head()(self._training.outputs(X).cpu()).numpy()
        demand_finite(outputs)
        return outputs

    def _table(self, X: Any) -> Any:
        check_is_fitted(self)
        table, _ = self._checked(X)
        return table if self._columns is None else self._columns.encode(table)

    def _checked(self, X: Any, first: bool = False, **y: Any) -> tuple[Any, Any]:
        """Return X as an array of numbers, or with categories as a data frame, and y, None if there is none."""
        encoded = self.categorical is not None if first else self._columns is not None
        how: dict[str, Any] = {"dtype": None, "ensure_all_finite": "allow-nan"}
        if not encoded:
            known = (np.float64, np.float32) if first else str(next(self.module_.parameters()).dtype)[6:]
            how = {"dtype": known, "accept_sparse": "csr"}
        checked = X
        if encoded and any(not isinstance(kind, np.dtype) for kind in getattr(X, "dtypes", ())):
            checked = X.astype(object)  # scikit-learn finds no common type of categories and truth values
        validated = validate_data(self, checked, reset=first, **how, **y)
        table, target = validated if y else (validated, None)
        if encoded:
            pandas = need("pandas", "sklearn", 'categorical="auto"')
            names = getattr(self, "feature_names_in_", range(self.n_features_in_))
            table = pandas.DataFrame(X) if hasattr(X, "columns") else pandas.DataFrame(table).infer_objects()
            table = table.set_axis([str(name) for name in names], axis=1)
        return table, target

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        plain = self.categorical is None
        tags.input_tags.sparse = plain
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = not plain
        return tags


def demand_finite(outputs: np.ndarray) -> None:
    """Raise ValueError unless the outputs for each row are finite."""
    if len(wrong := np.flatnonzero(~np.isfinite(outputs).reshape(len(outputs), -1).all(1))):
        raise ValueError(
            f"the outputs for row {wrong[0]} are not finite: its numbers are too large; scale them as those that the "
            "network was trained on"
        )
