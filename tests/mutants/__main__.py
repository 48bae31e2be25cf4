"""`python -m tests.mutants [WORD]`, from the root of the repository."""

import sys

from .runner import main

sys.exit(main(*sys.argv[1:]))
