"""`python -m tests.trial [PART ...]`, from the root of the repository; `python -m tests.trial table` fills the table of
docs/reliability.md."""

import sys

from .runner import main

sys.exit(main())
