"""`python -m altmin`, and under torchrun `torchrun ... -m altmin train ...`."""

from altmin.cli import main

main()
