"""The data sets of experiments/estimators.py: six to classify, six to predict, all made or brought by scikit-learn; and
two to classify whose labels are partly wrong, for experiments/estimator_probabilities.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

Table = tuple[np.ndarray, np.ndarray]


def _made(maker: str, **options: Any) -> Callable[[int], Table]:
    return lambda seed: getattr(datasets, maker)(random_state=seed, **options)[:2]


def _brought(loader: str) -> Callable[[int], Table]:
    return lambda seed: getattr(datasets, loader)(return_X_y=True)


CLASSIFICATION: dict[str, Callable[[int], Table]] = {
    "iris": _brought("load_iris"),
    "wine": _brought("load_wine"),
    "breast cancer": _brought("load_breast_cancer"),
    "digits": _brought("load_digits"),
    "moons": _made("make_moons", n_samples=600, noise=0.3),
    "clusters": _made("make_classification", n_samples=600, n_informative=8, n_classes=3, n_clusters_per_class=2),
}
NOISY: dict[str, Callable[[int], Table]] = {
    "15 % wrong labels": _made("make_classification", n_samples=1500, n_informative=8, n_classes=3, flip_y=0.15),
    "30 % wrong labels": _made("make_classification", n_samples=1500, n_informative=6, class_sep=0.7, flip_y=0.3),
}
REGRESSION: dict[str, Callable[[int], Table]] = {
    "diabetes": _brought("load_diabetes"),
    "linnerud": _brought("load_linnerud"),
    "friedman 1": _made("make_friedman1", n_samples=600, noise=1.0),
    "friedman 2": _made("make_friedman2", n_samples=600, noise=100.0),
    "friedman 3": _made("make_friedman3", n_samples=600, noise=0.1),
    "swiss roll": _made("make_swiss_roll", n_samples=600, noise=0.5),
}


def split(name: str, seed: int, on: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X to train on, X to measure on, y for each. A third is for the test; with on="validation" a third of the rest is
    measured on instead, and generated data come from other seeds."""
    classes = name not in REGRESSION
    X, y = (CLASSIFICATION | NOISY | REGRESSION)[name](seed + 100 if on == "validation" else seed)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=1 / 3, random_state=seed, stratify=y if classes else None
    )
    if on == "test":
        return train, test, y_train, y_test
    return train_test_split(train, y_train, test_size=1 / 3, random_state=seed, stratify=y_train if classes else None)
