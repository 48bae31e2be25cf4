"""A process that keeps freed memory does not get it page by page again."""

import subprocess
import sys

import pytest

from altmin.common.memory import keep_freed_memory

PROGRAM = """
import resource, sys
import torch
from altmin.common.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = []
for _ in range(30):
    before = faults()
    tensors = [torch.ones(2**23) for _ in range(3)]
    found.append(faults() - before)
    del tensors
print(min(found[-10:]))  # the first rounds find places that fit
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_large_tensors_are_taken_again_without_page_faults() -> None:
    if not keep_freed_memory():
        pytest.skip("needs glibc")
    found = {}
    for way in ("keep", "return"):
        ran = subprocess.run([sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True)
        found[way] = int(ran.stdout)
    assert found["keep"] < 100 < found["return"]


def test_elsewhere_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
