"""Devices by their names."""

from typing import Any

import torch


def usable(what: str, device: Any) -> torch.device:
    """The device. ValueError in one sentence, which begins with `what`, if it is none, or if this machine or this torch
    lacks it.

    >>> usable("device of a net", "cpu")
    device(type='cpu')
    >>> usable("device of a net", "gpu")
    Traceback (most recent call last):
    ValueError: device of a net is "cpu", "cuda" or the like, given 'gpu'
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f'{what} is "cpu", "cuda" or the like, given {device!r:.60}') from None
    try:
        torch.zeros((), device=found).item()  # which the meta device has not
    except (AssertionError, ImportError, RuntimeError) as error:  # torch asserts that it was built with such devices
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{what} is {str(found)!r}, which torch cannot use here: {reason}; give 'cpu'") from None
    return found
