"""Learning from streams: streams of river, models that learn them, and runs of one on the other."""

from reproduction.streams.data import STREAMS, Stream, samples
from reproduction.streams.measurement import Progressive, progressive
from reproduction.streams.models import MODELS, Model, create
