"""An object changes as a whole or not at all."""

import pytest

from altmin.common.swap import changed


class Basket:
    def __init__(self) -> None:
        self.apples, self.pears = [1], [2]


def test_what_is_done_to_the_copy_is_the_objects_own_at_the_end_and_not_before() -> None:
    basket = Basket()
    with changed(basket, "apples") as new:
        new.apples.append(3)
        new.pears = []
        new.plums = 4  # type: ignore[attr-defined]
        assert vars(basket) == {"apples": [1], "pears": [2]}
    assert vars(basket) == {"apples": [1, 3], "pears": [], "plums": 4}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_the_object_has_the_same_attributes(error: type[BaseException]) -> None:
    basket = Basket()
    apples, pears = basket.apples, basket.pears

    def fail() -> None:
        with changed(basket, "apples", "none of that name") as new:
            new.apples.append(3)
            new.pears = []
            raise error

    with pytest.raises(error):
        fail()
    assert vars(basket) == {"apples": [1], "pears": [2]}
    assert basket.apples is apples
    assert basket.pears is pears


def test_objects_that_two_attributes_share_are_shared_by_their_copies() -> None:
    basket = Basket()
    basket.pears = basket.apples
    with changed(basket, "apples", "pears"):
        pass
    assert basket.pears is basket.apples
