"""Tries an installed altmin, from an empty folder: `python tests/smoke.py`. It needs what the wheel requires, no more.

`python tests/smoke.py installed learns` makes only these of its checks. It ends with an error if the package is not
complete, does not learn, does not go on exactly from a saved state, or if its commands do not work.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import altmin

HERE = Path(__file__).resolve().parent.parent
PACKAGE = Path(altmin.__file__).resolve().parent
FILES = (
    "py.typed",
    *(f"data/files/mnist/{part}.gz" for part in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte")),
    "data/files/shakespeare/input.txt.gz",
)


def installed() -> None:
    """It is the installed package, of the version it says, and nothing is missing."""
    assert PACKAGE != HERE / "altmin", f"{PACKAGE} is the source, not an installation"
    assert importlib.metadata.version("altmin") == altmin.__version__
    missing = [name for name in FILES if not (PACKAGE / name).is_file()]
    assert not missing, missing
    assert not (PACKAGE.parent / "tests").exists(), "tests are no part of the package"


def learns() -> None:
    """AM-Adam tells digits apart after a few batches, and goes on from a saved state to the same numbers."""
    x, y = altmin.data.load("mnist", "train")
    torch.manual_seed(0)
    model = altmin.models.mlp(784, (50,), 10)
    method = altmin.methods.create("am-adam", model, lr=4e-3)
    for i in range(30):
        if i == 20:
            torch.save({"model": model.state_dict(), "method": method.state_dict()}, "state.pt")
        method.step(x[200 * i : 200 * (i + 1)], y[200 * i : 200 * (i + 1)])
    again = altmin.models.mlp(784, (50,), 10)
    resumed = altmin.methods.create("am-adam", again, lr=4e-3)
    state = torch.load("state.pt", weights_only=True)
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["method"])
    for i in range(20, 30):
        resumed.step(x[200 * i : 200 * (i + 1)], y[200 * i : 200 * (i + 1)])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    accuracy = altmin.training.accuracy(model, altmin.data.load("mnist", "test"))
    assert accuracy > 0.75, accuracy
    assert len(altmin.data.load("shakespeare", "validation")[0]) > 0


def command(*given: str) -> subprocess.CompletedProcess[str]:
    """The `altmin` of this Python; where only the package lies on the path, the module."""
    script = Path(sys.executable).with_name("altmin")
    has_script = script.is_file() and PACKAGE.is_relative_to(sys.prefix)
    start = [str(script)] if has_script else [sys.executable, "-m", "altmin"]
    return subprocess.run([*start, *given], capture_output=True, text=True)


def commands() -> None:
    """The commands say their version, train, and refuse in one line what they cannot do."""
    shown = command("--version")
    assert shown.stdout == f"altmin {altmin.__version__}\n", shown
    options = ("--data", "mnist", "--model", "mlp-1x32", "--epochs", "1", "--limit", "500", "--json", "run.json")
    run = command("train", *options)
    assert run.returncode == 0, run.stderr
    (epoch,) = json.loads(Path("run.json").read_text())["epochs"]
    assert 0.1 < epoch["test_accuracy"] <= 1, epoch
    refused = command("train", "--model", "mlp")
    assert refused.returncode == 2, refused
    assert not (PACKAGE.parent / "reproduction").exists(), "measurements are no part of the package"


def optional() -> None:
    """What an integration needs and is not there is named in one sentence."""
    for library in ("lightning", "skorch"):
        if importlib.util.find_spec(library) is None:
            try:
                importlib.import_module(f"altmin.integrations.{library}")
            except ImportError as error:
                assert str(error).endswith(f"pip install {library}"), error  # noqa: PT017
            else:
                raise AssertionError(f"altmin.integrations.{library} without {library}")


CHECKS = {check.__name__: check for check in (installed, learns, commands, optional)}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for check in [CHECKS[name] for name in names or CHECKS]:
        started = time.perf_counter()
        check()
        print(f"{check.__name__:10} {time.perf_counter() - started:5.1f} s", flush=True)
    print(f"altmin {altmin.__version__} on Python {sys.version.split()[0]}, torch {torch.__version__}: all is well")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = folder  # as on a machine where altmin never ran
        main(sys.argv[1:])
