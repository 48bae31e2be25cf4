"""What one step does inside each block: whether an autograd graph leaves it, whether a derivative is an estimate."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import AveragePool2d, Discrete, Estimated, LinearModule, Reshape, Scaling
from altmin.calculus.other import Pass
from altmin.core.losses import AnyLoss
from altmin.core.trainer import AltMin
from altmin.explaining.watch import after, trainer_of


@dataclass
class Finding:
    """One block, or the loss.

    local: the modules that autograd differentiates, each by a graph of its own. escaped: how many tensors carried a
    graph out of such a module, or into it. discrete: activations without derivatives. estimates: how often an estimate
    stood in for their vjp or jvp. derivatives: how often these were used all the same, which the library's own maps
    refuse.
    """

    name: str
    local: list[str] = field(default_factory=list)
    escaped: int = 0
    discrete: list[str] = field(default_factory=list)
    estimates: int = 0
    derivatives: int = 0

    def see(self, result: Any) -> None:
        """Notes what an operation returned."""
        self.escaped += sum(t.grad_fn is not None for t in _reachable(result))

    def count(self, what: str, result: Any) -> None:
        setattr(self, what, getattr(self, what) + 1)

    def __str__(self) -> str:
        how = f"a graph inside {', '.join(self.local)} alone" if self.local else "closed forms"
        return f"{self.name}: {how}{self._without()}, {self.escaped} tensors left it with a graph"

    def _without(self) -> str:
        if not self.discrete:
            return ""
        names = ", ".join(self.discrete)
        if self.derivatives:
            return f", A DERIVATIVE OF {names} WAS USED {self.derivatives} times"
        if self.estimates:
            return f", a straight-through estimate stood in for the derivative of {names} {self.estimates} times"
        return f", no derivative of {names} exists and none was used"


@dataclass
class Audit:
    """What each block's maps, and last the loss, did in one step."""

    findings: list[Finding]

    @property
    def clean(self) -> bool:
        """Whether no graph crosses a block: none leaves the one module in which it was made."""
        return not any(finding.escaped for finding in self.findings)

    def __str__(self) -> str:
        verdict = "no autograd graph crosses a block" if self.clean else "AN AUTOGRAD GRAPH CROSSES A BLOCK"
        return "\n".join([*map(str, self.findings), verdict])


def audit(subject: nn.Module | AltMin, x: Tensor, y: Tensor, method: str = "am-adam", **options: Any) -> Audit:
    """Runs one step of a copy of `subject`, which stays as it is, and watches what each module's map, and the loss,
    returns. subject, method, options: a trainer, or a model with a method and its options, as in `explain`.

    A graph can cross a block only on a tensor that carries it. A module without closed form keeps a graph of its own,
    from its detached input to its output, and a loss of the user's builds one inside its call; the audit names those,
    and counts tensors that carry a graph beyond them.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.Softmax(1), nn.Linear(3, 2))
    >>> print(audit(AltMin(model), torch.ones(4, 2), torch.tensor([0, 1, 0, 1])))
    block 0 (Linear): closed forms, 0 tensors left it with a graph
    block 1 (Tanh, Linear): closed forms, 0 tensors left it with a graph
    block 2 (Softmax, Linear): a graph inside Softmax alone, 0 tensors left it with a graph
    loss: closed forms, 0 tensors left it with a graph
    no autograd graph crosses a block

    Of an activation without derivative it tells whether an estimate stood in for one.

    >>> from altmin.layers import Sign
    >>> model = nn.Sequential(nn.Linear(2, 3), Sign(), nn.Linear(3, 2))
    >>> print(audit(AltMin(model, codes="discrete"), torch.ones(4, 2), torch.tensor([0, 1, 0, 1])).findings[1])
    block 1 (Sign, Linear): closed forms, no derivative of Sign exists and none was used, 0 tensors left it with a graph
    """
    am = trainer_of(subject, "audit", method, options)
    findings = []
    for l, block in enumerate(am.chain):
        finding = Finding(f"block {l} ({block})")
        for m in block.maps:
            finding.local += [each.module._get_name() for each in m.inner if each.uses_autograd or _by_function(each)]
            for name in ("forward", "vjp", "jvp", "quotient", "grads", "replay"):
                after(m, name, finding.see)
            if isinstance(m, Discrete):
                finding.discrete.append(type(m.module).__name__)
                after(m, "estimate", partial(finding.count, "estimates"))
                for name in () if isinstance(m, Estimated) else ("vjp", "jvp"):
                    after(m, name, partial(finding.count, "derivatives"))
        findings.append(finding)
    findings.append(Finding("loss", local=["the given function"] if isinstance(am.loss, AnyLoss) else []))
    after(am.loss, "at", findings[-1].see)
    am.step(x, y)
    return Audit(findings)


def _by_function(m: Any) -> bool:
    """Whether the vjp of a linear map is torch's, by a graph of its own."""
    return isinstance(m, LinearModule) and not isinstance(m, Reshape | AveragePool2d | Scaling)


def _reachable(result: Any) -> list[Tensor]:
    """The tensors that a map's operation returns; of a module with a graph of its own those at which it begins."""
    tensors: list[Tensor] = []
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, Pass) and leaf.graph is not None:
            inputs, parameters, _ = leaf.graph
            tensors += [t for t in (*inputs, *parameters) if isinstance(t, Tensor)]
        elif isinstance(leaf, Tensor):
            tensors.append(leaf)
    return tensors
