"""Learning from streams, one sample at a time: the models of `altmin.stream` beside river's, beyond the paper.

All have their defaults, which were chosen on other streams.
"""

from reproduction import Figure
from reproduction.streams import MODELS, STREAMS, Progressive

SHOWN = ("Gauss-Newton", "AM-mem", "Adam", "adaptive forest")
"""The models that the picture shows; they come first, so that each has a colour of its own."""
ORDER = (*SHOWN, *(name for name in MODELS if name not in SHOWN))

FIGURES = [
    Figure(
        name="streams",
        title="Streams: progressive accuracy or error, each sample predicted before it is learnt",
        runs=[
            Progressive(stream, name, seeds=1 if MODELS[name].kind == "ensemble" else 3, shown=name in SHOWN)
            for stream, about in STREAMS.items()
            for name in ORDER
            if MODELS[name].serves(about.regression)
        ],
        axes=("samples", "all samples so far"),
        minutes=45,
        measure="accuracy",
    )
]
