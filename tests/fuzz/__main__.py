"""`python -m tests.fuzz [networks|kills|uses] [--cases N] [--seed S]`, from the root of the repository.

networks: networks written at random, one or two steps compared with autograd. kills: runs killed at random moments and
resumed. uses: settings that change, parts of batches, odd batches and files, interrupts. Ends with 1 if a case failed;
a failure names the seed that repeats it.
"""

import argparse
import sys

import torch

from . import kills, networks, uses

PARTS = {"networks": (networks.fuzz, 2_000), "kills": (kills.fuzz, 200), "uses": (uses.fuzz, 2_000)}

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all if left out")
parser.add_argument("--cases", type=int, help="number of cases of each part")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
torch.set_num_threads(1)  # tensors are tiny
failed = 0
for part in options.parts or PARTS:
    fuzz, cases = PARTS[part]
    failures: list[str] = []
    counters = fuzz(options.cases or cases, options.seed, failures)
    print(*failures, sep="\n")
    print(f"{part}: {', '.join(f'{n:,} {name}' for name, n in counters.items())}; {len(failures)} failures", flush=True)
    failed += len(failures)
sys.exit(bool(failed))
