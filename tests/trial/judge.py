"""What a call may do: succeed with finite numbers, or be refused in one clear sentence and change nothing."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import altmin

ALLOWED = (ValueError, TypeError, altmin.Diverged)
UNCLEAR = (
    *("INTERNAL ASSERT", "Exception raised from", "frame #", "Traceback", "0x7f", "aten::"),
    *("not supported between instances", "unsupported operand", "has no attribute", "object is not"),
    *("cannot be interpreted as an integer", "Boolean value of Tensor", "must be real number", "must be Tensor, not"),
    *("can't convert", "argument of type", "positional argument", "not iterable", "truth value of an array"),
    *("invalid combination of arguments", "ambiguous", "zip() argument", "list index out of range", "unpack"),
)
"""Words of Python's and torch's own errors, which say nothing to the user of this library."""
OPENINGS = ("mat1 and mat2", "shape '", "size mismatch", "The size of tensor", "expected scalar type", "self and mat2")
"""How torch's own errors begin; inside a sentence that says what is wrong they may stand."""


class Broken(Exception):
    """The state of an object can no longer be read, so that its case ends."""


class Refused:
    """What a call that was refused gives."""


REFUSED = Refused()


@dataclass
class Judge:
    """Makes the calls of one case and judges them. case: how to repeat it. drawn: what was drawn, in words."""

    case: str
    failures: list[str]
    drawn: list[str] = field(default_factory=list)
    calls: int = 0
    refused: int = 0

    def call(
        self,
        name: str,
        function: Callable[[], Any],
        held: Callable[[], Any] = lambda: None,
        given: tuple[Any, ...] = (),
        loose: bool = False,
    ) -> Any:
        """The result of a call, or REFUSED. held: what must be as before if it is refused. given: arguments, which
        must always be. loose: a run of many steps, of which some may have been taken when one is refused."""
        before, arguments = picture(self._read(name, held)), picture(given)
        finite = all_finite(held())
        self.calls += 1
        result: Any = REFUSED
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = function()
        except ALLOWED as error:
            self.refused += 1
            self._judge_message(name, error)
            if not loose and picture(self._read(name, held)) != before:
                self.fail(name, f"was refused ({short(error)}) but has changed the state")
        except Exception as error:
            self.fail(name, f"raised {short(error)}")
        else:
            if finite and not all_finite(self._read(name, held)):
                self.fail(name, "left parameters, buffers or state that are not finite, without a word")
        if picture(given) != arguments:
            self.fail(name, "changed its arguments")
        return result

    def _read(self, name: str, held: Callable[[], Any]) -> Any:
        try:
            return held()
        except Exception as error:
            self.fail(name, f"finds or leaves an object whose state cannot be read: {short(error)}")
            raise Broken from error

    def fail(self, name: str, what: str) -> None:
        self.failures.append(f"{self.case}: {name} {what}; drawn: {'; '.join(self.drawn)}")

    def _judge_message(self, name: str, error: Exception) -> None:
        text = str(error)
        if "\n" in text.strip() or len(text) <= 10:
            self.fail(name, f"was refused in other than one line: {short(error)}")
        elif any(word in text for word in UNCLEAR) or text.startswith(OPENINGS):
            self.fail(name, f"was refused in words that are not the library's: {short(error)}")


def short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def picture(value: Any) -> Any:
    """A copy of nested state that is equal to another if all is the same, bit for bit."""
    if isinstance(value, Tensor):
        return _picture_of(value)
    if isinstance(value, nn.Module):
        modes = [m.training for m in value.modules()], [p.requires_grad for p in value.parameters()]
        return picture(dict(value.state_dict())), *modes
    if isinstance(value, Mapping):
        return {str(key): picture(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [picture(each) for each in value]
    whole = isinstance(value, int) and abs(value) < 2**53
    return repr(float(value) if whole else value)


def _picture_of(t: Tensor) -> Any:
    if isinstance(t, nn.parameter.UninitializedTensorMixin):
        return "no shape yet"
    form = str(t.dtype), tuple(t.shape), str(t.device), str(t.layout)
    if t.device.type == "meta" or t.layout != torch.strided:
        return form
    return *form, repr(t.detach().flatten().tolist())


def all_finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        if isinstance(value, nn.parameter.UninitializedTensorMixin) or value.device.type == "meta":
            return True
        return bool(value.isfinite().all())
    if isinstance(value, nn.Module):
        return all_finite(dict(value.state_dict()))
    if isinstance(value, Mapping):
        return all(all_finite(each) for each in value.values())
    return not isinstance(value, list | tuple) or all(all_finite(each) for each in value)
