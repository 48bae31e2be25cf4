"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[str, typer.Option(metavar="NAME", help="mnist, mnist-sequential, fashion-mnist, cifar10 or higgs.")]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The data folder, if not $ALTMIN_DATA or the user's cache."),
]
Model = Annotated[
    str,
    typer.Option(metavar="NAME", help="mlp-DEPTHxWIDTH, such as mlp-2x100, lenet5, elman-15, binary-500 and others."),
]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training samples.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")]
SetByMethod = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An option of one method, as am-adam.lr=0.004, or of all, as lr=0.001; may be given again.",
    ),
]
Schedule = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of the learning rate: constant, linear, cosine or step, moving after each batch; "
        "cosine/epoch and so on move after each epoch, as an offline method needs.",
    ),
]
Codes = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How codes move: gradient, discrete or straight-through; discrete if not given and an activation has no "
        "derivative.",
    ),
]
FreezeFirst = Annotated[
    bool, typer.Option("--freeze-first", help="Leave the first layer as it is initialised: a control.")
]
EvalBatches = Annotated[
    str, typer.Option(metavar="N,N,...", help="Evaluate after these batches too, counted over the whole run.")
]
Validation = Annotated[
    bool, typer.Option("--validation", help="Evaluate on the validation samples instead of the test ones.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Train on the first so many samples only.")]
Seed = Annotated[int, typer.Option(help="For the initial weights, the order of the data and dropout.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, or one GPU as cuda:0.")]
Precision = Annotated[
    str,
    typer.Option(metavar="NAME", help="Of products with weights: float32, tf32 (on a GPU only) or bf16."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; torch's own choice if not given.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write what was found to FILE, as JSON.")]
Record = Annotated[
    bool,
    typer.Option("--record", help="On a GPU: record the step once as a CUDA graph and replay it; the same numbers."),
]
