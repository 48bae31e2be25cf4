"""Learning from streams: a network that takes one sample at a time, with the interface of river."""

from altmin.common.optional import need

need("river", "stream", "altmin.stream")

from altmin.stream.estimators import OnlineClassifier, OnlineRegressor

__all__ = ["OnlineClassifier", "OnlineRegressor"]
