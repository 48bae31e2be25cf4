"""`AltMinClassifier` and `AltMinRegressor`: a table in, a trained network out, in scikit-learn's own manner."""

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from altmin import methods, models
from altmin.errors import demand
from altmin.losses import adapt
from altmin.sklearn.rows import chunks, inputs, learn_scale
from altmin.training.samples import batches_per_epoch


class _Estimator(BaseEstimator):
    """What classifier and regressor share.

    hidden: the widths of the hidden layers, ReLU between them. network: instead of these a network of one's own, a
    module, of which a copy is trained, or a function (inputs, outputs) -> module. method, lr, options: as in
    `altmin.methods.create(method, network, lr=lr, **options)`; lr=None is the method's own. batch_size: rows in a
    mini-batch. epochs: passes over the data, at most. tol, patience: training ends when for `patience` epochs the loss
    has not fallen by more than `tol` below its lowest. early_stopping: whether this is the loss of `validation_fraction`
    of the rows, held back from training, and the weights are in the end those of the epoch where it was lowest.
    standardise: whether each column of the input is brought to mean 0 and variance 1 inside. random_state: gives the
    first weights, the order of the rows and the part held back. device: where to train and predict.

    After `fit`: module_, the trained network, which takes rows that `inputs_of(X)` gives; loss_curve_, the mean loss of
    every epoch; n_iter_, how many there were; validation_curve_, with early stopping; n_features_in_, and
    feature_names_in_ for tables with names. The network computes in the table's own type, float64 or float32.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (100, 100),
        *,
        network: Any = None,
        method: str = "am-adam",
        options: dict[str, Any] | None = None,
        lr: float | None = 1e-3,
        batch_size: int = 64,
        epochs: int = 200,
        tol: float = 1e-4,
        patience: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        standardise: bool = True,
        random_state: Any = None,
        device: str = "cpu",
    ):
        self.hidden = hidden
        self.network = network
        self.method = method
        self.options = options
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.tol = tol
        self.patience = patience
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.standardise = standardise
        self.random_state = random_state
        self.device = device

    # What the two differ in

    _loss: type[nn.Module]

    def _check_targets(self, y: Any) -> Any:
        raise NotImplementedError

    def _learn_targets(self, y: Any, w: Any) -> None:
        """Takes note of classes or of the targets' scale."""
        raise NotImplementedError

    def _encoded(self, y: Any, dtype: torch.dtype) -> Tensor:
        """Targets as the loss takes them."""
        raise NotImplementedError

    def _n_outputs(self, y: Any) -> int:
        raise NotImplementedError

    # Fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains a new network on a table X (numpy, pandas, or sparse: then only mini-batches are made dense).

        sample_weight: a row of weight w counts as w rows in its mini-batch. Returns itself. ValueError for input or
        settings that do not fit.
        """
        self._check_settings()
        X, y, w = self._checked(X, y, sample_weight, reset=True)
        self._begin(X, y, w)
        with self._random():
            X, y, w, held = self._held_back(X, y, w) if self.early_stopping else (X, y, w, None)
            self._fit(X, self._encoded(y, self._dtype), w, held)
        return self

    def _fit(self, X: Any, t: Tensor, w: Any, held: tuple[Any, Tensor, Any] | None) -> None:
        """Epochs until the loss, that of the rows held back if there are any, falls no more."""
        lowest, waited, best = math.inf, 0, None
        for _ in range(self.epochs):
            self._pass(X, t, w, torch.randperm(len(t)))
            watched = self.loss_curve_[-1]
            if held is not None:
                watched = self._mean_loss(*held)
                self.validation_curve_.append(watched)
            waited = 0 if watched < lowest - self.tol else waited + 1
            if watched < lowest:
                lowest = watched
                if held is not None:
                    best = copy.deepcopy((self.module_.state_dict(), self._trainer.state_dict()))
            if waited >= self.patience:
                break
        if best is not None:
            self.module_.load_state_dict(best[0])
            self._trainer.load_state_dict(best[1])

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Any:
        if first:
            self._check_settings()
        X, y, w = self._checked(X, y, sample_weight, reset=first)
        if first:
            self._begin(X, y, w)
        else:
            self._learn(X, y, w)
        with self._random():
            t = self._encoded(y, self._dtype)
            self._pass(X, t, w, torch.arange(len(t)))
        return self

    def _pass(self, X: Any, t: Tensor, w: Any, order: Tensor) -> None:
        """One epoch: every row in this order, and the mean loss noted."""
        total, seen = 0.0, 0
        parts = order.split(self.batch_size)[: batches_per_epoch(self.module_, len(t), self.batch_size)]
        self.module_.train()
        try:
            for rows in parts:
                how: dict[str, Any] = {"rows": rows} if getattr(self._trainer, "takes_rows", False) else {}
                if w is not None:
                    how["sample_weight"] = torch.from_numpy(w[rows.numpy()]).to(self.device)
                x = inputs(X, rows.numpy(), self._scaler, self.device)
                metrics = self._trainer.step(x, t[rows].to(self.device), **how)
                total, seen = total + float(metrics.loss) * len(rows), seen + len(rows)
            self._trainer.end_epoch()
        finally:
            self.module_.eval()
        self.loss_curve_.append(total / seen)
        self.n_iter_ += 1

    def _begin(self, X: Any, y: Any, w: Any) -> None:
        """A new network and trainer, nothing learnt but the scale."""
        self._dtype = torch.float32 if X.dtype == np.float32 else torch.float64
        self._scaler = StandardScaler() if self.standardise else None
        self._target_scaler = StandardScaler()
        self._learn(X, y, w)
        self._seed = check_random_state(self.random_state).randint(2**31 - 1)
        with torch.random.fork_rng(self._devices()):
            torch.manual_seed(self._seed)
            self.module_ = self._made(X.shape[1], self._n_outputs(y)).to(self.device, self._dtype).eval()
            self._rng = torch.get_rng_state()
        self._check_output(X, self._n_outputs(y))
        given = dict(self.options or {}) | ({} if self.lr is None else {"lr": self.lr})
        self._trainer = methods.create(self.method, self.module_, loss=self._loss(), **copy.deepcopy(given))
        if w is not None and "sample_weight" not in inspect.signature(self._trainer.step).parameters:
            raise ValueError(f"method {self.method!r} takes no sample weights; am-adam, am-sgd, am-mem, adam and sgd do")
        self.loss_curve_: list[float] = []
        self.validation_curve_: list[float] = []
        self.n_iter_ = 0

    def _learn(self, X: Any, y: Any, w: Any) -> None:
        """Adds to what is known of the scale of inputs and targets."""
        self._learn_targets(y, w)
        if self._scaler is not None:
            learn_scale(self._scaler, X, w)

    def _made(self, n_inputs: int, n_outputs: int) -> nn.Module:
        if self.network is None:
            return models.mlp(n_inputs, tuple(self.hidden), n_outputs)
        made = copy.deepcopy(self.network) if isinstance(self.network, nn.Module) else self.network
        made = made if isinstance(made, nn.Module) else made(n_inputs, n_outputs)
        if not isinstance(made, nn.Module):
            raise TypeError(f"network is a module or a function (inputs, outputs) -> module, given {self.network!r:.60}")
        return made

    def _check_output(self, X: Any, n_outputs: int) -> None:
        """ValueError unless the network makes of a row what the task needs."""
        row = inputs(X, slice(0, 1), self._scaler, self.device)
        try:
            with torch.no_grad():
                shape = tuple(self.module_(row).shape)
        except (RuntimeError, ValueError) as error:
            words = str(error).partition("\n")[0]
            raise ValueError(f"the network cannot take rows of {X.shape[1]} columns: {words}") from None
        if shape != (1, n_outputs):
            raise ValueError(f"the network gives {shape} for one row, this task needs (1, {n_outputs})")

    @contextmanager
    def _random(self) -> Iterator[None]:
        """Random numbers of its own, which go on from call to call."""
        with torch.random.fork_rng(self._devices()):
            torch.set_rng_state(self._rng)
            yield
            self._rng = torch.get_rng_state()

    def _devices(self) -> list[torch.device]:
        device = torch.device(self.device)
        return [device] if device.type == "cuda" else []

    def _held_back(self, X: Any, y: Any, w: Any) -> tuple[Any, Any, Any, tuple[Any, Tensor, Any]]:
        """X, y and weights of the rows to train on, and those of the rows held back."""
        train, held = train_test_split(
            np.arange(len(y)), test_size=self.validation_fraction, random_state=self._seed, stratify=self._strata(y)
        )
        ours, theirs = ((X[rows], y[rows], None if w is None else w[rows]) for rows in (train, held))
        return *ours, (theirs[0], self._encoded(theirs[1], self._dtype), theirs[2])

    def _strata(self, y: Any) -> Any:
        """Classes of which training and validation are to have the same part; None for no such demand."""
        return None

    # Checks

    def _check_settings(self) -> None:
        """ValueError or TypeError for a setting that has no meaning."""
        of = type(self).__name__
        for name in ("batch_size", "epochs", "patience"):
            demand(of, name, getattr(self, name), low=1, whole=True)
        demand(of, "tol", self.tol)
        demand(of, "validation_fraction", self.validation_fraction, above=True)
        if self.validation_fraction >= 1:
            raise ValueError(f"validation_fraction of {of} lies between 0 and 1, given {self.validation_fraction!r}")
        if self.options is not None and not isinstance(self.options, dict):
            raise TypeError(f"options of {of} is a dict of the method's options, given {self.options!r:.60}")
        if self.network is None:
            if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
                raise TypeError(f"hidden of {of} is a tuple of widths such as (100, 100), given {self.hidden!r:.60}")
            for width in self.hidden:
                demand(of, "every entry of hidden", width, low=1, whole=True)
        elif not callable(self.network):
            raise TypeError(f"network is a module or a function (inputs, outputs) -> module, given {self.network!r:.60}")
        methods.factory(self.method)

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, Any, Any]:
        """X, y and weights as arrays; rows of weight zero are left out."""
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=(np.float64, np.float32) if reset else self._numpy_type,
            multi_output=True,
        )
        y, w = self._check_targets(y), None
        if sample_weight is not None:
            w = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
            if not w.any():
                raise ValueError("all sample weights are zero; at least one has to be above zero")
            X, y, w = X[w > 0], y[w > 0], w[w > 0]
        return X, y, w

    @property
    def _numpy_type(self) -> Any:
        return np.float32 if self._dtype == torch.float32 else np.float64

    # Predicting

    def inputs_of(self, X: Any) -> Tensor:
        """The rows of X as `module_` takes them: standardised, of its type, on its device."""
        X = self._table(X)
        return inputs(X, slice(None), self._scaler, self.device)

    def _table(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, reset=False, accept_sparse="csr", dtype=self._numpy_type)

    def _outputs(self, X: Any) -> Tensor:
        """What the network gives for a checked table."""
        with torch.no_grad():
            return torch.cat([self.module_(inputs(X, part, self._scaler, self.device)) for part in chunks(X.shape[0])])

    def _mean_loss(self, X: Any, t: Tensor, w: Any) -> float:
        loss, output = adapt(self._loss()), self._outputs(X)
        weights = torch.ones(len(t)) if w is None else torch.from_numpy(w)
        return float(loss.weighted(output, loss.prepare(output, t.to(self.device)), weights.to(output)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AltMinClassifier(ClassifierMixin, _Estimator):
    __doc__ = f"""A network that classifies rows of a table, trained by alternating minimization on the cross-entropy.

    {_Estimator.__doc__.partition(chr(10))[2].strip()} classes_: the labels, numbers or text, in
    the order of `predict_proba`'s columns.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> AltMinClassifier(hidden=(20,), epochs=50, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    _loss = nn.CrossEntropyLoss

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt. classes: all labels that will ever
        come, given in the first call. The scale of the columns is that of all rows seen so far. Returns itself."""
        first = _check_partial_fit_first_call(self, classes)
        return self._partial_fit(X, y, sample_weight, first or not hasattr(self, "module_"))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        kept = vars(self).pop("classes_", None)
        try:
            return super().fit(X, y, sample_weight)
        except Exception:
            if kept is not None:
                self.classes_ = kept
            raise

    fit.__doc__ = _Estimator.fit.__doc__

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: the softmax of `module_`'s output."""
        return self._outputs(self._table(X)).softmax(1).cpu().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        chosen = self._outputs(self._table(X)).argmax(1).cpu().numpy()
        return self.classes_[chosen]

    def _check_targets(self, y: Any) -> Any:
        check_classification_targets(y)
        return column_or_1d(y, warn=True)

    def _learn_targets(self, y: Any, w: Any) -> None:
        if not hasattr(self, "classes_"):
            self.classes_ = np.unique(y)
        elif len(new := np.setdiff1d(y, self.classes_)):
            raise ValueError(f"label {new[0]!r} is not among the classes {self.classes_!r} of the first partial_fit")

    def _encoded(self, y: Any, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy(np.searchsorted(self.classes_, y))

    def _n_outputs(self, y: Any) -> int:
        return len(self.classes_)

    def _strata(self, y: Any) -> Any:
        _, counts = np.unique(y, return_counts=True)
        enough = min(int(self.validation_fraction * len(y)), len(y)) >= len(counts) and counts.min() > 1
        return y if enough else None


class AltMinRegressor(RegressorMixin, _Estimator):
    __doc__ = f"""A network that predicts numbers, one or several for each row, trained by alternating minimization on
    the squared error. Targets are standardised inside, so that rates and losses do not depend on their unit.

    {_Estimator.__doc__.partition(chr(10))[2].strip()}

    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> AltMinRegressor(hidden=(20,), random_state=0).fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.9
    True
    """

    _loss = nn.MSELoss

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt. The scale of columns and targets is
        that of all rows seen so far. Returns itself."""
        return self._partial_fit(X, y, sample_weight, first=not hasattr(self, "module_"))

    def predict(self, X: Any) -> np.ndarray:
        """The targets of each row, in their own unit."""
        output = self._outputs(self._table(X)).cpu().numpy()
        found = (output * self._target_scaler.scale_ + self._target_scaler.mean_).astype(output.dtype, copy=False)
        return found[:, 0] if self._one_dimensional else found

    def _check_targets(self, y: Any) -> Any:
        return y.astype(np.float64)

    def _learn_targets(self, y: Any, w: Any) -> None:
        self._one_dimensional = y.ndim == 1
        self._target_scaler.partial_fit(y.reshape(len(y), -1), sample_weight=w)

    def _encoded(self, y: Any, dtype: torch.dtype) -> Tensor:
        known = self._target_scaler
        return torch.from_numpy((y.reshape(len(y), -1) - known.mean_) / known.scale_).to(dtype)

    def _n_outputs(self, y: Any) -> int:
        return y.reshape(len(y), -1).shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
