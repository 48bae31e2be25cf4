"""A network as a chain of blocks, one code between each block and the next.

Block l computes the code c_l = W_l s_{l-1}(c_{l-1}) + b_l. Its *prelude* is s_{l-1}: the activation,
pooling and reshaping that lie on top of the code below, without parameters. Its *core* has the parameters:
an affine map, the normalisation that follows it, and, in the last block, whatever comes after.
"""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from altmin.calculus import own_call
from altmin.calculus.base import Map, Params, Saved
from altmin.calculus.context import LOCAL, Context
from altmin.calculus.cut_values import CutValues, OutputValues, shortened
from altmin.calculus.discrete import Estimated
from altmin.calculus.linear import Convolution, Reshape
from altmin.calculus.recurrent import Recurrence
from altmin.calculus.series import Series
from altmin.common.inputs import Batch, Inputs, as_inputs

Theta = Sequence[Params]
"""The parameters of a chain: for every block its own."""

OF_ALL_MODULES = frozenset(vars(nn.Module()))
"""The attributes that every module has."""

MOST = 0.5
"""Share of the parameters above which the table of a chain reports that a block holds them."""

GLOBAL_HOOKS: tuple[Any, ...] = (
    torch_modules._global_forward_hooks,
    torch_modules._global_forward_pre_hooks,
    torch_modules._global_backward_hooks,
    torch_modules._global_backward_pre_hooks,
)
"""Torch's hooks for all modules, by their numbers."""


class State(NamedTuple):
    """Values that a block's modules have saved at one input."""

    prelude: list[Saved]
    core: list[Saved]


class Block:
    """Piece of the network between one code and the next: its prelude and its core."""

    def __init__(self, prelude: Sequence[Map], core: Sequence[Map]):
        self.prelude, self.core = Series(prelude), Series(core)
        self.maps = (*prelude, *core)
        self.estimated = any(isinstance(m, Estimated) for m in prelude)
        """True if J is an estimate, by which a step may be chosen but not checked."""
        self.uses_autograd = any(m.uses_autograd for m in self.maps)
        """True if a module of the block goes through autograd."""
        self.keeps = any(type(m).kept is not Map.kept for m in self.maps)
        """True if a module may change its buffers."""

    def __str__(self) -> str:
        return ", ".join(m.module._get_name() for m in self.maps)

    def begin(self, x: Batch) -> Tensor:
        """Return a mini-batch as the first block takes it."""
        if isinstance(x, Tensor):
            return x
        code: Tensor = self.maps[0].module.entry.join(x.tensors)
        return code

    def code_shape(self) -> str:
        """Return the shape of the block's output for one sample, as far as its modules determine it; where several
        values pass, their number and names."""
        exit = getattr(self.maps[-1].module, "exit", None)
        if isinstance(exit, CutValues):
            return str(exit)
        for m in reversed(self.core.maps):
            if isinstance(m.module, nn.Linear):
                return str(m.module.out_features)
            if isinstance(m, Recurrence):
                return f"? x {m.features}"
            if isinstance(m, Convolution):
                return " x ".join([str(m.module.out_channels), *["?"] * m.dims])
        return "?"

    def parameters(self) -> list[nn.Parameter]:
        return [m.module.get_parameter(name) for m in self.core.maps for name in m.names]

    @property
    def mixes_samples(self) -> bool:
        """True if samples of a mini-batch influence each other (batch norm in training)."""
        return any(m.mixes_samples for m in self.maps)

    def forward(self, p: Params, c: Tensor, context: Context = LOCAL) -> tuple[Tensor, State]:
        prelude, core = [], []
        for m in self.prelude.maps:
            c, saved = m.forward((), c, context)
            prelude.append(saved)
        for m, of in self.core.pairs:
            c, saved = m.forward(p[of], c, context)
            core.append(saved)
        return c, State(prelude, core)

    def vjp(self, p: Params, state: State, v: Tensor) -> Tensor:
        for i in range(len(self.core.maps) - 1, -1, -1):
            v = self.core.maps[i].vjp(p[self.core.slices[i]], state.core[i], v)
        for i in range(len(self.prelude.maps) - 1, -1, -1):
            v = self.prelude.maps[i].vjp((), state.prelude[i], v)
        return v

    def jvp(self, p: Params, state: State, u: Tensor) -> Tensor:
        for i, m in enumerate(self.prelude.maps):
            u = m.jvp((), state.prelude[i], u)
        for i, m in enumerate(self.core.maps):
            u = m.jvp(p[self.core.slices[i]], state.core[i], u)
        return u

    def replay(self, p: Params, state: State, c: Tensor) -> tuple[Tensor, State]:
        """Return `forward` at another code, with the random numbers and the context of the pass that saved state."""
        prelude, core = [], []
        for i, m in enumerate(self.prelude.maps):
            c, saved = m.replay((), state.prelude[i], c)
            prelude.append(saved)
        for i, m in enumerate(self.core.maps):
            c, saved = m.replay(p[self.core.slices[i]], state.core[i], c)
            core.append(saved)
        return c, State(prelude, core)

    def functional(self) -> "Block":
        """Return the block in operations that `torch.func` and torch.compile can transform."""
        return Block(*([m.functional() for m in part.maps] for part in (self.prelude, self.core)))

    def statistics(self, state: State) -> list[tuple[Map, Any]]:
        """Return the maps that update buffers in a training pass, such as running statistics, with the new values."""
        pairs = [(m, m.kept(saved)) for m, saved in zip(self.maps, (*state.prelude, *state.core), strict=True)]
        return [(m, what) for m, what in pairs if what is not None]


class Chain:
    """The blocks of a model. Parameters stay the module's own. inputs: the arguments of its forward that a mini-batch
    has. leading: whether they are its first."""

    def __init__(
        self, model: nn.Module, blocks: Sequence[Block], inputs: tuple[str, ...] = ("input",), leading: bool = True
    ):
        self.model, self.blocks, self.inputs, self._leading = model, tuple(blocks), inputs, leading
        exit = getattr(self.blocks[-1].maps[-1].module, "exit", None)
        self.outputs = exit if isinstance(exit, OutputValues) else None
        """Structure of the model's outputs if it returns a tuple, list or dict, else None."""
        self.recurrent = any(isinstance(block.core.maps[0], Recurrence) for block in blocks)
        self.keeps = any(block.keeps for block in blocks)
        """True if a module may change its buffers."""
        first = self.blocks[0]
        self.shows_input = first.core.maps[0].affine and all(isinstance(m, Reshape) for m in first.prelude.maps)
        """True if an input that is not finite makes the first code so too."""
        inner = [part for block in blocks for m in block.maps for part in m.inner]
        closed = [part.module for part in inner if part.module is not None and not part.uses_autograd]
        whole = {id(c) for part in inner if part.module is not None for c in part.module.modules()}
        self._plain = [*closed, *(c for c in model.modules() if id(c) not in whole and not own_call(c))]
        """Modules without a custom call (`own_call`), which must not get one."""
        opened = [vars(c) for c in self._plain if not type(c).__module__.startswith(("torch.", "altmin."))]
        self._settings = [(values, name, v) for values in opened for name, v in values.items() if is_setting(name, v)]
        """Attributes of modules that were opened, whose values the blocks were made with."""
        self._children = [(c, list(c._modules.values())) for c in model.modules() if c._modules]
        self._parameters = [place for block in blocks for m in block.maps for place in _places(m.module)]
        ids = {id(p) for _, _, p in self._parameters}
        self._parameters += [place for place in _places(model) if id(place[2]) in ids]
        uses = Counter(id(p) for block in blocks for p in {id(p): p for p in block.parameters()}.values())
        self.tied = {id(p): name for name, p in model.named_parameters() if uses[id(p)] > 1}
        """Names, by id, of the parameters that several blocks have in common."""
        self._modules = list(model.modules())
        modules = set(self._modules)
        maps = [part for block in blocks for m in block.maps for part in (m, *m.inner) if part.module is not None]
        self._pieces = {c for m in maps for c in m.module.modules() if c not in modules}
        self.note_buffers()

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def read(self, x: Any) -> Batch:
        """Return a mini-batch as the blocks take it: a tensor, or several in the order of `inputs`. ValueError or
        TypeError for what the model does not take."""
        x = x if isinstance(x, Tensor) else as_inputs(x)
        if not isinstance(x, Inputs):
            if len(self.inputs) > 1:
                raise ValueError(
                    f"the model takes the inputs ({', '.join(self.inputs)}), given one; give a tuple of them, or a "
                    "dict by their names"
                )
            return x
        ordered = x.ordered(self.inputs, self._leading)
        return ordered if len(self.inputs) > 1 else ordered.tensors[0]

    def __call__(self, x: Any) -> Tensor:
        """Return the output of the modules in turn: the model's, with several outputs as one."""
        x = self.blocks[0].begin(self.read(x))
        for block in self:
            for m in block.maps:
                x = m.module(x)
        return x

    def parameters(self) -> list[list[nn.Parameter]]:
        return [block.parameters() for block in self]

    def buffers(self) -> list[list[tuple[nn.Module, str]]]:
        """Return for each buffer of the model the module that owns it and its name there, then those of other pieces
        with the same buffer."""
        pieces = [(c, name, b) for c in self._pieces for name, b in c._buffers.items()]
        return [
            [(m, name), *((c, alias) for c, alias, buffer in pieces if buffer is b)]
            for m, name, b in _buffers(self.model)
        ]

    def note_buffers(self) -> None:
        """Remember the model's buffers as they are now, in the model and in its pieces."""
        self._buffers = [(*places[0], places[0][0]._buffers[places[0][1]]) for places in self.buffers() if places[1:]]

    def functional(self) -> "Chain":
        """Return the chain with blocks in operations that `torch.func` and torch.compile can transform. ValueError for
        one that draws random numbers in a module without a closed form."""
        chain = copy.copy(self)
        chain.blocks = tuple(block.functional() for block in self)
        return chain

    def demand_plain(self, who: str) -> None:
        """Raise ValueError unless there are one input, one output, and blocks that share no parameters. who: the caller
        that needs these."""
        if len(self.inputs) > 1:
            raise ValueError(f"the model takes the inputs ({', '.join(self.inputs)}), and {who} takes one; join them")
        if self.outputs is not None:
            kind = type(self.outputs.form).__name__
            raise ValueError(f"the model returns a {kind}, and {who} needs one tensor; let it return that")
        self.demand_untied(who)

    def demand_untied(self, who: str) -> None:
        """Raise ValueError if two blocks share a parameter. who: the caller that needs blocks that do not."""
        for name in self.tied.values():
            raise ValueError(
                f"the parameter {name!r} is used in several blocks, and {who} needs blocks with weights of their own; "
                "give the second use its own module, or cut so that both uses are in one block: at=[] makes one of "
                "all, at=[names] fewer cuts; am-adam and am-sgd train it as it is"
            )

    def demand_unchanged(self) -> None:
        """Raise ValueError if the model is not the one that was cut: modules or parameters have been replaced or added,
        or hooks have been added; or if there are hooks that its blocks would not call."""
        changed, hooked = False, any(GLOBAL_HOOKS) and _hooks_for_all_modules()
        for c, inside in self._children:
            changed = changed or list(c._modules.values()) != inside
        for owner, name, p in self._parameters:
            changed = changed or owner._parameters.get(name) is not p
            hooked = hooked or bool(p._backward_hooks or p._post_accumulate_grad_hooks)
        for owner, name, b in self._buffers:
            changed = changed or owner._buffers.get(name) is not b
        for values, name, value in self._settings:
            changed = changed or values.get(name) != value
        for c in self._modules:
            hooked = hooked or bool(c._backward_hooks or c._backward_pre_hooks)
        for c in self._plain:
            changed = changed or bool(c._forward_hooks or c._forward_pre_hooks or "forward" in vars(c))
        if changed:
            raise ValueError(
                "the model has changed since it was cut into blocks: a module, parameter or attribute was replaced, "
                "added or removed, or got a hook; build a new trainer from it (nothing was changed)"
            )
        if hooked:
            raise ValueError(
                "a module or parameter of the model has a backward hook, or torch has a hook for all modules; there is "
                "no backward pass and no call of the model that would run it; remove the hook (nothing was changed)"
            )

    def __repr__(self) -> str:
        """A table: block, modules, shape of its code, parameters. Sizes that depend on the input are question marks. A
        line below it says if one block of several layers holds most of the parameters."""
        rows = [("block", "modules", "code", "parameters")]
        for l, block in enumerate(self):
            shape = block.code_shape() if l < len(self) - 1 else "output"
            names = shortened([m.module._get_name() for m in block.maps])
            rows.append((str(l), names, shape, f"{sum(p.numel() for p in block.parameters()):,}"))
        whole = {id(p): p.numel() for block in self for p in block.parameters()}
        rows.append(("", "", "", f"{sum(whole.values()):,}"))
        i, j, k, n = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [f"{a:<{i}}  {b:<{j}}  {c:<{k}}  {d:>{n}}" for a, b, c, d in rows]
        for l, block in enumerate(self):
            part = sum({id(p): p.numel() for p in block.parameters()}.values()) / sum(whole.values())
            layers = {owner for m in block.maps for owner, _, p in _places(m.module) if p.ndim > 1}
            if part > MOST and len(layers) > 1:
                lines.append(
                    f"block {l} holds {part:.0%} of the parameters, and backprop trains all its layers at once: name "
                    "places inside it in at=[...], or make it traceable (docs/networks.md)"
                )
        return "\n".join(lines)


def is_setting(name: str, value: Any) -> bool:
    """Return whether an attribute of a module is a plain one, by which its forward may decide or compute."""
    parts = value if isinstance(value, tuple) else (value,)
    return name not in OF_ALL_MODULES and all(isinstance(v, int | float | str | None) and v == v for v in parts)


def _hooks_for_all_modules() -> bool:
    """Return whether any is registered; those of torch itself only count operations."""
    hooks = [hook for table in GLOBAL_HOOKS for hook in table.values()]
    return not all(getattr(hook, "__module__", "").startswith("torch.") for hook in hooks)


def _places(module: nn.Module) -> list[tuple[nn.Module, str, nn.Parameter]]:
    """Return the owner of each parameter: the module, and the parameter's name there."""
    return [(m, name, p) for m in module.modules() for name, p in m._parameters.items() if p is not None]


def _buffers(module: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """Return the owner of each buffer: the module, and the buffer's name there."""
    return [(m, name, b) for m in module.modules() for name, b in m._buffers.items() if b is not None]
