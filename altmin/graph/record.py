"""The calls of a module's forward, as a graph of `torch.fx`."""

import dis
import inspect
import operator
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, partialmethod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch import utils as functions
from torch.utils._python_dispatch import TorchDispatchMode

from altmin.calculus.whole_batch import Randomness
from altmin.common.unchanged import same_attributes
from altmin.graph.values import FUNCTIONS, OPERATORS, aside

FACTORIES = ("arange", "eye", "full", "linspace", "ones", "zeros")
"""Functions that make tensors of numbers and sizes, which `torch.fx` by itself does not record."""

NO_GRAD = "no_grad"
"""Key of a node's `meta` for whether it was called where autograd records nothing."""

MODULES = "use modules such as nn.Dropout, which follow train() and eval() by themselves"
WITHOUT = "its forward computes without gradients (torch.no_grad or the like) or by an autograd.Function of its own"
BUFFER = "register it with register_buffer"
OF_ITS_OWN = "put that part into a module of its own, which is then one block"


class Untraceable(Exception):
    """Error for a forward that cannot be replaced by what it calls: the reason and a remedy. one_block: whether the
    module could still be trained as one block."""

    def __init__(self, reason: str, remedy: str, one_block: bool = True):
        super().__init__(f"{reason}; {remedy}")
        self.one_block = one_block


class Writes(TorchDispatchMode):
    """Context in which writing to a tensor of the module is `Untraceable`: it would be done now, not in each call."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        tensors = [t for t in (*module.parameters(), *module.buffers()) if isinstance(t, Tensor)]
        self.storages = {t.untyped_storage().data_ptr() for t in tensors if t.numel() and not t.is_meta}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for a, argument in zip(args, func._schema.arguments, strict=False):
            written = isinstance(a, Tensor) and argument.alias_info is not None and argument.alias_info.is_write
            if written and a.untyped_storage().data_ptr() in self.storages:
                raise Untraceable("its forward changes a parameter or buffer in place", OF_ITS_OWN)
        return func(*args, **(kwargs or {}))


class Value(fx.Proxy):
    """A proxy that records x += y as an in-place operation; torch.fx's own records x = x + y."""

    def _in_place(self, operation: Any, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})


for _name in OPERATORS:
    setattr(Value, f"__i{_name}__", partialmethod(Value._in_place, getattr(operator, f"i{_name}")))


class Recorder(fx.Tracer):
    """Record one forward; modules that it calls are single nodes. Torch's classes and functions are patched
    meanwhile, as `torch.fx` does it."""

    proxy_buffer_attributes = True

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__()
        self.args, self.kwargs = args, kwargs
        self.precision = _autocast()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Value(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """Create an input for each node that the module is called with; all other arguments stay as they are."""
        args = [self._placeholder(arg) for arg in self.args]
        kwargs = {name: self._placeholder(arg) for name, arg in self.kwargs.items()}
        return (lambda root, *inputs: root_fn(root, *inputs, **kwargs)), [self.root, *args]

    def _placeholder(self, arg: Any) -> Any:
        return self.create_proxy("placeholder", "input", (), {}) if isinstance(arg, fx.Node) else arg

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        node.meta[NO_GRAD] = not torch.is_grad_enabled()
        if _autocast() != self.precision:
            raise Untraceable("its forward computes inside torch.autocast", OF_ITS_OWN)
        return node

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor) and not isinstance(a, nn.Parameter):
            known = any(a is b for b in self.root.buffers()) or a in self.tensor_attrs
            if not known:  # torch.fx would keep its present value in the user's module
                raise Untraceable("its forward uses a tensor that is neither parameter nor buffer", BUFFER)
        return super().create_arg(a)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Record an assertion, which is assumed to hold; any other decision is an error."""
        caller = sys._getframe(2)
        code = [i for i in dis.get_instructions(caller.f_code) if i.offset >= caller.f_lasti]
        branching = ("CACHE", "NOT_TAKEN", "TO_BOOL", "POP_JUMP")  # these may stand beside a conditional jump
        if next(i.opname for i in code if not i.opname.startswith(branching)) != "LOAD_ASSERTION_ERROR":
            return super().to_bool(obj)
        self.create_proxy("call_function", torch._assert, (obj, f"an assertion in {caller.f_code.co_name} fails"), {})
        return True

    @contextmanager
    def recording_factories(self) -> Iterator[None]:
        """Record factories within; an `autograd.Function` of what is recorded is `Untraceable`."""
        unwrap = functions.unwrap_dead_wrappers

        def make(original: Any, *args: Any, **kwargs: Any) -> fx.Proxy:
            return self.create_proxy("call_function", original, args, kwargs)

        def refuse(args: Any) -> Any:  # every Function.apply calls it, also one that was taken from its class before
            if any(isinstance(arg, Value) for arg in args):
                raise Untraceable(WITHOUT, OF_ITS_OWN)
            return unwrap(args)

        patches: list[Any] = [(torch, name, partial(make, getattr(torch, name))) for name in FACTORIES]
        patches.append((functions, "unwrap_dead_wrappers", refuse))
        with ExitStack() as stack:
            for place, name, new in patches:
                stack.callback(setattr, place, name, getattr(place, name))
                setattr(place, name, new)
            yield


def input_names(module: nn.Module, inputs: Sequence[str] | None = None) -> tuple[tuple[str, ...], bool]:
    """The arguments of a module's forward that a mini-batch has, and whether they are its first. inputs: their names;
    None for all without a default value. `Untraceable` if it cannot be called with these."""
    known = inspect.signature(module.forward).parameters.values()
    named = [p.name for p in known if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in known if p.name in named and p.default is p.empty]
    names = tuple(inputs or needed) or tuple(p.name for p in known)[:1]
    first = tuple(p.name for p in known if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD))[: len(names)]
    wrong = inputs is not None and not set(needed) <= set(names) <= set(named)
    if wrong or not names or (len(names) == 1 and names != first):
        takes = (
            f"its forward takes ({', '.join(named)}), of which ({', '.join(needed)}) are needed, and the inputs named"
        )
        remedy = "name each argument that a mini-batch has; one alone is the first"
        raise Untraceable(f"{takes} are ({', '.join(names)})", remedy, one_block=False)
    return names, names == first


INPUT = fx.Graph().placeholder("input")


def record(
    module: nn.Module,
    args: Sequence[Any] = (INPUT,),
    kwargs: Mapping[str, Any] | None = None,
    structured: bool = False,
) -> fx.Graph:
    """The graph of a module's forward: one tensor as output, and every module that it calls a node.

    args, kwargs: what the module is called with, other than one input: for every `fx.Node` among them there is a
    placeholder, in this order; other values are fixed. structured: whether the output may be a tuple, list or dict.
    Changes nothing: modes, attributes and random states are restored. `Untraceable` unless the graph does what the
    forward does, in training and in evaluation.
    """
    before = Randomness()
    try:
        with same_attributes(module) as changed:
            graph, evaluated = (_traced(module, training, args, kwargs or {}) for training in (True, False))
    finally:
        before.restore()
    if names := [name for name, _ in changed if name != "training"]:
        raise Untraceable(f"its forward sets the attribute {names[0]!r}", "leave that out, or use a forward hook")
    if str(graph) != str(evaluated):
        raise Untraceable("its forward asks whether it is in training (self.training)", MODULES)
    output = graph.output_node().args[0]
    if not isinstance(output, fx.Node) and not (structured and isinstance(output, tuple | list | dict)):
        kind = type(output).__name__.removeprefix("immutable_")
        reason = f"its forward returns a {kind} where a chain ends with one tensor"
        raise Untraceable(reason, "let it return the tensor that the loss takes", one_block=False)
    return graph


def _traced(module: nn.Module, training: bool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> fx.Graph:
    for m in module.modules():
        m.training = training
    recorder, before = Recorder(args, kwargs), Randomness()
    try:
        with recorder.recording_factories(), Writes(module), torch.enable_grad():
            graph = recorder.trace(module)
    except Untraceable:
        raise
    except Exception as error:  # a user's forward may raise anything when it gets proxies
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        said = said.replace("'Value' object cannot be interpreted as", "a size or a value is used as")
        said = re.sub(
            "^Proxy object cannot be iterated.*", "it loops over a value or a size, or unpacks one by *", said
        )
        remedy = "put the part that depends on values or sizes into a module of its own, which is then one block"
        raise Untraceable(f"torch.fx cannot trace its forward ({said})", remedy) from error
    if before.changed():
        raise Untraceable("its forward draws random numbers, which tracing would fix", MODULES)
    if any(m.training is not training for m in module.modules()):
        raise Untraceable("its forward calls train() or eval()", OF_ITS_OWN)
    if _cuts_gradients(graph, module):
        raise Untraceable(WITHOUT, OF_ITS_OWN)
    return graph


def _cuts_gradients(graph: fx.Graph, module: nn.Module) -> bool:
    """Return whether a node that would have a derivative elsewhere was called where autograd records nothing."""
    nodes = list(graph.nodes)
    still = aside(module, nodes, [node for node in nodes if node.op == "placeholder"])
    calls = [node for node in nodes if node.op == "call_module" or (node.op in FUNCTIONS and node.all_input_nodes)]
    return any(node.meta[NO_GRAD] and node not in still for node in calls)


def _autocast() -> list[bool]:
    return [torch.is_autocast_enabled(device) for device in ("cpu", "cuda")]
