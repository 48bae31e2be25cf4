"""`python -m altmin.cli`, for where the `altmin` command is not on the path."""

from altmin.cli import main

main()
