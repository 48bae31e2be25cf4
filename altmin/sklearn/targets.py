"""What the targets of a table are: a label for each row, several labels, or numbers. Each kind says which loss the
network is trained on, how targets are encoded for it, and what its outputs mean."""

from typing import Any

import numpy as np
import torch.nn.functional as F
from scipy.special import expit, softmax
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor, nn

from altmin.calculus.context import LOCAL, Context
from altmin.common.describe import kind
from altmin.core.losses import Evaluation, Loss, LossFunction
from altmin.sklearn.export import Unscale
from altmin.sklearn.training import learn_scale


class Targets:
    """What is known of a table's targets: `outputs`, the number of outputs that the network needs, and `loss` of them.

    Subclasses have `check` for targets of other rows, `encode` for targets as the loss takes them, `predict` for what
    outputs mean, and `head`, the last layer of an exported network.
    """

    outputs: int

    def learn(self, y: np.ndarray, w: Any = None) -> None:
        """Add the targets of rows, of weights w, to what is known."""

    def strata(self, y: np.ndarray, fraction: float) -> Any:
        """Return labels by which this part of the rows is drawn; None if it is not stratified."""
        return None


class Labels(Targets):
    """One label for each row, of these classes."""

    def __init__(self, classes: np.ndarray):
        self.classes, self.outputs = classes, len(classes)

    def loss(self) -> LossFunction:
        return nn.CrossEntropyLoss()

    def check(self, y: np.ndarray) -> None:
        if y.ndim > 1:
            raise ValueError(f"one label for each row is expected as so far, given targets of shape {y.shape}")
        if len(new := np.setdiff1d(y, self.classes)):
            raise ValueError(f"label {new.tolist()[0]!r} is not among the classes {self.classes.tolist()!r:.60}")

    def encode(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.classes, y)

    def predict(self, output: np.ndarray) -> np.ndarray:
        return self.classes[output.argmax(1)]

    def probabilities(self, output: np.ndarray) -> np.ndarray:
        return softmax(output, axis=1)

    def strata(self, y: np.ndarray, fraction: float) -> Any:
        _, counts = np.unique(y, return_counts=True)
        return y if counts.min() > 1 and int(fraction * len(y)) >= len(counts) else None

    def head(self) -> nn.Module:
        return nn.Softmax(1)


class Indicators(Targets):
    """For each row and each of several labels whether the row has it, 1 or 0."""

    def __init__(self, outputs: int):
        self.outputs, self.classes = outputs, np.arange(outputs)

    def loss(self) -> LossFunction:
        return BinaryCrossEntropy()

    def check(self, y: np.ndarray) -> None:
        if y.shape[1:] != (self.outputs,):
            raise ValueError(
                f"targets have {self.outputs} labels for each row so far, shape (rows, {self.outputs}), given {y.shape}"
            )
        if len(wrong := np.setdiff1d(y, [0, 1])):
            raise ValueError(f"targets with several labels for each row are 0 or 1, given {wrong.tolist()[0]!r}")

    def encode(self, y: np.ndarray) -> np.ndarray:
        return y.astype(np.float64)

    def predict(self, output: np.ndarray) -> np.ndarray:
        return (output > 0).astype(int)

    def probabilities(self, output: np.ndarray) -> np.ndarray:
        return expit(output)

    def head(self) -> nn.Module:
        return nn.Sigmoid()


class Numbers(Targets):
    """Numbers that are standardised for the network. shape: of those of one row."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape, self.scaler, self.outputs = shape, StandardScaler(), int(np.prod(shape))

    def loss(self) -> LossFunction:
        return nn.MSELoss()

    def check(self, y: np.ndarray) -> None:
        if y.shape[1:] != self.shape:
            raise ValueError(f"targets have shape (rows, {', '.join(map(str, self.shape))}) so far, given {y.shape}")

    def learn(self, y: np.ndarray, w: Any = None) -> None:
        learn_scale(self.scaler, y.reshape(len(y), -1), w, "target")

    def encode(self, y: np.ndarray) -> np.ndarray:
        return (y.reshape(len(y), -1) - self.scaler.mean_) / self.scaler.scale_

    def predict(self, output: np.ndarray) -> np.ndarray:
        found = (output * self.scaler.scale_ + self.scaler.mean_).astype(output.dtype, copy=False)
        return found.reshape(len(found), *self.shape)

    def head(self) -> nn.Module:
        return Unscale(self.scaler.mean_, self.scaler.scale_, self.shape)


class BinaryCrossEntropy(Loss):
    """-sum_j (y_j log p_j + (1 - y_j) log(1 - p_j)) with p = sigmoid(o), the mean over rows: delta = (p - y) / n,
    H q = p (1 - p) q / n.

    >>> from torch import ones, zeros
    >>> f"{BinaryCrossEntropy()(zeros(3, 2), ones(3, 2)).exp():.4f}"  # both labels have probability 1/2
    '4.0000'
    """

    rounding = 32.0  # as of the cross-entropy
    curves = True

    def prepare(self, output: Tensor, y: Tensor, context: Context = LOCAL) -> Tensor:
        """ValueError unless targets have the output's shape and type."""
        if y.shape != output.shape or y.dtype != output.dtype:
            raise ValueError(f"the model's output is {kind(output)}, the targets are {kind(y)}; make them alike")
        return y

    def at(self, output: Tensor, y: Tensor) -> Evaluation:
        n, p = len(output), output.sigmoid()
        value = F.binary_cross_entropy_with_logits(output, y, reduction="sum") / n
        return Evaluation(value, (p - y) / n, lambda q: p * (1 - p) * q / n)

    def weighted(self, output: Tensor, y: Tensor, w: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(output, y, reduction="none").sum(1)
        return (w * each).sum() / w.sum()


def label_targets(y: np.ndarray, classes: Any = None) -> Labels | Indicators:
    """Return what the targets of a classification are, as `checked_labels` gives them. classes: all labels there will
    be, None for those of these rows. ValueError if the targets do not fit these."""
    if y.ndim == 1:
        return Labels(np.unique(y if classes is None else classes))
    found = Indicators(y.shape[1])
    if classes is not None and not np.array_equal(np.unique(classes), found.classes):
        raise ValueError(
            f"the classes of {found.outputs} labels for each row are 0 to {found.outputs - 1}, given {classes!r:.60}"
        )
    return found


def checked_labels(y: Any) -> np.ndarray:
    """Return labels (rows,), or indicators (rows, labels). ValueError for anything else."""
    check_classification_targets(y)
    if type_of_target(y) != "multilabel-indicator":
        return column_or_1d(y, warn=True)
    return y.toarray() if hasattr(y, "toarray") else y


def class_weights(given: Any, y: np.ndarray, targets: Labels | Indicators) -> np.ndarray:
    """Return the weight of each row by its label, as scikit-learn's `class_weight`: "balanced", or weights by label, 1
    for one that is not named; with several labels for each row a list of these, which are multiplied. ValueError for
    weights that do not fit."""
    if isinstance(targets, Labels) and isinstance(given, dict):
        w: np.ndarray = compute_class_weight(given, classes=targets.classes, y=y)[targets.encode(y)]
    else:
        w = compute_sample_weight(given, y)
    if not np.isfinite(w).all() or (w < 0).any():
        raise ValueError(f"class_weight holds finite weights of at least 0, given {given!r:.60}")
    return w
