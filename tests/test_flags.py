"""A flag is set for one thread, for a while."""

import threading

import pytest
import torch

from altmin.common.flags import Flag


def test_a_flag_is_as_given_within_and_as_before_afterwards_whatever_happens() -> None:
    flag = Flag()
    with flag.set(True):
        with flag.set(False):
            assert not flag.on
        assert flag.on
        with pytest.raises(ValueError), flag.set(False):
            raise ValueError
        assert flag.on
    assert not flag.on


def test_each_thread_has_its_own() -> None:
    flag, seen = Flag(), list[bool]()

    def other() -> None:
        seen.append(flag.on)
        with flag.set(False):
            seen.append(flag.on)

    with flag.set(True):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert flag.on
    assert seen == [False, False]


def test_compiled_code_follows_a_flag() -> None:
    flag = Flag()

    @torch.compile(fullgraph=True, dynamic=False, backend="eager")
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x if flag.on else x

    found = []
    for on in (False, True, False):
        with flag.set(on):
            found.append(double(torch.tensor(3.0)).item())
    assert found == [3.0, 6.0, 3.0]
