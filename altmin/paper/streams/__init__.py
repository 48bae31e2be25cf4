"""Learning from streams: streams of river, models that learn them, and runs of one on the other."""

from altmin.paper.streams.data import STREAMS, Stream, samples
from altmin.paper.streams.measurement import Progressive, progressive
from altmin.paper.streams.models import MODELS, Model, create

__all__ = ["MODELS", "STREAMS", "Model", "Progressive", "Stream", "create", "progressive", "samples"]
