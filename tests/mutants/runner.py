"""Runs the tests of every mutant on a copy of the package that has its defect.

`python -m tests.mutants sweep` runs only the mutants whose subject, file, text or replacement contains "sweep".
MUTANT_WORKERS is the number of mutants tested at once, else 1.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import ROOT, Mutant, subjects

WORKERS = int(os.environ.get("MUTANT_WORKERS", "1"))


def main(word: str = "") -> int:
    """Print a verdict for each mutant that contains `word`; 0 if all were caught, else 1."""
    chosen = [m for subject, every in subjects().items() for m in every if word in subject or contains(m, word)]
    if not chosen:
        print(f"no mutant contains {word!r}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(WORKERS) as pool:
        sound = Path(name) / "sound"  # copied once, so that the source may be edited meanwhile
        copy_to(sound)
        if fault := baseline_fault(sound, sorted({m.test_file() for m in chosen})):
            print(fault, file=sys.stderr)
            return 1
        verdicts = []
        for mutant, verdict in zip(chosen, pool.map(lambda m: verdict_on(m, sound), chosen), strict=True):
            verdicts.append(verdict)
            change = f"{mutant.old.strip()!r} -> {mutant.new.strip()!r}"
            print(f"{verdict:8}  {mutant.file:14} {change}  ({mutant.tests})", flush=True)
    caught = verdicts.count("caught")
    print(f"{caught} of {len(chosen)} mutants caught")
    return int(caught < len(chosen))


def contains(mutant: Mutant, word: str) -> bool:
    return any(word in text for text in (mutant.file, mutant.old, mutant.new))


def copy_to(folder: Path) -> None:
    """The package and its tests; the embedded data, which no mutant changes, by a link."""
    unwanted = shutil.ignore_patterns("files", "__pycache__")
    shutil.copytree(ROOT / "altmin", folder / "altmin", ignore=unwanted)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=unwanted)
    (folder / "altmin" / "data" / "files").symlink_to(ROOT / "altmin" / "data" / "files")
    shutil.copy(ROOT / "pyproject.toml", folder)


def pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in `folder`, on the package that lies there."""
    return python(folder, "-m", "pytest", "--tb=no", "-o", "testpaths=tests", *arguments)


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def baseline_fault(folder: Path, test_files: Sequence[str]) -> str:
    """Why these tests can say nothing about mutants: they fail without any defect, or see another package. Else ""."""
    found = python(folder, "-c", "import altmin; print(altmin.__file__)").stdout.strip()
    if not Path(found).resolve().is_relative_to(folder.resolve()):
        return f"the tests would run against {found or 'no altmin at all'}, not against the copy in {folder}"
    done = pytest(folder, *test_files)
    if done.returncode == 0:
        return ""
    failing = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    first = "\n".join(f"  {test}" for test in failing[:20]) or (done.stdout + done.stderr).strip()
    return f"No mutant was tried: the tests fail without any defect. Mend these first:\n{first}"


def verdict_on(mutant: Mutant, sound: Path) -> str:
    """`caught` if its tests fail, `SURVIVED` if they pass; otherwise what is wrong with the mutant itself."""
    count = mutant.occurrences(sound)
    if count != 1:
        return f"its text occurs {count} times, not once"
    with tempfile.TemporaryDirectory() as name:
        folder = shutil.copytree(sound, Path(name) / "mutant", symlinks=True)
        file = folder / "altmin" / mutant.file
        file.write_text(file.read_text().replace(mutant.old, mutant.new))
        selected = ["-k", mutant.words()] if mutant.words() else []
        code = pytest(folder, "-x", mutant.test_file(), *selected).returncode
    return {0: "SURVIVED", 1: "caught"}.get(code, f"BROKEN: pytest ended with {code}")
