"""A net grows by a factor in what its name or its batch says, and in nothing else."""

import pytest

from altmin.paper.bench.cases import Net, grown

NET = Net("mlp-2x100:50", "mlp-2x100", "mnist", 50)


@pytest.mark.parametrize(
    "what, expected",
    [
        ("depth", NET._replace(model="mlp-6x100", size=6)),
        ("width", NET._replace(model="mlp-2x300", size=300)),
        ("batch", NET._replace(batch_size=150, size=150)),
    ],
)
def test_one_thing_becomes_three_times_as_large(what: str, expected: Net) -> None:
    assert grown(NET, what, 3) == expected


def test_an_elman_net_grows_in_width_but_has_no_depth() -> None:
    net = Net("elman-15", "elman-15", "mnist-sequential", 200)
    assert grown(net, "width", 4).model == "elman-60"
    with pytest.raises(ValueError, match="needs a --model whose name tells its depth, such as mlp-2x100, not elman-15"):
        grown(net, "depth", 4)


def test_what_cannot_grow_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"'height'\. The choices are: batch, depth, members, width"):
        grown(NET, "height", 2)
