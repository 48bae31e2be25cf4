"""`AltMinClassifier` and `AltMinRegressor`: a table in, a trained network out, in scikit-learn's own manner."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from altmin.sklearn.base import Estimator
from altmin.sklearn.settings import CONSTRAINTS
from altmin.sklearn.targets import Indicators, Labels, Targets


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
            am-mem to its step. "auto" is 0.01, for am-mem 2 (for regressions 1), where the method has that option; None
            is the method's own. A rate or decay in `options` goes before these.
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
            are 1; "balanced", by which all classes weigh the same in sum. Classifiers of one label alone.
        verbose: whether each epoch's loss is printed, with early stopping that of the rows held back.
        random_state: gives the first weights, the order of the rows and which are held back.
        device: where the network is trained and predicts.

    Attributes of a fitted one:
        classes_: the labels, in the order of the columns of `predict_proba`; with several for each row their numbers.
        module_: the trained network; it takes what `inputs_of(X)` gives, in the table's type, float64 or float32.
        loss_curve_, n_iter_: the mean loss of each epoch, and how many there were, with those of `partial_fit`.
        validation_curve_: with early stopping, the loss of the rows held back after each epoch; else None.
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
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _tuned: ClassVar[dict[str, tuple[float, float]]] = {"am-mem": (0.006, 2.0)}

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Make one pass over these rows in their order, going on from what is learnt, and return the estimator.

        classes: all labels that will ever come, needed in the first call unless y has several labels for each row. The
        scale of the columns is that of all rows seen so far; with `categorical`, of the first. ValueError for labels of
        no class, other classes than before, and class_weight="balanced".
        """
        if isinstance(self.class_weight, str):
            raise ValueError("balanced classes count all rows, which partial_fit does not have; give a dict of weights")
        first = not hasattr(self, "module_")
        if first and classes is None and type_of_target(y) != "multilabel-indicator":
            raise ValueError("the first partial_fit needs classes=, all labels that will ever come")
        if not first and classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(f"classes={classes!r:.60} are not those of the first call, {self.classes_!r:.60}")
        return self._go_on(X, y, sample_weight, classes)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, in the order of `classes_`: the softmax of the network's output. If
        rows have several labels, the probability of each label by itself."""
        return self._answers(X)

    def _new_targets(self, y: Any, classes: Any) -> Labels:
        check_classification_targets(y)
        several = type_of_target(y) == "multilabel-indicator"
        if several and self.class_weight is not None:
            raise ValueError("class_weight is for one label in each row; use sklearn.multioutput.MultiOutputClassifier")
        if several:
            targets: Labels = Indicators(np.arange(y.shape[1]))
        else:
            targets = Labels(np.unique(column_or_1d(y) if classes is None else classes), self.class_weight)
        self.classes_ = targets.classes
        return targets

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
        """Make one pass over these rows in their order, going on from what is learnt, and return the estimator.

        The scale of columns and targets is that of all rows seen so far; with `categorical` that of columns is of the
        first.
        """
        return self._go_on(X, y, sample_weight)

    def _new_targets(self, y: Any, classes: Any) -> Targets:
        return Targets(y.shape[1:])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
