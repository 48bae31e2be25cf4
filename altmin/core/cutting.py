"""Cutting of a model into a chain: its modules as maps, and where the blocks end."""

import itertools
from collections.abc import Collection, Sequence
from typing import Any

from torch import nn

from altmin.calculus import own_call
from altmin.calculus.base import Map
from altmin.calculus.elementwise import ReLU
from altmin.calculus.normalisation import Normalisation
from altmin.calculus.other import AnyModule
from altmin.calculus.pooling import MaxPool
from altmin.calculus.recurrent import Recurrence
from altmin.common.errors import shown
from altmin.core.chain import Block, Chain
from altmin.graph.inline import is_plain
from altmin.graph.maps import map_of
from altmin.graph.piece import Piece
from altmin.graph.record import Untraceable, input_names
from altmin.graph.recurrent import has_layers
from altmin.graph.trace import ends_at, trace


def split(model: nn.Module, at: Collection[str] | None = None, inputs: Sequence[str] | None = None) -> Chain:
    """Cut a model into blocks, one code per hidden block. Parameters stay the model's own.

    An `nn.Sequential` is cut after every module with parameters. A normalisation right after an affine module belongs
    to its block; modules after the last block belong to that block.

    >>> print(split(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))))
    block  modules              code    parameters
    0      Linear, BatchNorm1d  3               21
    1      ReLU, Linear         output           8
                                                29

    Any other module that `torch.fx` can trace is first converted to a chain of modules (see `graph.trace`): its graph
    is cut where everything passes through one tensor, such as after a residual block.

    A parameter may be used in several blocks (`Chain.tied`).

    at: names of modules after which to cut, and nowhere else. ValueError for a name after which the model cannot be.
    inputs: the names of the arguments of its forward that a mini-batch has; None for all without a default value.
    Inputs of a model with several, such as masks, are handed on to every block that uses them.
    """
    for option, value in (("at", at), ("inputs", inputs)):
        if isinstance(value, str):  # whose letters would be taken for names
            raise TypeError(f"{option} is a list of names, such as [{value!r}], given {value!r}")
    modules, ends, names, leading = _modules(model, at, inputs)
    maps = [map_of(module) for module in modules]
    cuts = _default_cuts(maps) if ends is None else _cuts_at(maps, ends)
    bounds = [0, *cuts[:-1], len(maps)]
    blocks = [_pool_first(_separate(maps[a:b], together=ends is not None)) for a, b in itertools.pairwise(bounds)]
    return Chain(model, [_block(block, block is blocks[-1]) for block in blocks], names, leading)


def _default_cuts(maps: Sequence[Map]) -> list[int]:
    cuts = [
        i + 1
        for i, m in enumerate(maps)
        if (_ends_a_block(m) and not (i + 1 < len(maps) and _belongs_to(maps[i + 1], m)))
        or (i and _ends_a_block(maps[i - 1]) and _belongs_to(m, maps[i - 1]))
        or (isinstance(m, Normalisation) and isinstance(next((n for n in maps[i + 1 :] if n.names), None), Recurrence))
    ]
    if not cuts:
        raise ValueError("the model has no layer with parameters to train; give it at least one, such as nn.Linear")
    return cuts


def _cuts_at(maps: Sequence[Map], ends: Sequence[int]) -> list[int]:
    cuts = sorted({*ends, len(maps)})
    for a, b in itertools.pairwise([0, *cuts]):
        if not any(m.names for m in maps[a:b]):
            what = ", ".join(m.module._get_name() for m in maps[a:b]) or "nothing"
            raise ValueError(f"a block between the places given would have no parameters ({what}); give fewer places")
    return cuts


def _separate(maps: Sequence[Map], together: bool) -> list[Map]:
    """Return the maps of a block; as one, through autograd, if two of them share a parameter. together: also if two or
    more go through autograd, since one graph costs less than several."""
    ids = [id(p) for m in maps for p in m.module.parameters()]
    several = together and sum(isinstance(m, AnyModule) for m in maps) > 1
    return [map_of(Piece.of([m.module for m in maps]))] if several or len(ids) > len(set(ids)) else list(maps)


def _pool_first(maps: list[Map]) -> list[Map]:
    """Return the maps with pooling before ReLU: max(relu(x)) = relu(max(x)), with fewer entries to rectify and save."""
    for i, (a, b) in enumerate(itertools.pairwise(maps)):
        if isinstance(a, ReLU) and isinstance(b, MaxPool):
            maps[i], maps[i + 1] = b, a
    return maps


def _block(maps: Sequence[Map], last: bool) -> Block:
    """Return a block. Codes in time are those of a recurrent layer that is the whole core of a block below another one;
    elsewhere such a layer goes through autograd."""
    first = next(i for i, m in enumerate(maps) if m.names)
    whole = first == len(maps) - 1 and not last
    maps = [AnyModule(m.module) if isinstance(m, Recurrence) and not whole else m for m in maps]
    return Block(maps[:first], maps[first:])


def _belongs_to(m: Map, before: Map) -> bool:
    """Return whether a map is in the block of the one before: a normalisation, but not one of sequences in time."""
    return isinstance(m, Normalisation) and not isinstance(before, Recurrence)


def _ends_a_block(m: Map) -> bool:
    return bool(m.names) and not isinstance(m, Normalisation)


def _modules(
    model: nn.Module, at: Collection[str] | None, inputs: Sequence[str] | None
) -> tuple[list[nn.Module], list[int] | None, tuple[str, ...], bool]:
    """Return the modules of a chain, after how many of them to cut if names were given, and what `input_names` says."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"a model is an nn.Module, such as an nn.Sequential, given {shown(model)}")
    if any(isinstance(m, nn.parallel.DistributedDataParallel) for m in model.modules()):
        raise ValueError("DistributedDataParallel would average nothing here; use altmin.Distributed around the method")
    if at is None and inputs is None and is_plain(model) and not has_layers(model):
        return _flat(model), None, ("input",), True
    try:
        names, leading = input_names(model, inputs)
    except Untraceable as why:
        raise ValueError(f"{type(model).__name__} cannot be cut into blocks: {why}") from why
    parts = trace(model, () if at is None else at, names)
    return [part.module for part in parts], None if at is None else ends_at(model, parts, at), names, leading


def _flat(model: Any) -> list[nn.Module]:
    flat: list[nn.Module] = []
    for module in model:
        flat += _flat(module) if is_plain(module) else [module]
    return [module for module in flat if type(module) is not nn.Identity or own_call(module)]
