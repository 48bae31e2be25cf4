"""Advice in plain sentences, each from numbers of one step: what stands out, and what to do about it."""

import math
from collections.abc import Callable, Iterator, Sequence

from altmin.explaining.rows import Facts, Row

COSINE = 0.9
"""Below, a block's gradient points elsewhere than backprop's by more than 26 degrees."""
DEAD = 0.5
VANISHED = 1e-3
"""Of a block's gradient for each of its weights, over that of the block where it is largest."""
FAST, SLOW = 0.1, 1e-7
"""Of |dW| / |W| in one step."""
DEAR = 0.5
"""Of a step's time, in one block out of three or more."""

MEMORY = "raise the damping of its memory, or lower the rate of the output block"
REMEDIES = {
    "am-mem-fitted": MEMORY,
    "AltMin with FittedMemory": MEMORY,
    "am-mem-printed": "nothing bounds the steps of this rule, use am-mem",
}
"""Of weights that move too far, for methods whose hidden weights have no learning rate."""

Rule = Callable[[Sequence[Row], Facts], Iterator[str]]


def advise(rows: Sequence[Row], facts: Facts) -> list[str]:
    """What every rule has to say, in their order; one sentence that says so if none has anything."""
    found = [sentence for rule in RULES for sentence in rule(rows, facts)]
    return found or ["Nothing stands out: every block learns, along gradients near backprop's."]


def few_blocks(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    if len(rows) == 1:
        yield "The network is one block, so it has no codes, and this step is backprop; cut it with at=, or use adam."


def frozen(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    if found := [row for row in rows if row.frozen]:
        yield f"{_blocks(found)} frozen: no parameter requires a gradient, so the weights stay as they are."


def dead(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    for row in rows:
        if row.dead == 1:
            yield (
                f"All units of block {row.block} ({row.modules}) are dead: the ReLU above holds them at 0 for every "
                "sample, so this block and those below learn nothing; lower the learning rate, initialise it again, or "
                "use nn.LeakyReLU."
            )
        elif row.dead is not None and row.dead > DEAD:
            yield (
                f"{row.dead:.0%} of the units of block {row.block} ({row.modules}) are dead: the ReLU above holds them "
                "at 0 for every sample; a lower learning rate, batch norm or nn.LeakyReLU keeps more of them alive."
            )


def low_cosine(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    found = [row for row in rows if row.cosine is not None and row.cosine < COSINE]
    if not found:
        return
    least = min(found, key=lambda row: row.cosine or 0.0)
    if facts.estimated:
        yield (
            f"The gradient of {len(found)} of {len(rows)} blocks is far from the straight-through estimate (cosine "
            f"{least.cosine:.2f} in block {least.block}), as the search for discrete codes does not follow it."
        )
        return
    if facts.truncated:
        yield (
            f"The gradient of {len(found)} of {len(rows)} blocks is far from backprop's through time (cosine "
            f'{least.cosine:.2f} in block {least.block}), as a parallel sweep looks back one step; codes="exact" '
            'or RecurrentCodes("parallel", rounds=10) look back further.'
        )
        return
    wishes = [f"a lower share than {facts.share:g}"] if facts.share else []
    wishes += [f"a shorter step of the codes than {facts.step:g}"] if facts.step else []
    wishes += ['order="weights-first"'] if facts.order == "codes-first" else []
    yield (
        f"The gradient of {len(found)} of {len(rows)} blocks has a cosine to backprop's below {COSINE} (least "
        f"{least.cosine:.2f}, in block {least.block}), since codes moved far; try "
        f"{' or '.join([*wishes, 'a larger penalty'])}."
    )


def vanished(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    sizes = {row.block: row.backprop / math.sqrt(row.parameters) for row in rows if not row.frozen}
    live = {block: size for block, size in sizes.items() if size > 0}
    small = [block for block, size in live.items() if size < VANISHED * max(live.values())]
    if small:
        weakest = min(small, key=lambda block: live[block])
        yield (
            f"Gradients vanish with depth: those of block {weakest} are {max(live.values()) / live[weakest]:.0e} times "
            "smaller than the largest, in backprop too; normalisation, residual blocks or a better initialisation help."
        )


def through_autograd(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    for row in rows:
        if row.avoidable:
            yield (
                f"Block {row.block} goes through autograd for the sake of {', '.join(row.avoidable)}; without it there "
                "is a closed form, which is faster."
            )
    if found := [row for row in rows if len(row.through_autograd) > len(row.avoidable)]:
        modules = ", ".join(dict.fromkeys(name for row in found for name in row.through_autograd))
        yield (
            f"{_blocks(found)} differentiated by autograd, by graphs that end with the block, since there is no closed "
            f"form for {modules} as used here; that is exact but slower."
        )


def dear_block(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    total = sum(sum(row.time) for row in rows) + facts.update
    dearest = max(rows, key=lambda row: sum(row.time))
    part = sum(dearest.time) / total if total else 0.0
    if len(rows) > 2 and part > DEAR:
        yield f"Block {dearest.block} ({dearest.modules}) takes {part:.0%} of a step's time."


def standardise(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    mean, std = facts.input_mean, facts.input_std
    if mean is not None and std is not None and (abs(mean) > 2 or not 0.05 < std < 10):
        yield f"The inputs have mean {mean:.3g} and standard deviation {std:.3g}; standardise them to about 0 and 1."
    elif facts.widest is not None and facts.widest > 100:
        yield f"One feature varies {facts.widest:.0f} times as much as most others; standardise each feature by itself."
    if facts.target_std is not None and facts.target_std > 30:
        yield f"The targets have standard deviation {facts.target_std:.3g}; divide them by it, and outputs back."


def first_loss(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    if facts.classes and facts.classes > 1 and facts.loss > 3 * math.log(facts.classes):
        yield (
            f"The loss {facts.loss:.3g} is far above log({facts.classes}) = {math.log(facts.classes):.2f}, that of a "
            "guess: outputs are too large for a start; scale the inputs or the last layer down."
        )


def rate(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    trained = [row for row in rows if not row.frozen and row.gradient > 0]
    if fast := [row for row in trained if row.change > FAST]:
        most = max(fast, key=lambda row: row.change)
        remedy = REMEDIES.get(facts.method, "lower the learning rate")
        yield f"One step changes the weights of block {most.block} by {most.change:.0%}; {remedy}."
    if trained and all(row.change < SLOW for row in trained):
        yield "One step hardly changes any weight; raise the learning rate."


def still(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    if facts.share == 0 and len(rows) > 1:
        yield "With share=0 codes stay where they are and the gradients are backprop's; a share above 0 moves them."


def imperceptible(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    found = [row for row in rows if row.movement is not None and row.movement < facts.rounding and row.backprop > 0]
    if found and facts.share != 0:
        yield (
            f"The codes of {len(found)} of {len(rows) - 1} hidden blocks move by no more than their own rounding, as "
            "each length multiplies those above; the gradient at these blocks is passed on in full all the same, so "
            "their weights learn."
        )


def modes(rows: Sequence[Row], facts: Facts) -> Iterator[str]:
    if facts.idle:
        yield f"The model is in eval mode, so {', '.join(facts.idle)} acts as in a test; call model.train() to train."
    if facts.smallest_group is not None and facts.smallest_group < 8:
        yield (
            f"Batch norm takes means over {facts.smallest_group} values only; give larger batches, or nn.LayerNorm or "
            "nn.GroupNorm in its place."
        )


RULES: tuple[Rule, ...] = (
    few_blocks,
    frozen,
    dead,
    low_cosine,
    vanished,
    still,
    imperceptible,
    rate,
    standardise,
    first_loss,
    modes,
    through_autograd,
    dear_block,
)


def _blocks(rows: Sequence[Row]) -> str:
    """Whose number is to be told, with the verb.

    >>> _blocks([])
    'Blocks  are'
    """
    numbers = [str(row.block) for row in rows]
    return f"Block {numbers[0]} is" if len(numbers) == 1 else f"Blocks {', '.join(numbers)} are"
