"""Messages between neighbours: what arrives is what was sent, in any order of arrival, and bytes are counted."""

from typing import Any

import ranks
import torch

from altmin.core.codes.links import Upstream
from altmin.runners.neighbours import Neighbours
from altmin.runners.ranks import RankFailed, Ranks

F64 = torch.float64


def code(i: int, rows: int) -> torch.Tensor:
    return torch.arange(rows * 6, dtype=F64).reshape(rows, 2, 3) + 100 * i


def passed(rank: int, offset: bool) -> Any:
    """Two batches of three parts up, and what is wanted of them down. offset: whether their codes have stopped at
    kinks."""
    counts, found = [2, 3, 1], []
    ends = Neighbours(Ranks(), None if rank == 0 else 0, None if rank else 1)
    for batch in range(2):
        if rank == 0:
            for i, n in enumerate(counts):
                c = code(i + batch, 2 * n)  # two rows for each sample
                ends.expect_upstream("kind", i, c)
                ends.send_code("kind", i, c, n)
            for i in (0, 1, 2):
                found.append(tuple(ends.upstream("kind", i)))
        else:
            ends.expect_codes("kind", counts, torch.empty(0, dtype=F64))
            codes = [ends.code(i) for i in range(3)]
            found += codes
            for i in (0, 1, 2):
                delta, numbers = 2 * codes[i], torch.tensor([0.5, 0.75, 3.0 + i], dtype=F64)
                ends.send_upstream(i, Upstream(delta, *numbers[:2], -codes[i] if offset else delta, numbers[2]))
        ends.finish()
    return found, ends.sent, ends.messages


def test_codes_and_gradients_at_them_arrive_as_they_were_sent() -> None:
    for offset in (False, True):
        (gradients, up, up_messages), (codes, down, down_messages) = ranks.run(2, passed, offset)
        for batch in range(2):
            for i, n in enumerate([2, 3, 1]):
                c = code(i + batch, 2 * n)
                torch.testing.assert_close(codes[3 * batch + i], c, rtol=0, atol=0)
                delta, scale, longest, moved, square = gradients[3 * batch + i]
                torch.testing.assert_close(delta, 2 * c, rtol=0, atol=0)
                assert (scale, longest, square) == (0.5, 0.75, 3.0 + i)
                torch.testing.assert_close(moved, -c if offset else delta, rtol=0, atol=0)
        numbers = 2 * 2 * (2 + 3 + 1) * 6
        assert up == 8 * (numbers + 12), "codes, and their shape once"
        assert down == 8 * (numbers * (1 + offset) + 2 * 3 * 4), "deltas, offsets, and four numbers for each part"
        assert (up_messages, down_messages) == (7, 12 + 6 * offset)


def lost(rank: int) -> str:
    if rank == 1:
        import os

        os._exit(1)
    ends = Neighbours(Ranks(), None, 1)
    ends.expect_upstream("kind", 0, code(0, 2))
    try:
        ends.upstream("kind", 0)
    except RankFailed as error:
        return str(error)
    return "none"


def test_a_neighbour_that_is_gone_is_noticed() -> None:
    assert "rank 0 has lost the others" in ranks.run(2, lost)[0]


def sending(rank: int) -> str:
    """What a rank meets that goes on to send to one that is gone."""
    ends = Neighbours(Ranks(), None if rank == 0 else 0, None if rank else 1)
    if rank == 0:
        ends.expect_codes("kind", [], torch.empty(0))  # the connection is there
        try:
            for i in range(1000):
                ends.send_code("kind", i, torch.zeros(1 << 16), 1)
                ends.finish()
        except RankFailed as error:
            return str(error)
    return "none"


def test_sending_to_a_neighbour_that_is_gone_is_noticed() -> None:
    told, _ = ranks.run(2, sending)
    assert told.startswith("rank 0 has lost the others: ")
