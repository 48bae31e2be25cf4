"""Defects of the command line and of what `altmin bench` measures."""

from . import Mutant

MUTANTS = [
    Mutant("cli/train.py", "products.using(precision)", 'products.using("float32")', "cli_training precision"),
    Mutant("cli/compare.py", "products.using(precision)", 'products.using("float32")', "cli_training record"),
    Mutant(
        "training/trial.py", '("data", "model", "freeze_first", "precision")', '("data", "model")', "cli_training go"
    ),
    Mutant("cli/theory.py", "raise typer.Exit(1)", "raise typer.Exit(0)", "cli_theory"),
    Mutant("startup.py", "os._exit(130)", "os._exit(1)", "startup ends"),
    Mutant("startup.py", 'in ("altmin", ', "in (", "startup ends only"),
    Mutant("cli/__init__.py", "with startup.lifted():", "if True:", "startup cut"),
    Mutant("bench/run.py", "spread(times[entry])", "spread(times[yardstick])", "cli_bench"),
    Mutant(
        "bench/run.py",
        "yardstick = entry._replace(method=YARDSTICK)",
        'yardstick = Entry(YARDSTICK, "eager", 1)',
        "cli_bench",
    ),
    Mutant("bench/run.py", "[a / b for a, b", "[b / a for a, b", "bench_run"),
    Mutant("bench/run.py", "self.seed + i)", "self.seed)", "bench_run"),
    Mutant("bench/run.py", "value / entry.members", "value", "cli_bench"),
    Mutant("bench/run.py", "min(entry.members, 2)", "1", "bench_run"),
    Mutant("bench/measure.py", "peak = max(peak, now)", "peak = now", "bench_measure peak"),
    Mutant("bench/measure.py", "drawn.shuffle(order)", "pass", "bench_measure order"),
    Mutant("bench/cases.py", "size = factor * int(found[2])", "size = factor + int(found[2])", "bench_cases"),
    Mutant("bench/picture.py", "b - m for m, b", "b + m for m, b", "bench_picture"),
    Mutant(
        "cli/parse.py",
        "{**defaults, **(typed or {}), **check_options(method, given)}",
        "{**defaults, **check_options(method, given), **(typed or {})}",
        "cli_parse",
    ),
    Mutant("cli/parse.py", "if name in registry.options(method)]", "]", "cli_compare solver"),
    Mutant("cli/training.py", 'return "random-windows" if', "return None if", "cli_training windows"),
    Mutant("cli/parse.py", "typed[method][name] = value", "pass", "cli_parse file"),
    Mutant("cli/check.py", '"strict": True', '"strict": False', "cli_check"),
    Mutant("cli/check.py", '+= ["none"] * none', '+= ["none"]', "cli_config mistake"),
    Mutant("cli/config.py", 'None if each == "none" else each', "each", "cli_config compare"),
    Mutant("cli/config.py", "        param.process_value(ctx, value)", "        pass", "cli_config mistake"),
    Mutant("cli/config.py", "{**ctx.params, **found}", "ctx.params", "cli_config where"),
    Mutant("cli/config.py", "OF_FILES | OUTCOME | {", "OF_FILES | {", "cli_config where"),
    Mutant("cli/parse.py", "{**shared, **own[method]}", "{**own[method], **shared}", "cli_parse"),
]
