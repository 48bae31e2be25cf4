"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str, typer.Option(metavar="NAME", help="mnist, mnist-sequential, fashion-mnist, cifar10, higgs or shakespeare.")
]
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder; else $ALTMIN_DATA, or the cache.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="mlp-DEPTHxWIDTH, lenet5, resnet18-64, gpt-6x128 and others.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training samples.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="An option of a method, as lr=0.001, or of one among several, as adam.lr=0.001; may be given again.",
    ),
]
Schedule = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of the learning rate: constant, linear, cosine, step, one-cycle or warmup-cosine, by batch; "
        "cosine/epoch and so on by epoch.",
    ),
]
Codes = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How codes move: gradient, discrete or straight-through; in a recurrent model parallel or sequential in "
        "time. If not given: gradient, discrete where an activation has no derivative, parallel in time.",
    ),
]
FreezeFirst = Annotated[bool, typer.Option("--freeze-first", help="Leave the first layer as it is initialised.")]
Augment = Annotated[
    str | None, typer.Option(metavar="NAME", help="Change training images at random: crop-flip, as usual for cifar10.")
]
EvalBatches = Annotated[str, typer.Option(metavar="N,N,...", help="Evaluate after these batches of the run too.")]
Validation = Annotated[bool, typer.Option("--validation", help="Evaluate on validation samples, not on test samples.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Train on the first so many samples only.")]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="For the initial weights, the order of the data and dropout.")
]
Seeds = Annotated[int, typer.Option(min=1, help="Train with so many seeds: --seed, and those after it.")]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, or one GPU as cuda:0.")]
Precision = Annotated[str, typer.Option(metavar="NAME", help="Of products: float32, tf32 (on a GPU only) or bf16.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; torch's own choice if not given.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what was found: .png, .svg or .pdf.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write what was found to FILE, as JSON.")]
