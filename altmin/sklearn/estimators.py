"""`AltMinClassifier` and `AltMinRegressor`: a table in, a trained network out, in scikit-learn's own manner."""

from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import nn

from altmin.sklearn.base import Estimator, demand_finite
from altmin.sklearn.training import Training, learn_scale


class AltMinClassifier(ClassifierMixin, Estimator):
    """A neural network that classifies the rows of a table, trained by alternating minimization on the cross-entropy.

    Parameters:
        hidden: widths of the hidden layers, with ReLU between them; () is a linear model.
        network: a custom network instead of `hidden`: a module, whose copy is trained from its present
            weights, or a function (inputs, outputs) -> module.
        method, lr, options: as in `altmin.methods.create(method, network, lr=lr, **options)`. lr "auto" is 0.001, for
            am-mem 0.006 (for regressions 0.01); with lr=None, or for a method without that option, the rate is the
            method's own. A method of one's own (`altmin.methods.register`) is given the loss if its factory takes one.
        weight_decay: the method's option of that name; this multiple of each parameter is added to its gradient, for
            am-mem to its step. "auto" is 0.01, for am-mem 2 (for regressions 1), where the method has that option and
            `options` does not name it, and nothing where it has none.
        batch_size: rows in a mini-batch.
        epochs: passes over the table, at most.
        tol, patience: `fit` ends when for `patience` epochs the loss has not fallen by more than `tol` below the lowest
            before.
        early_stopping: whether that is the loss of rows held back from training, and the network is in the end that of
            the epoch where it was lowest.
        validation_fraction: which part of the rows is held back.
        standardise: whether every column is brought to mean 0 and variance 1 inside.
        random_state: gives the first weights, the order of the rows and which are held back.
        device: where the network is trained and predicts.

    Attributes of a fitted one:
        classes_: the labels, in the order of the columns of `predict_proba`.
        module_: the trained network; it takes what `inputs_of(X)` gives, in the table's type, float64 or float32.
        loss_curve_, n_iter_: the mean loss of each epoch, and how many there were.
        validation_curve_: with early stopping, the loss of the rows held back after each epoch.
        n_features_in_, feature_names_in_: the number of columns; their names where the table has any.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = AltMinClassifier(hidden=(20,), lr=0.01, epochs=50, random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    """

    _loss = nn.CrossEntropyLoss
    _tuned: ClassVar[dict[str, tuple[float, float]]] = {"am-mem": (0.006, 2.0)}

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt; returns itself.

        classes: all labels that will ever come, needed in the first call. The scale of the columns is that of all rows
        seen so far. ValueError for labels of no class, or other classes than before.
        """
        if not hasattr(self, "module_") and classes is None:
            raise ValueError("the first partial_fit needs classes=, all labels that will ever come")
        if hasattr(self, "module_") and classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes={classes!r:.60} are not those of the first call, {self.classes_!r:.60}")
        return self._go_on(X, y, sample_weight, classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: the softmax of the network's output."""
        return softmax(self._outputs(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        chosen = self._outputs(X).argmax(1)
        return self.classes_[chosen]

    def _keep(self, training: Training, known: np.ndarray) -> None:
        self.classes_ = known
        super()._keep(training, known)

    def _check_targets(self, y: np.ndarray, kind: Any) -> np.ndarray:
        check_classification_targets(y)
        return column_or_1d(y, warn=True)

    def _first_targets(self, y: np.ndarray, w: Any, classes: Any) -> np.ndarray:
        known = np.unique(y if classes is None else classes)
        self._demand_known(known, y)
        return known

    def _learn(self, training: Training, known: Any, X: Any, y: np.ndarray, w: Any) -> None:
        self._demand_known(known, y)
        super()._learn(training, known, X, y, w)

    def _demand_known(self, known: np.ndarray, y: np.ndarray) -> None:
        if len(new := np.setdiff1d(y, known)):
            raise ValueError(f"label {new.tolist()[0]!r} is not among the classes {known.tolist()!r:.60}")

    def _encoded(self, known: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(known, y)

    def _outputs_for(self, known: np.ndarray) -> int:
        return len(known)

    def _strata(self, y: np.ndarray) -> Any:
        _, counts = np.unique(y, return_counts=True)
        return y if counts.min() > 1 and int(self.validation_fraction * len(y)) >= len(counts) else None


class AltMinRegressor(RegressorMixin, Estimator):
    """A neural network that predicts one number or several for each row of a table, trained by alternating minimization
    on the squared error. Targets are standardised inside, so that nothing depends on their unit.

    Parameters and attributes are those of `AltMinClassifier`, but for the classes. Losses are those of the standardised
    targets.

    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> regressor = AltMinRegressor(hidden=(50,), lr=0.01, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> regressor.score(X, np.sin(X[:, 0])) > 0.9
    True
    """

    _loss = nn.MSELoss
    _tuned: ClassVar[dict[str, tuple[float, float]]] = {"am-mem": (0.01, 1.0)}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt; returns itself.

        The scale of columns and targets is that of all rows seen so far.
        """
        return self._go_on(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """The targets of each row, in their own unit: of shape (rows,), or (rows, targets) as they were given."""
        output = self._outputs(X)
        scaler, shape = self._known
        found = (output * scaler.scale_ + scaler.mean_).astype(output.dtype, copy=False)
        demand_finite(found, "predictions")
        return found.reshape(len(found), *shape)

    def _check_targets(self, y: np.ndarray, kind: Any) -> np.ndarray:
        y = y.astype(np.float64)
        if y.size and not np.abs(y).max() <= np.finfo(kind).max:
            raise ValueError(f"the targets are beyond the range of {np.dtype(kind)}, the type of the table; scale them")
        return y

    def _first_targets(self, y: np.ndarray, w: Any, classes: Any) -> tuple[StandardScaler, tuple[int, ...]]:
        """The scale of the targets, and the shape of those of one row."""
        scaler = StandardScaler()
        learn_scale(scaler, y.reshape(len(y), -1), w, "target")
        return scaler, y.shape[1:]

    def _learn(self, training: Training, known: Any, X: Any, y: np.ndarray, w: Any) -> None:
        scaler, shape = known
        if y.shape[1:] != shape:
            raise ValueError(f"targets have shape (rows, {', '.join(map(str, shape))}) so far, given {y.shape}")
        super()._learn(training, known, X, y, w)
        learn_scale(scaler, y.reshape(len(y), -1), w, "target")

    def _encoded(self, known: Any, y: np.ndarray) -> np.ndarray:
        scaler, _ = known
        return (y.reshape(len(y), -1) - scaler.mean_) / scaler.scale_

    def _outputs_for(self, known: Any) -> int:
        return len(known[0].mean_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
