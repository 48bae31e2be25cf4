"""Learning from streams: a network that takes one sample at a time, with the interface of river."""

try:
    import river  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        'altmin.stream needs river, which is not installed: pip install "altmin[stream]"'
    ) from None

from altmin.stream.classifier import OnlineClassifier
from altmin.stream.regressor import OnlineRegressor

__all__ = ["OnlineClassifier", "OnlineRegressor"]
