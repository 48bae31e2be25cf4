"""A classifier of streams."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from river.base import MiniBatchClassifier
from torch import Tensor, nn

from altmin.stream import growth
from altmin.stream.estimator import OnlineNetwork


class OnlineClassifier(OnlineNetwork, MiniBatchClassifier):
    """A network that learns to classify one sample at a time, with river's interface.

    Samples are dicts of numbers, labels anything hashable. Classes and features may appear at any time: the network
    gets an output or an input for each, and keeps its weights, its optimizer's state and its memories. A new feature
    changes no prediction for samples without it, a new class none of the ratios between probabilities of the others.
    Parameters are those of `OnlineNetwork`.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> model = OnlineClassifier(seed=0)
    >>> accuracy = evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
    >>> accuracy.get() > 0.8
    True
    """

    def _begin(self) -> None:
        super()._begin()
        self._classes: dict[Hashable, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def classes(self) -> list[Hashable]:
        """The classes seen so far, in the order of the network's outputs."""
        return list(self._classes)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far; empty before the first."""
        if len(self._classes) < 2:
            return dict.fromkeys(self._classes, 1.0)
        return dict(zip(self._classes, torch.softmax(self._output(x), 0).tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """A DataFrame of probabilities, a class in each column."""
        import pandas as pd

        rows = self._rows(X)
        if len(self._classes) < 2:
            return pd.DataFrame(dict.fromkeys(self._classes, 1.0), index=X.index)
        p = torch.softmax(self._outputs(rows), 1).numpy()
        return pd.DataFrame(p, index=X.index, columns=pd.Index(self.classes, dtype=object))

    def predict_many(self, X: Any) -> Any:
        """A Series of the most probable classes; of None before the first."""
        import pandas as pd

        found = self.predict_proba_many(X).to_numpy()
        classes = [self.classes[j] for j in found.argmax(1)] if found.size else [None] * len(X)
        return pd.Series(classes, index=X.index, dtype=None if found.size else object)

    def _loss(self) -> nn.Module:
        return nn.CrossEntropyLoss()

    def _check(self, y: Any) -> None:
        try:
            known = y == y and y is not None and hash(y) is not None
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"a label is anything that a dict can hold, given {y!r:.40} (nothing was learnt)")

    def _targets(self, targets: Sequence[Any]) -> Tensor | None:
        """Admits new classes. The network is built with the second class: one alone has nothing to teach."""
        for y in targets:
            self._classes.setdefault(y, len(self._classes))
        if len(self._classes) < 2:
            return None
        if self._trained is None:
            self._build(len(self._classes))
        new = len(self._classes) - list(self._trained.model.parameters())[-1].shape[0]  # type: ignore[union-attr]
        if new:
            growth.add_outputs(self._trained, new)  # type: ignore[arg-type]
        return torch.tensor([self._classes[y] for y in targets])
