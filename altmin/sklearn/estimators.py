"""`AltMinClassifier` and `AltMinRegressor`: a table in, a trained network out, in scikit-learn's own manner."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import type_of_target

from altmin.sklearn.base import Estimator, demand_finite
from altmin.sklearn.settings import CONSTRAINTS
from altmin.sklearn.targets import Numbers, Targets, checked_labels, class_weights, label_targets
from altmin.sklearn.training import Training


@dataclass(eq=False, repr=False, kw_only=True)
class AltMinClassifier(ClassifierMixin, Estimator):
    """A neural network that classifies the rows of a table, trained by alternating minimization on the cross-entropy.

    y: a label for each row; or several, as an array (rows, labels) of 0 and 1, which tells which labels a row has.

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
        categorical: "auto" takes tables with categories and missing values: a column of texts, of truth values or of
            pandas' type "category" becomes a column of 0 and 1 for each category that `fit` sees, others are 0 in all;
            a missing number is replaced by the mean; where values are missing in `fit`, another column tells where. The
            network then computes in float32, and weights of rows do not change the scale of columns. None: a table of
            numbers, none missing.
        class_weight: weights of the classes, by which the rows' weights are multiplied: a dict by label, where others
            are 1; "balanced", by which all classes weigh the same in sum; with several labels for each row a list of
            a dict for each, and a row has the product. Classifiers alone.
        warm_start: whether `fit` goes on from the weights there are, once fitted: with a new optimizer and the settings
            of now, but for the shape of the network, at the scale of the columns and targets of the first call.
        verbose: whether the losses of each epoch are printed.
        random_state: gives the first weights, the order of the rows and which are held back.
        device: where the network is trained and predicts.

    Attributes of a fitted one:
        classes_: the labels, in the order of the columns of `predict_proba`; with several for each row their numbers.
        module_: the trained network; it takes what `inputs_of(X)` gives, in the table's type, float64 or float32.
        loss_curve_, n_iter_: the mean loss of each epoch, and how many there were, with those before a warm start.
        validation_curve_: with early stopping, the loss of the rows held back after each epoch.
        n_features_in_, feature_names_in_: the number of columns; their names where the table has any.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = AltMinClassifier(hidden=(20,), lr=0.01, epochs=50, random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    """

    class_weight: Any = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CONSTRAINTS,
        "class_weight": [dict, list, StrOptions({"balanced"}), None],
    }
    _tuned: ClassVar[dict[str, tuple[float, float]]] = {"am-mem": (0.006, 2.0)}

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt; returns itself.

        classes: all labels that will ever come, needed in the first call unless y has several labels for each row. The
        scale of the columns is that of all rows seen so far; with `categorical`, of the first. ValueError for labels of
        no class, other classes than before, and class_weight="balanced".
        """
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} counts the rows of each class, which partial_fit does not have; "
                "give a dict of weights by class"
            )
        if hasattr(self, "module_") and classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes={classes!r:.60} are not those of the first call, {self.classes_!r:.60}")
        return self._go_on(X, y, sample_weight, classes)

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> None:
        if not hasattr(self, "module_") and classes is None and type_of_target(y) != "multilabel-indicator":
            raise ValueError("the first partial_fit needs classes=, all labels that will ever come")
        super()._partial_fit(X, y, sample_weight, classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of `classes_`: the softmax of the network's output. If rows have
        several labels, the probability of each label by itself."""
        outputs = self._outputs(X)
        return self._targets.probabilities(outputs)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row. If rows have several labels, for each of them 1 if it is more probable
        than not, else 0."""
        outputs = self._outputs(X)
        return self._targets.predict(outputs)

    def _keep(self, training: Training, targets: Any) -> None:
        self.classes_ = targets.classes
        super()._keep(training, targets)

    def _check_targets(self, y: Any, kind: Any) -> np.ndarray:
        return checked_labels(y)

    def _new_targets(self, y: np.ndarray, classes: Any) -> Targets:
        return label_targets(y, classes)

    def _row_weights(self, y: np.ndarray, w: Any, targets: Any) -> Any:
        if self.class_weight is None:
            return w
        own = class_weights(self.class_weight, y, targets)
        return own if w is None else own * w

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


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

    _tuned: ClassVar[dict[str, tuple[float, float]]] = {"am-mem": (0.01, 1.0)}

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """One pass over these rows in their order, going on from what is learnt; returns itself.

        The scale of columns and targets is that of all rows seen so far; with `categorical` that of columns is of the
        first.
        """
        return self._go_on(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """The targets of each row, in their own unit: of shape (rows,), or (rows, targets) as they were given."""
        output = self._outputs(X)
        found: np.ndarray = self._targets.predict(output)
        demand_finite(found, "predictions")
        return found

    def _check_targets(self, y: Any, kind: Any) -> np.ndarray:
        y = y.astype(np.float64)
        if y.size and not np.abs(y).max() <= np.finfo(kind).max:
            raise ValueError(f"the targets are beyond the range of {np.dtype(kind)}, the type of the table; scale them")
        return y

    def _new_targets(self, y: np.ndarray, classes: Any) -> Targets:
        return Numbers(y.shape[1:])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
