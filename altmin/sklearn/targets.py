"""Targets of a table: a label for each row, several labels, or numbers. Each kind has the loss that the network is
trained on, encodes targets for it, and decodes the network's outputs."""

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import column_or_1d
from torch import Tensor, nn

from altmin.sklearn.export import Unscale
from altmin.sklearn.training import learn_scale


class BinaryCrossEntropy(nn.BCEWithLogitsLoss):
    """-sum_j (y_j log p_j + (1 - y_j) log(1 - p_j)) with p = sigmoid(o), the mean over rows."""

    def __init__(self) -> None:
        super().__init__(reduction="none")

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        return super().forward(output, y).sum(1).mean()


class Targets:
    """Numbers that are standardised for the network, in float64. shape: of those of one row.

    scaler: of targets less `origin`, those of the first row: what varies little about a large number is no constant.
    """

    loss: nn.Module = nn.MSELoss()

    def __init__(self, shape: tuple[int, ...]):
        self.shape, self.scaler, self.outputs = shape, StandardScaler(), int(np.prod(shape))
        self.origin: Any = None

    @property
    def mean(self) -> Any:
        """The mean of each target."""
        return self.origin + self.scaler.mean_

    def checked(self, y: Any) -> np.ndarray:
        """Return targets as an array. ValueError unless they are of the kind and shape of the first."""
        if y.shape[1:] != self.shape:
            raise ValueError(f"targets have shape (rows, {', '.join(map(str, self.shape))}) so far, given {y.shape}")
        numbers: np.ndarray = y.astype(np.float64)
        return numbers

    def weights(self, y: np.ndarray) -> Any:
        """Return the weights of rows with these targets, None if all are 1."""
        return None

    def learn(self, y: np.ndarray, w: Any = None) -> None:
        """Add the targets of rows, of weights w, to what is known."""
        rows = y.reshape(len(y), -1)
        self.origin = rows[0] if self.origin is None else self.origin
        learn_scale(self.scaler, rows - self.origin, w, "target")

    def encoded(self, y: np.ndarray) -> np.ndarray:
        """Return targets as the loss takes them."""
        scaled: np.ndarray = (y.reshape(len(y), -1) - self.origin - self.scaler.mean_) / self.scaler.scale_
        return scaled

    def head(self) -> nn.Module:
        """Return the layer that makes probabilities or predictions of the network's outputs."""
        return Unscale(self.mean, self.scaler.scale_, self.shape)

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        """Return predictions for what `head` gives."""
        return outputs


class Labels(Targets):
    """One label for each row, of these classes. class_weight: as scikit-learn has it, None if all weigh the same."""

    loss: nn.Module = nn.CrossEntropyLoss()

    def __init__(self, classes: np.ndarray, class_weight: Any = None):
        self.classes, self.outputs, self.class_weight = classes, len(classes), class_weight

    def checked(self, y: Any) -> np.ndarray:
        y = column_or_1d(y, warn=True)
        if len(new := np.setdiff1d(y, self.classes)):
            raise ValueError(f"label {new.tolist()[0]!r} is not among the classes {self.classes.tolist()!r:.60}")
        return y

    def weights(self, y: np.ndarray) -> Any:
        if self.class_weight is None:
            return None
        of_classes = compute_class_weight(self.class_weight, classes=self.classes, y=y)
        if not (np.isfinite(of_classes) & (of_classes > 0)).all():
            raise ValueError(f"class_weight holds finite weights above 0, given {self.class_weight!r:.60}")
        return of_classes[self.encoded(y)]

    def learn(self, y: np.ndarray, w: Any = None) -> None:
        pass

    def encoded(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.classes, y)

    def head(self) -> nn.Module:
        return nn.Softmax(1)

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        return self.classes[outputs.argmax(1)]


class Indicators(Labels):
    """Indicators (rows, labels) of several labels: 1 where the row has the label, else 0."""

    loss = BinaryCrossEntropy()

    def checked(self, y: Any) -> np.ndarray:
        labels: np.ndarray = y.toarray() if hasattr(y, "toarray") else y
        if labels.shape[1:] != (self.outputs,) or not np.isin(labels, (0, 1)).all():
            raise ValueError(f"targets are 0 or 1 for each of {self.outputs} labels so far, given shape {labels.shape}")
        return labels

    def encoded(self, y: np.ndarray) -> np.ndarray:
        return y.astype(np.float64)

    def head(self) -> nn.Module:
        return nn.Sigmoid()

    def predicted(self, outputs: np.ndarray) -> np.ndarray:
        return (outputs > 0.5).astype(int)
