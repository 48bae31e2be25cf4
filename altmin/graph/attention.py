"""Parts of a graph that have the closed form of attention."""

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import fx, nn

from altmin.calculus.attention import Attention
from altmin.graph.piece import Piece
from altmin.graph.regions import Region
from altmin.graph.values import TUPLES_OF_VIEWS, named, numbers

MOVES = {operator.getitem, *TUPLES_OF_VIEWS} | named(
    *("flatten", "unflatten", "transpose", "swapaxes", "swapdims", "permute", "movedim", "reshape", "squeeze"),
    *("contiguous", "view", "unsqueeze"),
)
"""Functions and methods that only rearrange the entries of their first argument."""
ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def attention(owner: nn.Module, region: Region, still: Collection[fx.Node]) -> tuple[Attention, list[fx.Node]] | None:
    """The closed form of a region whose nodes are one call of torch's attention and others that only rearrange
    entries, and its inputs; None for another region. still: values without derivative, such as a mask."""
    calls = [node for node in region.nodes if node.target is F.scaled_dot_product_attention]
    given: dict[str, Any] = {"attn_mask": None, "is_causal": False, "scale": None}
    for call in calls:
        given |= dict(zip(ARGUMENTS, call.args, strict=False)) | dict(call.kwargs)
    if len(calls) != 1 or given.get("dropout_p", 0.0) != 0.0 or given.get("enable_gqa", False):
        return None
    if isinstance(given["is_causal"], fx.Node) or isinstance(given["scale"], fx.Node):  # they depend on sizes
        return None
    mask, rest = given["attn_mask"], [node for node in region.nodes if node is not calls[0]]
    moving = [node for node in region.inputs if node is not mask]
    masked = isinstance(mask, fx.Node)
    if masked and not (mask in still and mask in region.inputs):
        return None
    sizes = numbers(region.nodes)
    if any(node in still for node in moving) or not all(node in sizes or node.target in MOVES for node in rest):
        return None
    taken = [given[name] for name in ARGUMENTS[:3]]
    before = _needed(taken, rest)
    after = _needed([region.output], rest)
    if any(node not in {*before, *moving} for node in taken):
        return None
    first = Piece(owner, [node for node in rest if node in before], moving, taken)
    last = Piece(owner, [node for node in rest if node in after], [calls[0], *moving], [region.output])
    m = Attention(first.values, last.values, masked, given["is_causal"], given["scale"])
    return m, [*moving, mask] if masked else moving


def _needed(nodes: Iterable[fx.Node], among: Sequence[fx.Node]) -> set[fx.Node]:
    """Those of `among` from which the nodes are computed, and the nodes themselves."""
    found: set[fx.Node] = set()
    left = [node for node in nodes if node in among]
    while left:
        node = left.pop()
        found.add(node)
        left += [each for each in node.all_input_nodes if each in among and each not in found]
    return found
