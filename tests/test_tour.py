"""The tour of the documents: the files that it lists are those that one mini-batch visits."""

import re
import sys
from pathlib import Path
from types import FrameType

import torch

import altmin

PACKAGE = Path(altmin.__file__).parent
TOUR = PACKAGE.parent / "docs/tour.md"


def visited() -> set[str]:
    """The files of the package whose functions the fourth step of mlp-2x100 by AM-Adam calls."""
    torch.manual_seed(0)
    method = altmin.methods.create("am-adam", altmin.models.mlp(784, (100, 100), 10), lr=0.004)
    x, y, found = torch.randn(200, 784), torch.randint(10, (200,)), set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents:
            found.add(file.relative_to(PACKAGE).as_posix())

    for _ in range(3):
        method.step(x, y)
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        method.step(x, y)
    finally:
        sys.setprofile(before)
    return found


def test_the_tour_lists_the_files_that_one_mini_batch_visits() -> None:
    rows = re.findall(r"^\| \d \| \[[\w/.]+\]\(\.\./altmin/([\w/.]+)\)", TOUR.read_text(), flags=re.M)
    assert set(rows) == visited()
    assert len(rows) <= 15
