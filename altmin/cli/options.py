"""Options: those that several commands have, those of methods, and dataclasses of options as commands."""

import ast
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
import typer

from altmin import data, methods
from altmin.cli import torchrun
from altmin.common import precision
from altmin.common.errors import unknown
from altmin.common.memory import keep_freed_memory
from altmin.training.config import RunConfig
from altmin.training.samples import Samples
from altmin.training.schedule import SCHEDULES

Given = TypeVar("Given")
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder; else $ALTMIN_DATA, or the cache.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:0, or auto: cuda where there is a GPU, else cpu.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; torch's choice if not given.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of initial weights, the order of data and dropout.")]
Precision = Annotated[str, typer.Option(help=f"Of products: {', '.join(precision.NAMES)}; tf32 is of GPUs.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result to FILE.")]
Lr = Annotated[float | None, typer.Option(help="Learning rate; the method's if not given.")]
SET = "An option of the method, such as share=0.2; may be repeated."
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SET)]
Data = Annotated[str, typer.Option(help=f"One of {', '.join(data.names())}.")]
SCHEDULED = f"Of the learning rate: auto (decay), {', '.join(SCHEDULES)}; with /epoch added by epoch, not by batch."
MODELS = "mlp-2x100 (depth x width), lenet5, resnet18-64, gpt-6x128, ...; or MODULE:FUNCTION, which is called with the "
MODELS += "samples' shape and the number of classes."


@dataclass(frozen=True, kw_only=True)
class Common:
    """The options of commands that train a model of a data set."""

    data: Data = "mnist"
    set_: Set = None
    seed: Seed = 0
    device: Device = "auto"
    threads: Threads = None
    data_dir: DataDir = None
    json_file: Json = None


@dataclass(frozen=True, kw_only=True)
class Runs(Common):
    """The options that `train` and `compare` have in common. Most are fields of `RunConfig`."""

    model: Annotated[str, typer.Option(help=MODELS)] = "mlp-2x100"
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training samples.")] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples in a mini-batch; 200 if not given.")] = None
    schedule: Annotated[str, typer.Option(help=SCHEDULED)] = "auto"
    warmup: Annotated[int, typer.Option(min=0, help="Batches in which the learning rate rises.")] = 0
    augment: Annotated[str | None, typer.Option(help="crop-flip, random-windows (usual for a text) or none.")] = None
    freeze_first: Annotated[bool, typer.Option("--freeze-first", help="Leave the first layer as it is.")] = False
    precision: Precision = "float32"
    limit: Annotated[int | None, typer.Option(min=1, help="Train on the first N samples.")] = None
    validation: Annotated[bool, typer.Option("--validation", help="Evaluate on validation samples.")] = False
    eval_batches: Annotated[str, typer.Option(metavar="N,N,...", help="Evaluate after these batches too.")] = ""

    def config(self, device: torch.device, **more: Any) -> RunConfig:
        """Return the run that the options describe."""
        settings = {field.name: getattr(self, field.name) for field in fields(RunConfig) if hasattr(self, field.name)}
        usual = "random-windows" if data.dataset(self.data).tokens else None
        settings |= {"device": device, "batch_size": self.batch_size or 200} | more
        settings["part"] = "validation" if self.validation else "test"
        settings["eval_batches"] = [int(number) for number in words(self.eval_batches)]
        settings["augment"] = {None: usual, "none": None}.get(self.augment, self.augment)
        return RunConfig(**settings)

    def samples(self, run: RunConfig) -> tuple[Samples, Samples]:
        """Return the training samples and those that the run is measured on, on its device."""
        x, y = (part[: run.limit].to(run.device) for part in data.load(run.data, "train", self.data_dir))
        test_x, test_y = (part.to(run.device) for part in data.load(run.data, run.part, self.data_dir))
        return (x, y), (test_x, test_y)


def command(options: type[Given]) -> Callable[[Callable[[Given], None]], Callable[..., None]]:
    """Make a function of a dataclass a command whose options are the dataclass's fields."""

    def decorate(function: Callable[[Given], None]) -> Callable[..., None]:
        def call(**values: Any) -> None:
            function(options(**values))

        call.__doc__ = function.__doc__
        call.__signature__ = inspect.signature(options)  # type: ignore[attr-defined]
        return call

    return decorate


def words(text: str) -> list[str]:
    """Return the parts of a comma-separated list, each once.

    >>> words("am-adam, adam,am-adam")
    ['am-adam', 'adam']
    """
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def of_methods(pairs: Sequence[str] | None, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return every option of each method: the defaults, and those in NAME=VALUE pairs, of which METHOD.NAME=VALUE are
    for one method. A value is a Python literal if it can be, else a text.

    >>> of_methods(["lr=0.1", "adam.lr=0.2"], ["adam", "sgd"])["adam"]["lr"]
    0.2
    """
    options = {name: _defaults(name) for name in names}
    for pair in sorted(pairs or [], key=lambda pair: "." in pair.partition("=")[0]):
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, such as lr=0.001, not {pair!r}")
        method, _, option = name.rpartition(".")
        if method and method not in options:
            raise unknown("method in --set,", method, options)
        for name in [method] if method else options:
            if isinstance(options[name].get(option), bool) and not isinstance(value(text), bool):
                raise ValueError(f"{option} of {name} is true or false, not {text!r}")
            options[name][option] = value(text)
    return options


def of_method(args: Any) -> dict[str, Any]:
    """Return every option of the one method of a command: `of_methods`, and --lr."""
    options = of_methods(args.set_, [args.method])[args.method]
    return options | ({} if args.lr is None else {"lr": args.lr})


def value(text: str) -> Any:
    """Return the value of a Python literal, or of true, false and none; else the text.

    >>> value("0.5"), value("true"), value("weights-first")
    (0.5, True, 'weights-first')
    """
    try:
        return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    except (ValueError, SyntaxError):
        return text


def _defaults(method: str) -> dict[str, Any]:
    parameters = inspect.signature(methods.factory(method)).parameters
    defaults = {name: parameters[name].default for name in methods.options(method)}
    return {name: default for name, default in defaults.items() if default is not inspect.Parameter.empty}


def prepare(name: str, threads: int | None, products: str = "float32") -> torch.device:
    """Return the device, and set the number of CPU threads. ValueError for a device or precision that is not here."""
    if name == "auto":  # under torchrun each process needs a GPU of its own
        name = "cuda" if torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1")) else "cpu"
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        device = torch.device(torchrun.device(name))
        torch.zeros((), device=device)
    except (AssertionError, RuntimeError) as error:  # torch asserts that it was built with such devices
        raise ValueError(f"--device {name!r}: {str(error).splitlines()[0]}") from None
    precision.check(products, device)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    keep_freed_memory()
    return device
