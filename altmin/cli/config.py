"""The settings of a run in a TOML file: `--config` reads them, `--save-config` writes them.

The command's own settings come first, by the names of its options. A table for each method, such as [am-adam], has the
options of that method, which the word "none" leaves without a value.
"""

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import typer

from altmin import __version__, methods
from altmin.cli import output, parse
from altmin.common.errors import unknown

OF_METHODS = {"set_", "lr", "codes", "order", "share", "at"}
"""Options of a command that are options of its methods: a file has them in the method's table."""
OF_FILES = {"config_file", "save_config"}
OUTCOME = {"json_file", "plot", "checkpoint", "checkpoint_every", "resume", "sample", "save_model"}
"""Options for output files, which are not saved: the next run has its own."""
TABLES = "altmin.tables"


def own_model(name: str | None) -> str | None:
    """The name of a model. One that is MODULE:FUNCTION is also looked for in the folder in which the command runs."""
    if name and ":" in name and "" not in sys.path:
        sys.path.insert(0, "")
    return name


def import_modules(names: list[str] | None) -> list[str] | None:
    """Imports modules by name, also from the folder in which the command runs. ValueError for one that there is not."""
    if names and "" not in sys.path:
        sys.path.insert(0, "")
    for name in names or ():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise ValueError(f"there is no module {name} to import; give mymethods for mymethods.py") from None
    return names


def read(ctx: typer.Context, path: Path | None) -> Path | None:
    """Makes the settings in a file the defaults of a command; its options override them. `tables` has those of methods.

    ValueError in one sentence for a file that is missing or no TOML, and for an unknown name or a wrong value in it.
    """
    if path is None or ctx.resilient_parsing:
        return path
    known = {_key(param): param for param in ctx.command.params if param.name not in OF_METHODS | OF_FILES | {"help"}}
    hints = get_type_hints(ctx.command.callback)
    defaults, tables, given = {}, {}, _load(path)
    import_modules(parse.checked("import", str(path), list[str], given.get("import", []), none=False))
    for key, value in given.items():
        name = key.replace("-", "_")
        if name in known:
            param = known[name]
            if name in defaults:
                raise ValueError(f"{path} gives {name} twice, once with a dash; give it once")
            defaults[param.name] = _converted(ctx, path, name, param, hints[str(param.name)], value)
        elif isinstance(value, dict):
            if key not in methods.names():
                raise unknown(f"method in {path},", key, methods.names())
            plain = {option: None if each == "none" else each for option, each in value.items()}
            tables[key] = parse.check_options(key, plain, f" in {path}")
        elif any(name in methods.options(method) for method in methods.names()):
            raise ValueError(f"{path} gives {name}, an option of a method, outside a table of its own, as [am-adam]")
        else:
            raise unknown(f"setting in {path},", key, known)
    ctx.default_map = {**(ctx.default_map or {}), **{str(name): value for name, value in defaults.items()}}
    ctx.meta[TABLES] = tables
    return path


def tables(ctx: typer.Context) -> dict[str, dict[str, Any]]:
    """The options of methods that the file gives, by method."""
    return ctx.meta.get(TABLES, {})


def save(path: Path | None, ctx: typer.Context, options: Mapping[str, Mapping[str, Any]], **found: Any) -> None:
    """Writes every setting of this run of a command, and the options of its methods, such that `read` gives the run
    again. found: settings that the run has chosen itself. Nothing is written if there is no path."""
    if path is None:
        return
    lines = [f"# {ctx.command_path}, version {__version__}"]
    values = {**ctx.params, **found}
    for param in ctx.command.params:
        value = values.get(str(param.name))
        if value not in (None, []) and param.name not in OF_METHODS | OF_FILES | OUTCOME | {"help"}:
            lines.append(f"{_key(param)} = {toml(str(value) if isinstance(value, Path) else value)}")
    for method, given in options.items():
        lines += ["", f"[{method if re.fullmatch('[A-Za-z0-9_-]+', method) else toml(method)}]"]
        lines += [f"{name} = {toml('none' if value is None else value)}" for name, value in given.items()]
    output.write(path, ("\n".join(lines) + "\n").encode())


def toml(value: Any) -> str:
    """A truth value, a number, a text or a list of them as TOML has it.

    >>> print(toml([True, 1e-05, "weights-first"]))
    [true, 1e-05, "weights-first"]
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, (bool, int, str)):
        raise ValueError(f"a settings file holds numbers, texts and lists, not {value!r}; leave out --save-config")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {path} with settings; --save-config {path} writes one") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as TOML, lines such as epochs = 3: {error}") from None


def _key(param: Any) -> str:
    """The name of an option in a file: batch_size for --batch-size."""
    return str(param.opts[0]).lstrip("-").replace("-", "_")


def _converted(ctx: typer.Context, path: Path, name: str, param: Any, hint: Any, value: Any) -> Any:
    """A value of the file as the command takes it."""
    if isinstance(value, list) and str(param.metavar or "").endswith(",..."):
        value = ",".join(map(str, value))
    value = parse.checked(name, str(path), hint, value, none=False)
    try:
        param.process_value(ctx, value)
    except Exception as error:
        if not hasattr(error, "message"):  # which typer's errors about options have, whatever their class
            raise
        raise ValueError(f"option {name} of {path} cannot be {value!r}: {error.message}") from None
    return value
