"""The layers of a recurrent module of torch, one module each."""

import operator
from collections.abc import Sequence

from torch import fx, nn

from altmin.calculus import own_call
from altmin.graph.inline import sole
from altmin.layers import Last, LayerDropout, Outputs, RecurrentLayer

KINDS = (nn.RNN, nn.GRU, nn.LSTM)
LAST_STATE = {nn.RNN: (1, -1), nn.GRU: (1, -1), nn.LSTM: (1, 0, -1)}
"""The entries that lead from what the module returns to the last state of the last layer."""


def has_layers(model: nn.Module) -> bool:
    """Return whether a recurrent module of torch is among a model's modules."""
    return any(type(m) in KINDS for m in model.modules())


def recurrent_layers(owner: nn.Module, nodes: Sequence[fx.Node], source: fx.Node) -> list[nn.Module] | None:
    """Return modules that compute from the value of `source` what the nodes do, if these call a recurrent module from
    h_0 = 0 and take its outputs, or the last state of its last layer; else None."""
    called, *entries = nodes
    module = owner.get_submodule(str(called.target)) if called.op == "call_module" and sole(called) is source else None
    if not isinstance(module, nn.RNNBase) or own_call(module) or not _has_codes(module):
        return None
    pairs = zip(nodes, entries, strict=False)
    if not all(node.target is operator.getitem and node.args[0] is before for before, node in pairs):
        return None
    path = tuple(node.args[1] for node in entries)
    if path == (0,):
        return layers(module)
    return [*layers(module), Last()] if path == LAST_STATE[type(module)] else None


def layers_of_outputs(module: nn.Module) -> list[nn.Module] | None:
    """The layers of an `Outputs`; None for any other module, and for layers without codes in time."""
    if type(module) is not Outputs or own_call(module.rnn) or not _has_codes(module.rnn):
        return None
    return layers(module.rnn, module.padded)


def layers(module: nn.RNNBase, padded: bool = False) -> list[nn.Module]:
    """The layers of a recurrent module, and the dropout between them.

    >>> layers(nn.GRU(2, 3, num_layers=2, dropout=0.5))
    [GRU(), LayerDropout(p=0.5, inplace=False), GRU()]
    """
    modules: list[nn.Module] = []
    for i in range(module.num_layers):
        if i and module.dropout:
            modules.append(LayerDropout(module))
        modules.append(RecurrentLayer(module, i, padded))
    return modules


def _has_codes(module: nn.RNNBase) -> bool:
    """Return whether it is none of our own, its samples come first, and it is one of the kinds that have an activation
    across time (`calculus.recurrent`), in one direction."""
    known = type(module) in KINDS and module.mode != "RNN_RELU"
    return known and module.batch_first and not module.proj_size and not module.bidirectional
