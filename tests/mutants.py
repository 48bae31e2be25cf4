"""Injects one-line defects into a copy of the package; the tests must notice each. Run by `make mutants`.

Every mutant is a file, a piece of its text, what to put in its place, and the tests that should fail. A piece that is
no longer in the file, or a defect that no test notices, makes the run fail. `python tests/mutants.py sweep` runs only
those whose file, text or replacement contains "sweep".
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["maps", "blocks", "codes", "weights", "memory", "penalty", "objective", "trainer"]


class Mutant(NamedTuple):
    file: str
    old: str
    new: str
    tests: str
    """Test files by their middle name; after a space, words for pytest's -k."""


MUTANTS = [
    # f and the losses
    Mutant("objective.py", "mu * misfit", "misfit", "objective"),
    Mutant("objective.py", "(c_next - block.forward(p, c)[0])", "(c_next + block.forward(p, c)[0])", "objective"),
    Mutant("objective.py", "y - p, curvature", "p - y, curvature", "objective"),
    Mutant("objective.py", " - pq.sum(1).square()", "", "objective"),
    Mutant("objective.py", "error * (2 / m)", "error / m", "objective"),
    Mutant("objective.py", "gradient * -samples", "-gradient", "objective"),
    # the calculus of modules
    Mutant("maps.py", "(v.mT @ x, v.sum(0))", "(v.mT @ x, v.mean(0))", "maps"),
    Mutant("maps.py", "self.push(p, saved, u), saved + u", "self.push(p, saved, u), saved", "maps"),
    Mutant("maps.py", "u.maximum(-y), y_moved", "u, y_moved", "maps"),
    Mutant("maps.py", "(1 - y * y_moved)", "(1 - y * y)", "maps"),
    Mutant("maps.py", "return y * (1 - y)", "return 1 - y * y", "maps"),
    Mutant("maps.py", "torch.where(small, self.slope(x, y) * u, y_moved - y)", "y_moved - y", "maps tiny"),
    Mutant("maps.py", " - xhat * (u * xhat).mean(dims, keepdim=True)", "", "maps"),
    Mutant("maps.py", "(shift * (2 * centred + shift))", "(shift * 2 * centred)", "maps"),
    Mutant("maps.py", " - self._at(x, winners) + ", " + ", "maps"),
    Mutant(
        "maps.py",
        "    push = replay = pull",
        "    replay = pull\n    push = lambda self, p, saved, u: u",
        "maps dropout",
    ),
    Mutant("maps.py", "unbiased=True", "unbiased=False", "maps statistics"),
    Mutant("maps.py", "v.sum([0, *range(2, v.ndim)])", "v.sum([0, *range(2, v.ndim)]) * 2", "maps Conv"),
    # blocks
    Mutant("blocks.py", "isinstance(maps[i + 1], Normalisation)", "False", "blocks"),
    Mutant("blocks.py", "seen.add(id(parameter))", "pass", "blocks twice"),
    Mutant("blocks.py", "if i > self.first_with_parameters:", "if False:", "blocks"),
    Mutant("blocks.py", "u.maximum(-room)", "u", "codes"),
    # codes
    Mutant("codes.py", "range(len(chain) - 1, 0, -1)", "range(len(chain) - 1, 1, -1)", "codes"),
    Mutant("codes.py", "return d * factor, scale * factor", "return d * factor, scale", "weights"),
    Mutant("codes.py", "Local(move.core,", "Local(state.core,", "weights"),
    Mutant("codes.py", "line.g + self.momentum * v", "line.g + v", "codes"),
    Mutant("codes.py", "self.l1 * above.weight / (2 * mu)", "self.l1", "codes"),
    Mutant("codes.py", "so_far.offset - line.d", "so_far.offset", "codes"),
    Mutant("codes.py", "self.above.shift(self.at, change)", "self.at", "weights inner"),
    # line searches
    Mutant("linesearch.py", "loss, 2 * mu", "loss, mu", "codes"),
    Mutant("linesearch.py", "(bend + self.weight * uu)", "(self.weight * uu)", "codes"),
    Mutant("linesearch.py", "(_like(bend, gv) + self.weight * vv)", "(self.weight * vv)", "codes"),
    Mutant("linesearch.py", "> ceiling", "> ceiling + 1e30", "codes"),
    Mutant("linesearch.py", "> _ceiling(self.start.values)", "> 1e30 + _ceiling(self.start.values)", "codes"),
    Mutant("linesearch.py", "self.start = self._at(t)", "self.start = self._at(-t)", "codes"),
    Mutant("linesearch.py", "(dot(dy, dy) + dot(u, u))", "dot(dy, dy)", "codes"),
    Mutant("linesearch.py", "u = _each(share, u)", "u = 1 * u", "codes"),
    Mutant("linesearch.py", "g - above.weight * self.d", "g", "codes"),
    Mutant("linesearch.py", "alpha / 2 if left > 1 else 0", "0", "codes"),
    # weights
    Mutant("weights.py", "-2 * mu / samples", "-mu / samples", "weights"),
    Mutant("weights.py", "(samples * rms)", "(samples + 0 * rms)", "weights"),
    Mutant("weights.py", "for l in self.blocks:\n", "for l in self.blocks[:-1]:\n", "weights"),
    Mutant("weights.py", 'group["lr"] * self.l1', "self.l1", "weights l1"),
    Mutant("weights.py", "self.samples + other.samples", "other.samples", "weights parts"),
    Mutant("weights.py", "self.value + other.value", "other.value", "weights parts"),
    Mutant("weights.py", "if p.requires_grad:", "if True:", "weights frozen"),
    # memory
    Mutant("memory.py", "(0, 1), value=1.0", "(0, 1), value=0.0", "memory"),
    Mutant("memory.py", "_join(p) @ A +", "_join(p) @ A -", "memory"),
    Mutant("memory.py", "_join(p) @ A +", "0 * _join(p) @ A +", "memory"),
    Mutant(
        "memory.py", "(m.dilation, m.padding, m.stride)", "(m.dilation, m.padding, m.dilation)", "memory convolution"
    ),
    Mutant("memory.py", "problem.at.force / problem.above.scale", "problem.at.force", "memory deep"),
    Mutant("memory.py", "+ gain *", "+ 1 *", "memory gain"),
    Mutant("memory.py", "W[:, -1]", "W[:, 0]", "memory"),
    Mutant("memory.py", ".fade(self.forget)", ".fade(1.0)", "memory forgetting"),
    Mutant("memory.py", "(B[:, j] - W @ A[:, j])", "(B[:, j] + W @ A[:, j])", "memory sweep"),
    Mutant(
        "memory.py", "return W + torch.cholesky_solve((B - W @ A)", "return torch.cholesky_solve((B)", "memory damping"
    ),
    Mutant("memory.py", "memory.A / memory.samples", "memory.A", "memory"),
    # mu
    Mutant("penalty.py", "self.value + self.increment", "self.value", "penalty"),
    Mutant("penalty.py", "self.value * self.growth", "self.value", "penalty"),
    Mutant("penalty.py", "min(value, self.maximum)", "value", "penalty"),
    # the step
    Mutant("trainer.py", "self.penalty.step()", "pass", "penalty"),
    Mutant("trainer.py", "mu * sum(squares[0])", "2 * mu * sum(squares[0])", "trainer metrics"),
    Mutant("trainer.py", "block.commit(state)", "pass", "trainer running"),
    Mutant("trainer.py", "if not math.isfinite(", "if False and not math.isfinite(", "trainer bad_input"),
    Mutant("trainer.py", "x.dtype != first.dtype or", "", "trainer bad_input"),
]


def copy_to(folder: Path) -> None:
    """The package without its data, and the tests that mutants are held against."""
    shutil.copytree(ROOT / "altmin", folder / "altmin", ignore=shutil.ignore_patterns("files", "__pycache__"))
    (folder / "tests").mkdir()
    for name in ["conftest.py", "reference.py", *(f"test_{name}.py" for name in TESTS)]:
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)


def pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "--tb=no", "-o", "testpaths=tests", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def failing_already() -> list[str]:
    """Tests that fail without any defect: they can say nothing about mutants."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_to(folder)
        where = "import altmin; print(altmin.__file__)"
        found = subprocess.run(
            [sys.executable, "-c", where],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": name},
            capture_output=True,
            text=True,
        ).stdout
        if not Path(found.strip()).resolve().is_relative_to(folder.resolve()):
            sys.exit(f"the tests would run against {found.strip()}, not against the copy in {folder}")
        return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", pytest(folder, "tests").stdout, re.MULTILINE)


def verdict(mutant: Mutant, left_out: list[str]) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_to(folder)
        file = folder / "altmin" / mutant.file
        text = file.read_text()
        if mutant.old not in text:
            return "NOT FOUND in the source"
        file.write_text(text.replace(mutant.old, mutant.new, 1))
        tests, _, words = mutant.tests.partition(" ")
        options = ["-x", f"tests/test_{tests}.py", *(f"--deselect={test}" for test in left_out)]
        code = pytest(folder, *options, *(["-k", words.replace(" ", " or ")] if words else [])).returncode
        return {0: "SURVIVED", 1: "caught"}.get(code, f"BROKEN: pytest ended with {code}")


def main(wanted: str = "") -> int:
    mutants = [m for m in MUTANTS if wanted in m.file or wanted in m.old or wanted in m.new]
    left_out = failing_already()
    for test in left_out:
        print(f"fails without any defect, so left out: {test}")
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda m: verdict(m, left_out), mutants))
    for mutant, result in zip(mutants, verdicts, strict=True):
        print(f"{result:8}  {mutant.file:14} {mutant.old.strip()!r} -> {mutant.new.strip()!r}  ({mutant.tests})")
    caught = verdicts.count("caught")
    print(f"{caught} of {len(mutants)} mutants caught")
    return int(caught < len(mutants))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
