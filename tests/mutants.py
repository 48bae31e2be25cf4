"""Injects defects into the mathematics, one at a time, and asks the tests nearest to each file to notice them.

`make mutants` takes all of the calculus, codes, weights and losses, which is hours; with
ONLY=altmin/calculus/linear.py a file or a folder, which is minutes. mutmut makes the defects, in a copy of the tree
under build/mutants. The result is merged into tests/mutants.json: how many mutants each file has and how many were
killed, and every survivor with the reason why no test notices it, which is written there by hand ("why") and kept by
later runs.
"""

import ast
import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT, COPY = ROOT / "tests/mutants.json", ROOT / "build/mutants"
TESTS = {
    "altmin/calculus": "tests/test_calculus_*.py",
    "altmin/core/codes": "tests/test_codes_*.py",
    "altmin/core/weights": "tests/test_weights_*.py",
    "altmin/core/losses.py": "tests/test_losses.py",
}
"""What is mutated, and the tests that must notice."""
NOTICED = ("killed", "segfault")
CONFTEST = """
def pytest_runtest_setup(item):
    item._nodeid = item.nodeid  # mutmut 3.8 reads what pytest 9.2 has renamed
"""


def mutmut(*arguments: str, **how: Any) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=COPY, env=environment, check=True, text=True, **how).stdout


def states(files: list[str], tests: str) -> dict[str, str]:
    """What became of every mutant of these files (killed, survived, timeout, no tests), by its name."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in ("altmin", "tests"):
        shutil.copytree(ROOT / name, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", COPY)  # pytest's settings
    (COPY / "conftest.py").write_text(CONFTEST)
    lists = {
        "source_paths": ["altmin"],
        "only_mutate": files,
        "also_copy": ["conftest.py"],
        "do_not_mutate_patterns": [r"raise \w+"],  # the words of errors
        "pytest_add_cli_args_test_selection": sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(tests)),
    }
    entries = ["\n    ".join([f"{name} =", *given]) for name, given in lists.items()]
    (COPY / "setup.cfg").write_text("\n".join(["[mutmut]", *entries]))
    with (COPY / "log").open("w") as log:
        mutmut("run", stdout=log)
    lines = mutmut("results", "--all", "true", stdout=subprocess.PIPE).splitlines()
    return dict(line.strip().split(": ") for line in lines if "__mutmut_" in line)


def survivor(file: str, name: str, state: str) -> dict[str, str]:
    """A mutant by what it changes. name: such as altmin.calculus.pooling.xǁMaxPoolǁvjp__mutmut_3, which stands in the
    mutated file beside the original, named so."""
    own, source = name.rpartition(".")[2], (COPY / "mutants" / file).read_text()
    function = own.rpartition("__mutmut_")[0]
    wanted = {f"{function}__mutmut_orig", own}
    nodes = {each.name: each for each in ast.walk(ast.parse(source)) if getattr(each, "name", "") in wanted}
    text = {each: ast.get_source_segment(source, node).replace(each, function) for each, node in nodes.items()}
    changed = list(difflib.ndiff(text[f"{function}__mutmut_orig"].splitlines(), text[own].splitlines()))
    was, becomes = ("\n".join(line[2:].strip() for line in changed if line[0] == sign) for sign in "-+")
    return {"function": function[1:].strip("_ǁ").replace("ǁ", "."), "state": state, "was": was, "becomes": becomes}


def merged(report: dict[str, Any], file: str, found: dict[str, str]) -> None:
    """Writes the mutants of a file into the report, where survivors keep their reasons."""
    reasons = {(s["function"], s["was"], s["becomes"]): s["why"] for s in report.get(file, {}).get("survivors", ())}
    survivors = [survivor(file, name, state) for name, state in found.items() if state not in NOTICED]
    for each in survivors:
        each["why"] = reasons.get((each["function"], each["was"], each["becomes"]), "")
    report[file] = {"mutants": len(found), "killed": len(found) - len(survivors), "survivors": survivors}
    print(f"{file}: {len(found)} mutants, {len(survivors)} survive, {sum(not s['why'] for s in survivors)} unexplained")


def main(only: list[str]) -> None:
    report = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    for place, tests in TESTS.items():
        inside = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).glob("[!_]*.py"))
        files = [str(path.relative_to(ROOT)) for path in inside]
        files = [file for file in files if not only or any(file.startswith(part) for part in only)]
        found = states(files, tests) if files else {}
        for file in files:
            module = file.removesuffix(".py").replace("/", ".")
            merged(report, file, {name: state for name, state in found.items() if name.partition(".x")[0] == module})
    REPORT.write_text(json.dumps(dict(sorted(report.items())), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
