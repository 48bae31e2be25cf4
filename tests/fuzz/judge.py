"""What a call may do: succeed with finite numbers, or be refused and change nothing."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

import altmin

ALLOWED = (ValueError, TypeError, altmin.Diverged)
REFUSED = object()
"""What a call that was refused gives."""


@dataclass
class Judge:
    """Makes the calls of one case and judges them. case: how to repeat it. drawn: what was drawn, in words. compared:
    the number of steps compared with backprop's. said: the last refusal."""

    case: str
    failures: list[str]
    drawn: list[str] = field(default_factory=list)
    refused: int = 0
    compared: int = 0
    said: str = ""

    def call(self, name: str, function: Callable[[], Any], state: Callable[[], Any]) -> Any:
        """The result of a call, or REFUSED. state: what must be as before if it is refused, and finite otherwise."""
        before, finite = picture(state()), all_finite(state())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = function()
        except ALLOWED as error:
            self.refused += 1
            self.said = str(error)
            if picture(state()) != before:
                self.fail(name, f"was refused ({short(error)}) but has changed the state")
            return REFUSED
        except Exception as error:
            self.fail(name, f"raised {short(error)}")
            return REFUSED
        if finite and not all_finite(state()):
            self.fail(name, "left parameters, buffers or state that are not finite, without a word")
        return result

    def fail(self, name: str, what: str) -> None:
        self.failures.append(f"{self.case}: {name} {what}; drawn: {'; '.join(self.drawn)}")


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def picture(value: Any) -> Any:
    """A copy of nested state that is equal to another if all is the same, bit for bit."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), repr(value.detach().flatten().tolist())
    if isinstance(value, nn.Module):
        modes = [m.training for m in value.modules()], [p.requires_grad for p in value.parameters()]
        return picture(dict(value.state_dict())), *modes
    if isinstance(value, Mapping):
        return {str(key): picture(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [picture(each) for each in value]
    return repr(value)


def all_finite(value: Any) -> bool:
    """Return True if all tensors in nested state are finite."""
    if isinstance(value, nn.Module):
        value = dict(value.state_dict())
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    if isinstance(value, Mapping):
        return all(all_finite(each) for each in value.values())
    return not isinstance(value, list | tuple) or all(all_finite(each) for each in value)
