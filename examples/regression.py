"""Regression with targets of tens of thousands: the estimator standardises columns and targets itself."""

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from altmin.sklearn import AltMinRegressor


def houses(seed):
    """Prices of about 10,000 to 250,000, a nonlinear function of five of ten columns, with noise."""
    x, y = make_friedman1(1500, noise=1.0, random_state=seed)
    return train_test_split(x * np.logspace(-2, 3, 10), 10_000 * y, random_state=seed)


def main(seed=0):
    x, x_test, y, y_test = houses(seed)
    regressor = AltMinRegressor(hidden=(64, 64), early_stopping=True, random_state=seed).fit(x, y)
    return regressor.score(x_test, y_test)


if __name__ == "__main__":
    print(f"test R^2 {main():.3f}")
