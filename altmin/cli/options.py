"""The options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from altmin.cli import config

Data = Annotated[
    str, typer.Option(metavar="NAME", help="mnist, mnist-sequential, fashion-mnist, cifar10, higgs or shakespeare.")
]
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder; else $ALTMIN_DATA, or the cache.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="mlp-DEPTHxWIDTH, lenet5, resnet18-64, gpt-6x128 and others.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training samples.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples in a mini-batch.")]
Lr = Annotated[float | None, typer.Option(help="The learning rate; the method's own choice if not given.")]
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
        help="Of the learning rate: constant, linear, cosine, step or one-cycle, by batch; cosine/epoch and so on by "
        "epoch.",
    ),
]
Warmup = Annotated[
    int, typer.Option(min=0, help="Let the learning rate rise for so many batches first; epochs, if it moves by epoch.")
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
Order = Annotated[
    str | None, typer.Option(metavar="NAME", help="What moves first: codes-first, or weights-first, as suits a gpt.")
]
Share = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="How much of what is asked of a block the code below may take, from 0 to 1."),
]
At = Annotated[
    str | None,
    typer.Option(metavar="NAME,NAME,...", help="Cut the model after these of its modules, and nowhere else."),
]
Augment = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Change training samples at random: crop-flip for images, as usual for cifar10; random-windows for a "
        "text, where it is the default; or none.",
    ),
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
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=config.read,
        help="Read settings from a TOML file; options given beside it override them.",
    ),
]
SaveConfig = Annotated[
    Path | None, typer.Option("--save-config", metavar="FILE", help="Write all settings of this run, for --config.")
]
