"""`LayerParallel`: the blocks of a chain spread over processes, and each mini-batch in parts that pass through them."""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from altmin.calculus import Map, Recurrence, Saved
from altmin.chain import Chain
from altmin.codes.above import Above, Residual, Top
from altmin.codes.gradient import Trace, encode, move_below
from altmin.errors import Diverged, demand
from altmin.execution.neighbours import Neighbours
from altmin.execution.ranks import Ranks, bounds, start
from altmin.trainer import AltMin, Metrics, check


class Part(NamedTuple):
    """A part of a mini-batch on its way: its trace, what batch norm keeps of it, and its residuals by block once its
    codes have moved."""

    trace: Trace
    statistics: list[tuple[Map, Saved]]
    residuals: dict[int, Residual]


class LayerParallel:
    """An `AltMin` whose blocks are spread over the ranks of torchrun, consecutive ones on each.

    Every process makes the same model and trainer and gives `step` the same batches. A mini-batch passes in
    `micro_batches` parts: codes go up from rank to rank, then what codes ask of their blocks comes down, and each rank
    moves the weights of its own blocks, whose optimizer state and memories nobody else has. Weights are measured while
    a rank waits for others. A step is that of `am.gather` for each part, in order, and `am.apply`; with one part that
    of `am.step`. In a script that torchrun has not started there is one rank.

    cuts: the numbers of the blocks with which the ranks after the first begin; None for parts with about as many
    parameters. Weights of other ranks' blocks are those of the last `synchronize`. Dropout draws numbers of its own
    for each part and block, so that they do not depend on the number of ranks.
    """

    def __init__(self, am: AltMin, micro_batches: int = 4, cuts: Sequence[int] | None = None):
        demand("LayerParallel", "micro_batches", micro_batches, low=1, whole=True)
        _check(am)
        start(am.theta[0][0].device)
        self.am, self.micro_batches = am, micro_batches
        self.ranks = Ranks()
        stages = self.ranks.size
        self.bounds = boundaries(am.chain, stages) if cuts is None else _given(am.chain, cuts, stages)
        self.stage = self.ranks.rank
        self.blocks = range(*self.bounds[self.stage : self.stage + 2])
        self.first, self.last = self.stage == 0, self.stage == stages - 1
        self.neighbours = Neighbours(
            self.ranks, None if self.first else self.stage - 1, None if self.last else self.stage + 1
        )
        if stages > 1:
            state = torch.get_rng_state()
            self.ranks.equalise([state, *am.model.state_dict().values()])
            torch.set_rng_state(state)

    def __repr__(self) -> str:
        return f"LayerParallel({self.am!r}, micro_batches={self.micro_batches})"

    def __getattr__(self, name: str) -> Any:
        """All else is the trainer's own."""
        if name == "am":
            raise AttributeError(name)
        return getattr(self.am, name)

    @property
    def model(self) -> nn.Module:
        return self.am.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.am.optimizer

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor) -> Metrics:
        """One mini-batch, the same on all ranks. Errors are raised on all of them; then nothing has changed."""
        self.ranks.share(0, 1, 1, [tuple(x.shape)])
        try:
            return _Step(self, x, y).run()
        except Exception as error:
            _forget(self.am.weights)
            found = self.ranks.post(error)
            if found is error:
                raise
            raise found from error

    def end_epoch(self) -> None:
        self.am.end_epoch()

    @torch.no_grad()
    def synchronize(self) -> None:
        """All ranks get the weights and buffers of all blocks. To be called on all of them."""
        for stage in range(self.ranks.size if self.ranks.size > 1 else 0):
            held = [t for l in range(*self.bounds[stage : stage + 2]) for t in _tensors(self.am.chain, l)]
            for kind in {(t.dtype, t.device) for t in held}:
                alike = [t for t in held if (t.dtype, t.device) == kind]
                flat = torch.cat([t.reshape(-1) for t in alike])
                dist.broadcast(flat, stage)
                for t, part in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
                    t.copy_(part.view(t.shape))

    def state_dict(self) -> dict[str, Any]:
        """That of the trainer in one process, put together from all ranks. To be called on all of them."""
        own = self.am.state_dict()
        if self.ranks.size == 1:
            return own
        parts: list[Any] = [None] * self.ranks.size
        dist.all_gather_object(parts, own)
        return _united(parts)

    def check_state(self, state: Any) -> None:
        """ValueError unless `load_state_dict` can take the state."""
        self.am.check_state(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a trainer's `state_dict`, whatever the number of ranks that wrote it; what belongs to other
        ranks' blocks is left out."""
        self.am.load_state_dict(state)
        keep = {id(p) for l in self.blocks for p in self.am.theta[l]}
        held = self.am.optimizer.state
        for p in [p for p in held if id(p) not in keep]:
            del held[p]
        memories = getattr(self.am.weights, "kept", {})
        for l in [l for l in memories if l not in self.blocks]:
            del memories[l]


class _Step:
    """One mini-batch on one rank."""

    def __init__(self, run: LayerParallel, x: Tensor, y: Tensor):
        self.own, self.am, self.x, self.y = run, run.am, x, y
        am = self.am
        am.chain.demand_unchanged()
        check(x, y, am.theta[0][0], integers=am.chain.blocks[0].takes_integers)
        least = 2 if any(block.couples for block in am.chain) else 1  # batch norm needs two samples
        parts = max(1, min(run.micro_batches, len(x) // least))
        self.rows = [bounds(len(x), i, parts) for i in range(parts)]
        self.kind = (tuple(x.shape[1:]), x.dtype, tuple(m.training for m in am.model.modules()))
        self.parts: dict[int, Part] = {}
        self.statistics: list[tuple[Map, Saved]] = []
        self.unmeasured: deque[tuple[int, int]] = deque()
        """Parts and blocks whose weights have not been measured yet."""
        self.found: dict[int, list[Any]] = {}
        self.costs, self.moved, self.sizes = ([0.0] * len(am.chain) for _ in range(3))
        self.loss = 0.0
        self.error: Exception | None = None
        self.seed = int(torch.randint(1 << 62, ())) if _draws(am.model) else None

    def run(self) -> Metrics:
        own, passed = self.own, len(self.rows)
        own.neighbours.expect_codes(self.kind, [end - first for first, end in self.rows], self.am.theta[0][0])
        for forward, i in schedule(own.stage, own.ranks.size, passed):
            (self.forward if forward else self.backward)(i)
        while self.unmeasured:
            self.measure()
        error = self._prepared()
        self._agree(error)
        self.am.weights.apply()
        for m, kept in self.statistics:
            m.commit(kept)
        mu = self.am.penalty.value
        self.am.penalty.step()
        own.neighbours.finish()
        objective = self.costs[-1] + mu / (1 if self.am.loss.adds else len(self.x)) * sum(self.costs[:-1])
        loss = self.am.theta[0][0].new_tensor(self.loss)
        return Metrics(loss, mu, objective, self.costs[:-1], self.moved[:-1], self.sizes[:-1])

    def forward(self, i: int) -> None:
        """Codes of a part, and the last one sent up."""
        own, chain, theta = self.own, self.am.chain, self.am.theta
        first, end = self.rows[i]
        if not own.first:
            self._work_until(lambda: own.neighbours.arrived(i))
        below = self.x[first:end] if own.first else own.neighbours.code(i)
        trace = Trace([] if own.first else [below], [])
        for l in own.blocks:
            with self._drawing(i, l):
                found = encode(chain, theta, below, [l])
            below = found.values[0]
            trace.values.append(below)
            trace.states.extend(found.states)
        kept = [t for l, state in zip(own.blocks, trace.states, strict=True) for t in chain.blocks[l].statistics(state)]
        self.parts[i] = Part(trace, kept, {})
        if not own.last:
            own.neighbours.expect_ask(self.kind, i, below)
            own.neighbours.send_code(self.kind, i, below, end - first)

    def backward(self, i: int) -> None:
        """The codes of a part move, from the last to the first; what the first one asks is sent down."""
        own, am, part = self.own, self.am, self.parts[i]
        first, end = self.rows[i]
        if own.last:
            top = Top(am.loss, part.trace.values[-1], self.y[first:end], am.penalty.value)
            self.loss += float(top.start.value) * self.weight(i)
            above: Above = top
        else:
            self._work_until(lambda: own.neighbours.asked(i))
            above = own.neighbours.ask(self.kind, i)
        part.trace.values.pop()
        asked = None
        for l in reversed(own.blocks):
            codes: Any = am.codes
            part.residuals[l], asked = move_below(codes, am.chain, am.theta, part.trace, l, above)
            above = asked or above
            self.unmeasured.append((i, l))
        if not own.first:
            assert asked is not None
            own.neighbours.send_ask(i, asked)

    def weight(self, i: int) -> float:
        """What the loss of a part counts in that of the batch."""
        first, end = self.rows[i]
        return 1.0 if self.am.loss.adds else (end - first) / len(self.x)

    def measure(self) -> None:
        """What the weight rule needs of one block and part; a part that is complete is gathered."""
        i, l = self.unmeasured.popleft()
        am, part = self.am, self.parts[i]
        residual = part.residuals.pop(l)
        self.costs[l] += float(residual.cost) * (self.weight(i) if l == len(am.chain) - 1 else 1.0)
        self.moved[l] += float(residual.moved or 0.0)
        self.sizes[l] += residual.delta.numel()
        found = self.found.setdefault(i, [None] * len(am.chain))
        found[l] = am.weights.measure(l, am.theta[l], residual)
        if not part.residuals:
            first, end = self.rows[i]
            try:
                am.weights.gather(self.found.pop(i), end - first)
            except Diverged as error:  # the other ranks are still at work
                self.error = self.error or error

    def _work_until(self, ready: Any) -> None:
        while self.unmeasured and not ready():
            self.measure()

    def _prepared(self) -> Exception | None:
        """What keeps this rank from moving its weights, None for nothing."""
        self.statistics = [t for i in range(len(self.rows)) for t in self.parts[i].statistics]
        numbers = [t.sum().item() for m, kept in self.statistics for t in m.checked(kept)]
        if not all(map(math.isfinite, (self.loss, *self.costs, *numbers))):
            return Diverged(f"what rank {self.own.ranks.rank} computes")
        if self.own.first and not math.isfinite(self.x.sum().item()) and not bool(self.x.isfinite().all()):
            return ValueError("the input holds NaN or infinite values; clean them before training")
        if self.error is None:
            try:
                self.am.weights.prepare()
            except Diverged as error:
                return error
        return self.error

    def _agree(self, error: Exception | None) -> None:
        """Raises the error, or that of another rank, unless no rank has one; all ranks have all costs then."""
        own = self.own
        if own.ranks.size > 1:
            bad = [0.0] * own.ranks.size
            bad[own.stage] = float(error is not None)
            mine = [self.loss, *self.costs, *self.moved, *self.sizes]
            mine = [n if math.isfinite(n) else 0.0 for n in mine]
            vector = own.ranks.begin(torch.tensor([*bad, *mine], dtype=torch.float64))().tolist()
            bad, (self.loss, *rest) = vector[: len(bad)], vector[len(bad) :]
            n = len(self.costs)
            self.costs, self.moved, self.sizes = rest[:n], rest[n : 2 * n], rest[2 * n :]
            if error is None and any(bad):
                ranks = [rank for rank, each in enumerate(bad) if each]
                blocks = [f"blocks {own.bounds[r]} to {own.bounds[r + 1] - 1} on rank {r}" for r in ranks]
                error = Diverged(f"a number of {' and of '.join(blocks)}")
        if error is not None:
            raise error

    @contextmanager
    def _drawing(self, i: int, l: int) -> Iterator[None]:
        """Random numbers that depend on the step, the part and the block."""
        if self.seed is None:
            yield
            return
        with torch.random.fork_rng([]):
            torch.manual_seed((self.seed + 1_000_003 * i + l) % (1 << 63))
            yield


def schedule(stage: int, stages: int, parts: int) -> list[tuple[bool, int]]:
    """What a stage does in turn: (True, i) is the forward pass of part i, (False, i) its way back. After as many
    forward passes as there are stages above, one forward and one back in turn.

    >>> ["FB"[not forward] + str(i) for forward, i in schedule(0, 2, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    ahead = min(parts, stages - 1 - stage)
    order = [(True, i) for i in range(ahead)]
    for i in range(parts):
        if ahead + i < parts:
            order.append((True, ahead + i))
        order.append((False, i))
    return order


def boundaries(chain: Chain, stages: int) -> list[int]:
    """Where to cut a chain for so many ranks: the first block of each, and the number of blocks. The rank with most
    parameters has as few as possible. ValueError if there are not enough places to cut."""
    allowed = [0, *_places(chain), len(chain)]
    if len(allowed) - 1 < stages:
        raise ValueError(
            f"{stages} ranks need a net with at least as many blocks to spread, this one has {len(allowed) - 1} that "
            "can be on ranks of their own; start fewer processes"
        )
    sizes = [sum(p.numel() for p in block.parameters()) for block in chain]
    weight = [sum(sizes[:l]) for l in range(len(chain) + 1)]
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [0])}
    for _ in range(stages):
        best = {
            end: min(
                (max(most, float(weight[end] - weight[begin])), [*cuts, end])
                for begin, (most, cuts) in best.items()
                if begin < end
            )
            for end in allowed
            if any(begin < end for begin in best)
        }
    return best[len(chain)][1]


def _places(chain: Chain) -> list[int]:
    """Blocks with which a rank can begin: where one tensor passes, which is no code in time."""
    return [
        l + 1
        for l, block in enumerate(chain.blocks[:-1])
        if getattr(block.maps[-1].module, "exit", None) is None and not isinstance(block.core.maps[0], Recurrence)
    ]


def _given(chain: Chain, cuts: Sequence[int], stages: int) -> list[int]:
    places = _places(chain)
    if len(cuts) != stages - 1 or sorted(set(cuts)) != list(cuts) or not set(cuts) <= set(places):
        raise ValueError(
            f"cuts of LayerParallel are {stages - 1} rising numbers of blocks, one for each rank but the first, among "
            f"{places}; given {list(cuts)}"
        )
    return [0, *cuts, len(chain)]


def _check(am: Any) -> None:
    """TypeError or ValueError for a trainer whose blocks cannot be on several ranks."""
    if not isinstance(am, AltMin):
        raise TypeError(f"LayerParallel takes an altmin.AltMin(...), given a {type(am).__name__}")
    if not hasattr(am.codes, "move"):
        raise TypeError(f"LayerParallel needs a code solver that moves one code at a time, {am.codes!r} does not")
    rule: Any = getattr(am.weights, "rest", am.weights)
    for name, wanted in (("steps", 1), ("clip_norm", None)):
        if getattr(rule, name, wanted) != wanted:
            raise ValueError(
                f"{name}={getattr(rule, name)} of {type(rule).__name__} needs all blocks at once, and ranks have some; "
                f"give {name}={wanted}, or use altmin.Distributed"
            )


def _draws(model: nn.Module) -> bool:
    return any(isinstance(m, nn.modules.dropout._DropoutNd) and m.training and m.p > 0 for m in model.modules())


def _tensors(chain: Chain, l: int) -> list[Tensor]:
    """Parameters and buffers of a block, each once."""
    held = [t for m in chain.blocks[l].maps for t in (*m.module.parameters(), *m.module.buffers())]
    return list({id(t): t.detach() for t in held}.values())


def _forget(rule: Any) -> None:
    """Nothing is gathered any more."""
    for part in (rule, getattr(rule, "rest", rule)):
        part.gathered = {}
        part.prepared = type(part.prepared)()


def _united(states: Sequence[Any]) -> Any:
    """States of which each has some entries of the same dicts, as one."""
    first = states[0]
    if not isinstance(first, Mapping):
        return first
    keys = dict.fromkeys(key for state in states for key in state)
    return {key: _united([state[key] for state in states if key in state]) for key in keys}
