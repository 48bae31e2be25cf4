"""The figures of docs/speed-measured.md: `python experiments/speed.py cpu`, `... cuda`, then `... table`.

`cpu` and `cuda` call `speed` for each part and keep its JSON in benchmarks/, its picture in docs/images/;
parts can be named, as in `speed.py cuda nets long`. The seconds of a part are spent measuring; building and
compiling come on top. `--quick` takes a tenth of them, to try things out, and writes to runs/ instead. `table` fills
docs/speed-measured.md from the files alone, with the targets, and measures nothing.
"""

import argparse
import sys

from common import HERE
from speed_table import BEST, CPU_NETS, NETS, RECURRENT, file_of, fill_tables

from reproduction.__main__ import run

RECORDED = ["--modes", "eager,graph"]
GROWN = ["--modes", "graph", "--model", "mlp-2x100"]
TWO_CORES = ["--methods", "am-adam,adam,adam:fused=true", "--threads", "2"]
FUSED = [*TWO_CORES, "--modes", "eager"]
AGAINST_BEST = ["--methods", "am-adam,adam", "--threads", "2"]
LARGE = [net for net in NETS if net not in CPU_NETS]

Part = tuple[float, list[str]]
PARTS: dict[str, dict[str, Part]] = {
    "cuda": {
        "best": (20, ["--model", ",".join(BEST["cuda"]), *AGAINST_BEST]),
        "best-tf32": (12, ["--model", ",".join(BEST["cuda-tf32"]), *AGAINST_BEST, "--precision", "tf32"]),
        "nets": (28, ["--model", ",".join(CPU_NETS), "--modes", "eager,graph,compile"]),
        # Where compiling takes minutes, there is no rival to compare with.
        "large": (15, ["--model", ",".join(LARGE), "--modes", "graph"]),
        "recurrent": (10, ["--model", RECURRENT, *RECORDED]),
        "depth": (6, [*GROWN, "--grow", "depth", "--sizes", "1,3,10,25"]),
        "batch": (6, [*GROWN, "--grow", "batch", "--sizes", "1,3,10,30"]),
        "width": (6, [*GROWN, "--grow", "width", "--sizes", "1,3,10,30"]),
        "members": (10, ["--model", "mlp-2x100", *RECORDED, "--grow", "members", "--sizes", "1,8,64"]),
    },
    "cpu": {
        "best": (150, ["--model", ",".join(BEST["cpu"]), *TWO_CORES]),
        "nets": (60, ["--model", ",".join(CPU_NETS), *FUSED]),
        "large": (100, ["--model", ",".join([*LARGE[:1], RECURRENT]), *FUSED]),
        "depth": (24, ["--model", "mlp-2x100", *FUSED, "--grow", "depth", "--sizes", "1,2,5,10"]),
        "width": (24, ["--model", "mlp-2x100", *FUSED, "--grow", "width", "--sizes", "1,2,5,10"]),
        "batch": (24, ["--model", "mlp-2x100", *FUSED, "--grow", "batch", "--sizes", "1,2,5,10"]),
    },
}


def bench(device: str, part: str, quick: bool) -> int:
    seconds, arguments = PARTS[device][part]
    file = file_of(device, part)
    picture = HERE / f"docs/images/{file.stem}.png"
    if quick:
        seconds, file, picture = seconds / 10, HERE / "runs" / file.name, HERE / "runs" / picture.name
    for path in (file, picture):
        path.parent.mkdir(exist_ok=True)
    print(f"{device} {part}: {seconds:g} s of measuring", flush=True)
    places = ["--json", str(file), "--plot", str(picture)]
    return run(["speed", *arguments, "--device", device, "--seconds", str(seconds), *places])


def long_runs(quick: bool) -> int:
    from speed_long import measure

    file = file_of("cuda", "long")
    try:
        measure(HERE / "runs" / file.name if quick else file, quick)
    except (ImportError, OSError, ValueError) as error:
        print(f"speed.py: {error}", file=sys.stderr)
        return 2
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*PARTS, "table"])
    parser.add_argument("parts", nargs="*", metavar="PART", help="all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, into runs/")
    given = parser.parse_args(arguments)
    known = [*PARTS.get(given.what, {}), *(["long"] if given.what == "cuda" else [])]
    for part in given.parts:
        if part not in known:
            parser.error(f"{given.what} has no part {part!r}; the parts are: {', '.join(known) or 'none'}")
    if given.what == "table":
        return fill_tables(HERE / "docs/speed-measured.md")
    codes = [
        long_runs(given.quick) if part == "long" else bench(given.what, part, given.quick)
        for part in given.parts or known
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
