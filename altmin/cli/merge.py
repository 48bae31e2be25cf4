"""`altmin merge`: memories that several sites have written, added up."""

from pathlib import Path
from typing import Annotated

import typer
from safetensors.torch import save as to_bytes

from altmin.cli import output
from altmin.training import checkpoint
from altmin.training.merging import fitted_weights, merge_memories

Files = Annotated[list[Path], typer.Argument(help="Files of the sites, written by altmin.training.save_memories.")]
Out = Annotated[Path, typer.Option(help="Where the sum goes, for altmin.training.apply_memories or another merge.")]
Model = Annotated[Path | None, typer.Option(help="The weights that the sites began with, as safetensors.")]
NewModel = Annotated[Path | None, typer.Option(help="Where --model goes with its hidden layers fitted to the sum.")]


def merge(files: Files, out: Out, model: Model = None, new_model: NewModel = None) -> None:
    """Add up the co-activation memories that several sites gathered with the same weights."""
    if (model is None) != (new_model is None):
        raise ValueError("--model, the weights to fit, and --new-model, where they go, are given together")
    outputs = [path.resolve() for path in (out, new_model) if path is not None]
    inputs = [path.resolve() for path in (*files, model) if path is not None]
    if len(set(outputs)) < len(outputs) or set(outputs) & set(inputs):
        raise ValueError("--out and --new-model name files of their own, none that is read or written already")
    output.check_writable(out, new_model)
    merged = merge_memories(files)
    content = None
    if model is not None:
        weights, header = checkpoint.read(model, "a model's weights in a safetensors file")
        content = to_bytes(fitted_weights(merged, weights), header or None)
    merged.save(out)
    print(f"added up {len(files)} files with {merged.samples} samples\nwrote {out}")
    if content is not None and new_model is not None:
        output.write(new_model, content)
        fitted = {name for names in merged.about["fitted"].values() for name in names}
        left = [name for name in merged.about["network"] if name not in fitted]
        print(f"no memory holds {', '.join(left)}: as in {model}")
