"""The options of commands: those that several share, and how the fields of a dataclass become those of a command."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, get_annotations
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from altmin.cli import config

DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder; else $ALTMIN_DATA, or the cache.")]
DEVICES = "cpu, cuda, one GPU as cuda:0, or auto: cuda where there is a GPU, else cpu."
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help=DEVICES)]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; torch's own choice if not given.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what was found: .png, .svg or .pdf.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write what was found to FILE, as JSON.")]
Options = TypeVar("Options")


def option(default: Any, help: str, *names: str, **how: Any) -> Any:
    """A field of a dataclass whose fields are a command's options. names: of the option, if it has another than the
    field's. how: what else `typer.Option` takes."""
    return field(default=default, metadata={"option": typer.Option(*names, help=help, **how)})


def rate() -> Any:
    return option(None, "The learning rate; the method's own choice if not given.")


def batch() -> Any:
    return option(200, "Samples in a mini-batch.", min=1)


def command(options: type[Options]) -> Callable[[Callable[[typer.Context, Options], None]], Callable[..., None]]:
    """Makes a function (context, options) a command whose options are the fields of a dataclass, its own ones first."""
    own, hints = get_annotations(options), get_type_hints(options, include_extras=True)
    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context]
    for each in sorted(fields(options), key=lambda each: each.name not in own):  # type: ignore[arg-type]
        hint, default = hints[each.name], Parameter.empty if each.default is MISSING else each.default
        hint = Annotated[hint, each.metadata["option"]] if each.metadata else hint
        parameters.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    def decorate(function: Callable[[typer.Context, Options], None]) -> Callable[..., None]:
        @wraps(function)
        def called(ctx: typer.Context, **given: Any) -> None:
            function(ctx, options(**given))

        called.__annotations__ = {each.name: each.annotation for each in parameters}
        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return called

    return decorate


DATA_SETS = "mnist, mnist-sequential, mnist-permuted, mnist-rows, fashion-mnist, cifar10, higgs or shakespeare"
TABLES = "a table of your own: .csv, .csv.gz, .tsv, .parquet, or .npz with arrays x and y"


@dataclass(frozen=True, kw_only=True)
class OfMethods:
    """What commands that build methods have in common."""

    data: str = option("mnist", f"{DATA_SETS}.", metavar="NAME")
    set_: list[str] | None = option(
        None,
        "An option of a method, as lr=0.001, or of one among several, as adam.lr=0.001; may be given again.",
        "--set",
        metavar="NAME=VALUE",
    )
    import_: list[str] | None = option(
        None,
        "Import a module first, such as one that registers a method of your own; may be given again.",
        "--import",
        metavar="MODULE",
        is_eager=True,
        callback=config.import_modules,
    )
    seed: int = option(0, "For the initial weights, the order of the data and dropout.", min=0, max=2**32 - 1)
    device: Device = "cpu"
    precision: str = option("float32", "Of products: float32, tf32 (on a GPU only) or bf16.", metavar="NAME")
    threads: Threads = None
    json_file: Json = None


@dataclass(frozen=True, kw_only=True)
class OfSamples(OfMethods):
    """What those of them that train on samples of the data have in common."""

    codes: str | None = option(
        None,
        "How codes move: gradient, printed (as in the paper), discrete or straight-through; in a recurrent model "
        "exact or parallel in time. If not given: gradient, discrete where an activation has no derivative, "
        "parallel in time.",
        metavar="NAME",
    )
    order: str | None = option(None, "What moves first: codes-first, or weights-first, as suits a gpt.", metavar="NAME")
    share: float | None = option(
        None, "How much of the gradient at a block's output the code below may take, from 0 to 1.", metavar="NUMBER"
    )
    at: str | None = option(
        None, "Cut the model after these of its modules, and nowhere else.", metavar="NAME,NAME,..."
    )
    data_dir: DataDir = None


@dataclass(frozen=True, kw_only=True)
class OfTables(OfSamples):
    """What those of them that take a table of one's own have in common."""

    data: str = option("mnist", f"{DATA_SETS}; or {TABLES}.", metavar="NAME")
    target: str | None = option(None, "The column of a table to predict.", metavar="COLUMN")
    task: str = option(
        "auto",
        "classification, regression, or auto: classification if the target has texts or few different whole numbers.",
        metavar="NAME",
    )
    drop: str | None = option(None, "Columns of a table to leave out, such as ids.", metavar="COLUMN,COLUMN,...")
    test_part: float = option(0.2, "The part of a table's rows that is held back to test.", metavar="NUMBER")
    split_seed: int = option(0, "Which rows these are.", min=0)


@dataclass(frozen=True, kw_only=True)
class OfRuns(OfTables):
    """What `train` and `compare` have in common. Those that `RunConfig` has too become its settings."""

    model: str = option(
        "mlp-2x100",
        "mlp-DEPTHxWIDTH, lenet5, resnet18-64, gpt-6x128 and others; or a model of your own as MODULE:FUNCTION, a "
        "function (sample_shape, classes) -> nn.Module in the current folder or installed.",
        metavar="NAME",
        callback=config.own_model,
    )
    epochs: int | None = option(None, "Passes over the training samples [1; over a table 50].", min=1)
    batch_size: int | None = option(None, "Samples in a mini-batch [200; of a table 64].", min=1)
    device: Device = "auto"
    schedule: str = option(
        "constant",
        "Of the learning rate: constant, linear, cosine, step or one-cycle, by batch; cosine/epoch and so on by epoch.",
        metavar="NAME",
    )
    warmup: int = option(0, "Let the learning rate rise for N batches first; epochs, if it moves by epoch.", min=0)
    augment: str | None = option(
        None,
        "Change training samples at random: crop-flip for images, as usual for cifar10; random-windows for a text, "
        "where it is the default; or none.",
        metavar="NAME",
    )
    freeze_first: bool = option(False, "Leave the first layer as it is initialised.", "--freeze-first")
    seeds: int = option(1, "Train with N seeds: --seed, and those after it.", min=1)
    eval_batches: str = option("", "Evaluate after these batches of the run too.", metavar="N,N,...")
    validation: bool = option(False, "Evaluate on validation samples, not on test samples.", "--validation")
    limit: int | None = option(None, "Train on the first N samples only.", min=1)
    config_file: Path | None = option(
        None,
        "Read settings from a TOML file; options given beside it override them.",
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=config.read,
    )
    save_config: Path | None = option(
        None, "Write all settings of this run, for --config.", "--save-config", metavar="FILE"
    )
