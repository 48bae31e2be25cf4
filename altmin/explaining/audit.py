"""`audit`: whether an autograd graph leaves a block in one step, and whether a derivative is an estimate."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from altmin.calculus import AveragePool2d, Discrete, Estimated, LinearModule, Reshape, Scaling
from altmin.calculus.other import Pass
from altmin.core.losses import AnyLoss
from altmin.core.trainer import AltMin
from altmin.explaining.trainers import random_state, trainer_of


@dataclass
class Finding:
    """Graphs and estimates of one block, or of the loss.

    local: the modules that autograd differentiates, each by a graph of its own. escaped: how many tensors carried a
    graph out of such a module, or into it. discrete: activations without derivatives. estimates: how often an estimate
    stood in for their vjp or jvp. derivatives: how often these were used all the same, which altmin's own maps refuse.
    """

    name: str
    local: list[str] = field(default_factory=list)
    escaped: int = 0
    discrete: list[str] = field(default_factory=list)
    estimates: int = 0
    derivatives: int = 0

    def count_graphs(self, result: Any) -> None:
        self.escaped += sum(t.grad_fn is not None for t in _boundary(result))

    def count_estimate(self, result: Any) -> None:
        self.estimates += 1

    def count_derivative(self, result: Any) -> None:
        self.derivatives += 1

    def __str__(self) -> str:
        how = f"a graph inside {', '.join(self.local)} alone" if self.local else "closed forms"
        if self.discrete:
            how += f"; {', '.join(self.discrete)}: {self.derivatives} derivatives, {self.estimates} estimates"
        return f"{self.name}: {how}; {self.escaped} tensors left it with a graph"


@dataclass
class Audit:
    """The findings about every block, and last about the loss, in one step."""

    findings: list[Finding]

    @property
    def clean(self) -> bool:
        """Return whether no graph crosses a block, that is, none leaves the module in which it was made."""
        return not any(finding.escaped for finding in self.findings)

    def __str__(self) -> str:
        verdict = "no autograd graph crosses a block" if self.clean else "AN AUTOGRAD GRAPH CROSSES A BLOCK"
        return "\n".join([*map(str, self.findings), verdict])


def audit(subject: nn.Module | AltMin, x: Tensor, y: Tensor, method: str = "am-adam", **options: Any) -> Audit:
    """Run one step of a copy and look at what each module's map, and the loss, returns. subject, method, options: as
    in `explain`.

    A graph can cross a block only on a tensor that carries it. A module without closed form builds a graph of its own,
    from its detached input to its output, and a loss of the user's one inside its call; the audit names those, and
    counts tensors that carry a graph beyond them.

    >>> import torch
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3), nn.Softmax(1), nn.Linear(3, 2))
    >>> print(audit(AltMin(model), torch.ones(4, 2), torch.tensor([0, 1, 0, 1])))
    block 0 (Linear): closed forms; 0 tensors left it with a graph
    block 1 (Tanh, Linear): closed forms; 0 tensors left it with a graph
    block 2 (Softmax, Linear): a graph inside Softmax alone; 0 tensors left it with a graph
    loss: closed forms; 0 tensors left it with a graph
    no autograd graph crosses a block
    """
    am = trainer_of(subject, method, options)
    findings = []
    for l, block in enumerate(am.chain):
        finding = Finding(f"block {l} ({block})")
        for m in block.maps:
            finding.local += [part.module._get_name() for part in m.inner if part.uses_autograd or _by_function(part)]
            for name in ("forward", "vjp", "jvp", "grads", "replay"):
                _after(m, name, finding.count_graphs)
            if isinstance(m, Discrete):
                finding.discrete.append(type(m.module).__name__)
                _after(m, "estimate", finding.count_estimate)
                for name in () if isinstance(m, Estimated) else ("vjp", "jvp"):
                    _after(m, name, finding.count_derivative)
        findings.append(finding)
    loss = am.loss
    am.loss = loss  # this one, and not that of the user's present options
    findings.append(Finding("loss", local=["the given function"] if isinstance(loss, AnyLoss) else []))
    _after(loss, "at", findings[-1].count_graphs)
    with random_state(x):
        am.step(x, y)
    return Audit(findings)


def _after(owner: Any, name: str, note: Callable[[Any], None]) -> None:
    """Call `note` with each result of a method of an object."""
    method = getattr(owner, name)

    def noted(*args: Any) -> Any:
        result = method(*args)
        note(result)
        return result

    setattr(owner, name, noted)


def _by_function(m: Any) -> bool:
    """Return whether the vjp of a linear map is torch's, by a graph of its own."""
    return isinstance(m, LinearModule) and not isinstance(m, Reshape | AveragePool2d | Scaling)


def _boundary(result: Any) -> list[Tensor]:
    """Return the tensors that a map's operation returns; for a module with its own graph, those at its start."""
    tensors: list[Tensor] = []
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, Pass):
            tensors += [t for t in (*leaf.xs, *leaf.p) if isinstance(t, Tensor)]
        elif isinstance(leaf, Tensor):
            tensors.append(leaf)
    return tensors
