"""What the estimators share: settings, checks of tables, and how a network is made and trained."""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from altmin.common.devices import usable
from altmin.common.errors import demand
from altmin.common.swap import changed
from altmin.sklearn.training import Rows, Training, learn_scale

NETWORK = "network is a module or a function (inputs, outputs) -> module, given"
LR, DECAY = 1e-3, 0.01
"""The learning rate and the weight decay that "auto" stands for, but for methods in `Estimator._tuned`; chosen on
validation data: docs/estimators.md."""


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
    random_state: Any = None
    device: str = "cpu"

    _loss: ClassVar[type[nn.Module]]
    _tuned: ClassVar[dict[str, tuple[float, float]]]
    """By method: learning rate and weight decay, where they are not `LR` and `DECAY`."""

    # What a kind of estimator says of its targets

    def _check_targets(self, y: np.ndarray, kind: Any) -> np.ndarray:
        """Targets as they are kept, of a table of numbers of this type. ValueError if they are of another kind."""
        raise NotImplementedError

    def _first_targets(self, y: np.ndarray, w: Any, classes: Any) -> Any:
        """What is known of targets from the first rows alone; changes nothing."""
        raise NotImplementedError

    def _encoded(self, known: Any, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them."""
        raise NotImplementedError

    def _outputs_for(self, known: Any) -> int:
        """How many outputs the network needs."""
        raise NotImplementedError

    def _strata(self, y: np.ndarray) -> Any:
        """Labels by which the rows held back are stratified; None: not stratified."""
        return None

    def set_params(self, **params: Any) -> Any:
        """As in scikit-learn; `options__NAME` sets one of the method's options and keeps the others, so that a search
        can vary it."""
        nested = {name: value for name, value in params.items() if name.startswith("options__")}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        if nested:
            new = {name.removeprefix("options__"): value for name, value in nested.items()}
            self.options = {**(self.options or {}), **new}
        return self

    # Training

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Trains a new network on a table and its targets, and returns itself.

        X: numpy, pandas or sparse; of a sparse one only mini-batches are made dense. sample_weight: a row of weight w
        counts as w rows in its mini-batch. ValueError or TypeError for input or settings that do not fit, `Diverged` if
        the network or its outputs for these rows are not finite in the end; then the estimator is as it was.
        """
        with changed(self) as new:
            new._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        self._check_settings()
        X, y, w = self._checked(X, y, sample_weight, first=True)
        training, known = self._begun(X, y, w, None)
        train = held = slice(None)
        if self.early_stopping:
            with training.random_numbers():
                seed = int(torch.randint(2**31 - 1, ()))
            train, held = train_test_split(
                np.arange(len(y)), test_size=self.validation_fraction, random_state=seed, stratify=self._strata(y)
            )
        rows, rest = (self._rows(X[part], y[part], w if w is None else w[part], known) for part in (train, held))
        training.fit(rows, rest if self.early_stopping else None, self.epochs, self.tol, self.patience)
        self._keep(training, known)

    def _go_on(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        """`partial_fit`: one pass over the rows in their order, by a copy of the network there is or by a new one."""
        with changed(self, "_training", "_known") as new:
            new._partial_fit(X, y, sample_weight, classes)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> None:
        first = not hasattr(self, "module_")
        if first:
            self._check_settings()
        X, y, w = self._checked(X, y, sample_weight, first)
        training, known = self._begun(X, y, w, classes) if first else (self._training, self._known)
        if w is not None and not first:
            self._demand_weights(training)
        if not first:
            self._learn(training, known, X, y, w)
        training.once(self._rows(X, y, w, known))
        self._keep(training, known)

    def _begun(self, X: Any, y: np.ndarray, w: Any, classes: Any) -> tuple[Training, Any]:
        """A new network, not trained yet, and what is known of the targets. Nothing of the estimator changes."""
        known = self._first_targets(y, w, classes)
        scaler = StandardScaler() if self.standardise else None
        if scaler is not None:
            learn_scale(scaler, X, w)
        with torch.random.fork_rng([]):
            torch.manual_seed(check_random_state(self.random_state).randint(2**31 - 1))
            module = self._made(X.shape[1], self._outputs_for(known))
            generator = torch.get_rng_state()
        module = module.to(self.device, torch.float32 if X.dtype == np.float32 else torch.float64).eval()
        given = self._method_options() | copy.deepcopy(self.options or {})
        training = Training(
            methods.create(self.method, module, **given), self._loss(), scaler, self.batch_size, generator
        )
        self._check_network(training, X, self._outputs_for(known))
        if w is not None:
            self._demand_weights(training)
        return training, known

    def _method_options(self) -> dict[str, Any]:
        """Rate, weight decay and loss, as far as the method has such options. Its own rate, unless one is given, and
        for labels its own loss serve too. ValueError for a regression by a method whose loss cannot be chosen."""
        known = inspect.signature(methods.factory(self.method)).parameters
        given: dict[str, Any] = self._decay()
        if self.lr == "auto":
            given |= {"lr": self._tuned.get(self.method, (LR, DECAY))[0]} if "lr" in known else {}
        elif self.lr is not None:
            given["lr"] = self.lr
        if "loss" in known and known["loss"].default in (None, inspect.Parameter.empty):
            return given | {"loss": self._loss()}
        if self._loss is not nn.CrossEntropyLoss:
            raise ValueError(
                f"method {self.method!r} trains classifiers alone; use am-adam or another for a regression"
            )
        return given

    def _decay(self) -> dict[str, float]:
        """The method's option weight_decay. "auto" is a number of ours where the method has that option, and gives way
        to `options`. ValueError for a number above zero where it has none, or one beside that of `options`."""
        known, auto = "weight_decay" in methods.options(self.method), self.weight_decay == "auto"
        if not auto and "weight_decay" in (self.options or {}):
            raise ValueError(f"weight_decay={self.weight_decay!r} is given, and in options too; give it once")
        if not known and not auto and self.weight_decay:
            raise ValueError(
                f'method {self.method!r} has no weight decay, given {self.weight_decay!r}; leave it "auto"'
            )
        tuned = self._tuned.get(self.method, (LR, DECAY))[1]
        return {"weight_decay": tuned if auto else float(self.weight_decay)} if known else {}

    def _made(self, n_inputs: int, n_outputs: int) -> nn.Module:
        if self.network is None:
            return models.mlp(n_inputs, tuple(self.hidden), n_outputs)
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        made = self.network(n_inputs, n_outputs)
        if not isinstance(made, nn.Module):
            raise TypeError(f"{NETWORK} one that makes {made!r:.60}")
        return made

    def _learn(self, training: Training, known: Any, X: Any, y: np.ndarray, w: Any) -> None:
        """Adds rows to what is known of the scale of the columns, and of the targets."""
        if training.scaler is not None:
            learn_scale(training.scaler, X, w)

    def _rows(self, X: Any, y: np.ndarray, w: Any, known: Any) -> Rows:
        t = self._encoded(known, y)
        return Rows(X, torch.from_numpy(t.astype(X.dtype) if t.dtype.kind == "f" else t), w)

    def _keep(self, training: Training, known: Any) -> None:
        """The attributes of a fitted estimator."""
        self._training, self._known = training, known
        self.module_, self.loss_curve_, self.n_iter_ = training.method.model, training.losses, len(training.losses)
        if training.held_losses:
            self.validation_curve_ = training.held_losses
        elif hasattr(self, "validation_curve_"):
            del self.validation_curve_

    # Predicting

    def inputs_of(self, X: Any) -> Tensor:
        """The rows of X as `module_` takes them: standardised, of its type, on its device."""
        X = self._table(X)
        found = self._training.inputs(X, slice(None))
        demand_finite(found.cpu().numpy(), "standardised values")
        return found

    def _outputs(self, X: Any) -> np.ndarray:
        X = self._table(X)
        found = self._training.outputs(X).cpu().numpy()
        demand_finite(found, "outputs")
        return found

    def _table(self, X: Any) -> Any:
        check_is_fitted(self)
        with _representable():
            return validate_data(self, X, reset=False, accept_sparse="csr", dtype=self._type())

    def _type(self) -> Any:
        """The type in which the network computes."""
        return np.float32 if next(self.module_.parameters()).dtype == torch.float32 else np.float64

    # Checks

    def _checked(self, X: Any, y: Any, sample_weight: Any, first: bool) -> tuple[Any, np.ndarray, Any]:
        """X, y and weights as arrays; rows of weight zero are left out."""
        kind = (np.float64, np.float32) if first else self._type()
        with _representable():
            X, y = validate_data(self, X, y, reset=first, accept_sparse="csr", dtype=kind, multi_output=True)
            y = self._check_targets(y, X.dtype)
            if sample_weight is None:
                return X, y, None
            w = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        if not w.any():
            raise ValueError("all sample weights are zero; at least one has to be above zero")
        return X[w > 0], y[w > 0], w[w > 0]

    def _check_settings(self) -> None:
        """ValueError or TypeError for a setting that has no meaning."""
        of = type(self).__name__
        for name in ("batch_size", "epochs", "patience"):
            demand(of, name, getattr(self, name), low=1, whole=True)
        demand(of, "tol", self.tol)
        if isinstance(self.weight_decay, str) and self.weight_decay != "auto":
            raise ValueError(f'weight_decay of {of} is a number or "auto", given {self.weight_decay!r:.60}')
        if self.weight_decay != "auto":
            demand(of, "weight_decay", self.weight_decay)
        if isinstance(self.lr, str) and self.lr != "auto":
            raise ValueError(f'lr of {of} is a number, None or "auto", given {self.lr!r:.60}')
        demand(of, "validation_fraction", self.validation_fraction, above=True)
        if self.validation_fraction >= 1:
            raise ValueError(f"validation_fraction of {of} lies between 0 and 1, given {self.validation_fraction!r}")
        if self.options is not None and not isinstance(self.options, dict):
            raise TypeError(f"options of {of} is a dict of the method's options, given {self.options!r:.60}")
        if self.network is not None and not callable(self.network):
            raise TypeError(f"{NETWORK} {self.network!r:.60}")
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray):
            raise TypeError(f"hidden of {of} is a tuple of widths such as (100, 100), given {self.hidden!r:.60}")
        for width in self.hidden:
            demand(of, "every width in hidden", width, low=1, whole=True)
        usable(f"device of {of}", self.device)

    def _check_network(self, training: Training, X: Any, n_outputs: int) -> None:
        """ValueError unless the network makes of a row what the task needs."""
        try:
            shape = tuple(training.outputs(X[:1]).shape)
        except (RuntimeError, ValueError) as error:
            words = str(error).partition("\n")[0]
            raise ValueError(f"the network cannot take rows of {X.shape[1]} columns: {words}") from None
        if shape != (1, n_outputs):
            raise ValueError(f"the network gives an output of shape {shape} for one row, (1, {n_outputs}) is needed")

    def _demand_weights(self, training: Training) -> None:
        if "sample_weight" not in inspect.signature(training.method.step).parameters:
            raise ValueError(f"method {self.method!r} takes no sample weights; am-adam, am-mem, adam and sgd do")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@contextmanager
def _representable() -> Iterator[None]:
    """ValueError for a number that is no float, such as 10**400."""
    try:
        yield
    except ArithmeticError as error:
        raise ValueError(f"the table, its targets or its weights hold a number that no float can be: {error}") from None


def demand_finite(found: np.ndarray, what: str) -> None:
    """ValueError unless what was computed for each row is finite."""
    if len(wrong := np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(1))):
        raise ValueError(
            f"the {what} for row {wrong[0]} are not finite: its numbers are too large; scale them as those that the "
            "network was trained on"
        )
