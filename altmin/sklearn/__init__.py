"""Estimators for scikit-learn: neural networks trained by alternating minimization on tables."""

from altmin.common.optional import need

need("sklearn", "sklearn", "altmin.sklearn")

from altmin.sklearn.estimators import AltMinClassifier, AltMinRegressor

__all__ = ["AltMinClassifier", "AltMinRegressor"]
