"""The choice of a code solver for a chain."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from altmin.calculus import Discrete
from altmin.common.errors import shown, unknown
from altmin.core.chain import Chain
from altmin.core.codes.discrete import DiscreteCodes, StraightThroughCodes, lacks_derivative, position
from altmin.core.codes.gradient import GradientCodes
from altmin.core.codes.printed import PrintedCodes
from altmin.core.codes.recurrent import SWEEPS, RecurrentCodes
from altmin.graph.piece import Piece
from altmin.layers import no_derivative

ATTENTION = {F.scaled_dot_product_attention, F.softmax, torch.softmax, "softmax"}
SOLVERS: dict[str, Callable[..., Any]] = {
    "gradient": GradientCodes,
    "printed": PrintedCodes,
    "discrete": DiscreteCodes,
    "straight-through": StraightThroughCodes,
    **{sweep: partial(RecurrentCodes, sweep) for sweep in SWEEPS},
}


def choose(codes: Any, chain: Chain, share: float | None = None, order: str | None = None) -> Any:
    """Return the code solver for a chain: the one passed or named, if it can move the chain's codes; None for the
    default.

    The default is `GradientCodes`, for a chain with codes in time `RecurrentCodes`. If some
    activation has no derivative, it is `DiscreteCodes` with one of these for the other codes. share, order: options of
    these gradient steps; None for the solver's defaults, except that a chain with attention gets weights-first
    (docs/networks.md shows why). "printed": the paper's Algorithm 2.

    TypeError or ValueError if the solver cannot move the chain's codes; ValueError if options are given in addition to
    a solver.
    """
    options: dict[str, Any] = {name: value for name, value in (("share", share), ("order", order)) if value is not None}
    lacking = [block for block in chain.blocks[1:] if lacks_derivative(block)]
    smooth = RecurrentCodes if chain.recurrent else GradientCodes
    if codes == "discrete" or (codes is None and lacking):
        codes = DiscreteCodes(gradient=smooth(**options))
    elif codes is None:
        codes = smooth(**({"order": "weights-first"} | options if attends(chain) else options))
    elif isinstance(codes, str):
        if codes not in SOLVERS:
            raise unknown("code solver", codes, SOLVERS)
        codes = SOLVERS[codes](**options)
    elif not callable(codes) or isinstance(codes, type | nn.Module):
        raise TypeError(f"codes is a code solver, such as {smooth()}, or its name, given {shown(codes)}")
    elif options:
        raise ValueError(f"{options} beside codes={codes!r}, which has its own; give it to the code solver instead")
    _check_discrete(codes, chain, lacking)
    _check_time(codes, chain)
    return codes


def attends(chain: Chain) -> bool:
    """Return whether a block weighs values by a softmax: the attention of a transformer.

    >>> from altmin.core.cutting import split
    >>> layers = nn.Linear(3, 4), nn.TransformerEncoderLayer(4, 2, 8), nn.Linear(4, 2)
    >>> attends(split(nn.Sequential(*layers))), attends(split(nn.Sequential(*layers[::2])))
    (True, False)
    """
    opaque = [m.module for block in chain for outer in block.maps for m in outer.inner if m.uses_autograd]
    modules = [m for module in opaque for m in module.modules()]
    calls = {node.target for m in modules if isinstance(m, Piece) for node in m.graph.nodes}
    return any(isinstance(m, nn.MultiheadAttention) for m in modules) or not calls.isdisjoint(ATTENTION)


def _check_discrete(codes: Any, chain: Chain, lacking: list[Any]) -> None:
    """Raise ValueError for a discrete activation that the solver does not move, or with no code right below it."""
    if lacking and type(codes) in (GradientCodes, RecurrentCodes):
        raise no_derivative(next(m.module for m in lacking[0].prelude.maps if isinstance(m, Discrete)))
    for block in lacking if isinstance(codes, DiscreteCodes) else ():
        position(block)
    for before, m in (pair for block in chain for pair in itertools.pairwise(block.core.maps)):
        if isinstance(m, Discrete):
            raise ValueError(
                f"{type(m.module).__name__} after {before.module._get_name()} has no code to move; put it right after "
                "a layer, before any pooling or reshaping, and none above the last layer"
            )


def _check_time(codes: Any, chain: Chain) -> None:
    """Raise ValueError for codes in time that the solver does not move, and for one of such codes without any."""
    smooth: Any = codes.gradient if isinstance(codes, DiscreteCodes) else codes
    in_time = isinstance(smooth, RecurrentCodes)
    if isinstance(smooth, PrintedCodes) or (in_time and chain.recurrent):
        smooth.check(chain)
    elif in_time:
        raise ValueError(
            f"codes={smooth.sweep!r} (RecurrentCodes) moves codes in time, and this model has no recurrent layer, such "
            'as nn.RNN; leave codes out, or give codes="gradient"'
        )
    elif chain.recurrent:
        raise ValueError(
            f"{type(smooth).__name__} moves no codes in time, which recurrent layers have; leave codes out, or give "
            'codes="exact"'
        )
