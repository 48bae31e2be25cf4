"""Deprecations warn in one sentence, one minor version ahead, and none outlives the version it names."""

import contextlib
import importlib
import pkgutil
import warnings

import pytest

import altmin
from altmin import deprecation
from altmin.deprecation import Deprecation, announce, deprecated, release


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test announces goes with it."""
    monkeypatch.setattr(deprecation, "ANNOUNCED", list(deprecation.ANNOUNCED))


def test_no_deprecation_outlives_the_version_that_was_to_remove_it() -> None:
    for module in pkgutil.walk_packages(altmin.__path__, "altmin."):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of a library that an integration needs
                importlib.import_module(module.name)
    overdue = [
        each.message for each in deprecation.ANNOUNCED if release(altmin.__version__) >= release(each.removed_in)
    ]
    assert not overdue


def test_an_overdue_deprecation_would_be_noticed() -> None:
    major, minor, _ = release(altmin.__version__)
    announce("an old name", since=f"{major}.{minor - 1}.0", removed_in=f"{major}.{minor}.0", use="a new one")
    with pytest.raises(AssertionError, match="an old name"):
        test_no_deprecation_outlives_the_version_that_was_to_remove_it()


def test_a_function_works_as_before_and_warns_at_the_line_that_calls_it() -> None:
    @deprecated(since="0.3.0", removed_in="0.4.0", use="altmin.double")
    def twice(x: int, times: int = 2) -> int:
        """Times two."""
        return times * x

    with pytest.warns(DeprecationWarning, match="twice") as caught:
        assert twice(4) == 8
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message).endswith(
        "twice is deprecated since altmin 0.3.0 and will be removed in 0.4.0; use altmin.double."
    )
    assert (twice.__name__, twice.__doc__) == ("twice", "Times two.")


def test_a_class_stays_a_class_and_warns_when_it_is_made() -> None:
    @deprecated(since="0.3.0", removed_in="0.5.0", use="Point")
    class Pair:
        def __init__(self, x: int, y: int):
            self.x, self.y = x, y

    with pytest.warns(DeprecationWarning, match=r"Pair is deprecated .* use Point\.") as caught:
        pair = Pair(1, y=2)
    assert (pair.x, pair.y, isinstance(pair, Pair)) == (1, 2, True)
    assert caught[0].filename == __file__


def test_an_argument_warns_only_where_it_is_met() -> None:
    old = announce("f(metric=)", since="0.3.0", removed_in="0.4.0", use="f(metrics=)")

    def f(metric: str | None = None) -> None:
        if metric is not None:
            old.warn()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f()
    with pytest.warns(DeprecationWarning, match=r"f\(metric=\) is deprecated") as caught:
        f("accuracy")
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("since", "removed_in"), [("0.3.0", "0.4.0"), ("0.3.2", "0.5.0"), ("0.9.0", "1.0.0"), ("1.2.0", "2.0.0")]
)
def test_a_later_minor_version_may_remove_it_and_from_one_on_a_later_major(since: str, removed_in: str) -> None:
    assert Deprecation("f", since, removed_in, "g").removed_in == removed_in


@pytest.mark.parametrize(
    ("since", "removed_in"),
    [
        *(("0.3.0", "0.3.0"), ("0.3.0", "0.3.1"), ("0.3.0", "0.2.0"), ("0.3.0", "0.4.1"), ("1.2.0", "1.3.0")),
        *(("1.2.0", "2.1.0"), ("1.2.0", "0.4.0"), ("0.3", "0.4.0"), ("0.3.0", "soon")),
    ],
)
def test_any_other_version_to_remove_it_in_is_an_error(since: str, removed_in: str) -> None:
    with pytest.raises(ValueError, match=r"later (major|minor) version|three numbers"):
        Deprecation("f", since, removed_in, "g")
