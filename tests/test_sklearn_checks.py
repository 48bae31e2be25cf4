"""Both estimators pass every check of scikit-learn's own suite; none is expected to fail. That of a decision function
is skipped, as there is none.

That of the array interface runs because tests/conftest.py sets SCIPY_ARRAY_API.
"""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from altmin.sklearn import AltMinClassifier, AltMinRegressor

QUICK: dict[str, Any] = {"hidden": (10,), "epochs": 10, "lr": 0.03}


@parametrize_with_checks([AltMinClassifier(**QUICK), AltMinRegressor(**QUICK)])
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
