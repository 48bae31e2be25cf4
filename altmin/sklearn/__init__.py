"""Estimators for scikit-learn: neural networks trained by alternating minimization on tables."""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError('altmin.sklearn needs scikit-learn; install it with: pip install "altmin[sklearn]"') from None

from altmin.sklearn.estimators import AltMinClassifier, AltMinRegressor

__all__ = ["AltMinClassifier", "AltMinRegressor"]
