"""Messages between neighbours: what arrives is what was sent, in any order of arrival, and bytes are counted."""

from functools import partial
from typing import Any

import ranks
import torch

from altmin.core.codes.above import Ask
from altmin.runners.neighbours import Neighbours
from altmin.runners.ranks import RankFailed, Ranks

F64 = torch.float64


def code(i: int, rows: int) -> torch.Tensor:
    return torch.arange(rows * 6, dtype=F64).reshape(rows, 2, 3) + 100 * i


def passed(rank: int, offset: bool) -> Any:
    """Two batches of three parts up, and what is asked of them down, the last part first."""
    counts, found = [2, 3, 1], []
    ends = Neighbours(Ranks(), None if rank == 0 else 0, None if rank else 1)
    for batch in range(2):
        if rank == 0:
            for i, n in enumerate(counts):
                c = code(i + batch, 2 * n)  # two rows for each sample
                ends.expect_ask("kind", i, c)
                ends.send_code("kind", i, c, n)
            for i in (0, 1, 2):
                ask = ends.ask("kind", i)
                found.append((ask.delta, ask.square, ask.scale, ask.longest, ask.offset, ask.offset_square))
        else:
            ends.expect_codes("kind", counts, torch.empty(0, dtype=F64))
            codes = [ends.code(i) for i in range(3)]
            found += codes
            for i in (0, 1, 2):
                moved = partial(torch.neg, codes[i]) if offset else None
                ends.send_ask(i, Ask(2 * codes[i], 3.0 + i, 0.5, 0.75, moved, 7.0 if offset else None))
        ends.finish()
    return found, ends.sent, ends.messages


def test_codes_and_asks_arrive_as_they_were_sent() -> None:
    for offset in (False, True):
        (asks, up, up_messages), (codes, down, down_messages) = ranks.run(2, passed, offset)
        for batch in range(2):
            for i, n in enumerate([2, 3, 1]):
                c = code(i + batch, 2 * n)
                torch.testing.assert_close(codes[3 * batch + i], c, rtol=0, atol=0)
                delta, square, scale, longest, moved, moved_square = asks[3 * batch + i]
                torch.testing.assert_close(delta, 2 * c, rtol=0, atol=0)
                assert (square, scale, longest) == (3.0 + i, 0.5, 0.75)
                assert (moved is None) != offset
                assert moved_square == (7.0 if offset else square)
                if offset:
                    torch.testing.assert_close(moved, -c, rtol=0, atol=0)
        numbers = 2 * 2 * (2 + 3 + 1) * 6
        assert up == 8 * (numbers + 12), "codes, and their shape once"
        assert down == 8 * (numbers * (1 + offset) + 2 * 3 * 5), "deltas, offsets, and five numbers for each part"
        assert (up_messages, down_messages) == (7, 12 + 6 * offset)


def lost(rank: int) -> str:
    if rank == 1:
        import os

        os._exit(1)
    ends = Neighbours(Ranks(), None, 1)
    ends.expect_ask("kind", 0, code(0, 2))
    try:
        ends.ask("kind", 0)
    except RankFailed as error:
        return str(error)
    return "none"


def test_a_neighbour_that_is_gone_is_noticed() -> None:
    assert "rank 0 has lost the others" in ranks.run(2, lost)[0]
