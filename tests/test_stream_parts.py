"""What the estimators of streams are made of: rows of features, running statistics, networks that grow, settings."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import altmin
from altmin import methods, models
from altmin.stream import growth, settings
from altmin.stream.features import (
    FARTHEST,
    Category,
    Features,
    RunningStatistics,
    as_numbers,
    demand_sample,
    table_of,
)
from altmin.stream.settings import DEFAULTS

pytest.importorskip("river")


def known(*names: object, absent: str = "mean") -> Features:
    features = Features(absent)
    features.add(names)
    return features


def test_values_go_to_the_columns_of_their_names_and_unknown_ones_nowhere() -> None:
    row = known("b", "a", 3).row({"a": 1, 3: True, "z": 9.0})
    np.testing.assert_array_equal(row, [np.nan, 1.0, 1.0])


def test_none_and_nan_are_absent_and_absent_counts_as_zero_where_it_is_said_so() -> None:
    x = {"a": None, "b": float("nan"), "c": 2}
    np.testing.assert_array_equal(known("a", "b", "c", "d").row(x), [np.nan, np.nan, 2.0, np.nan])
    np.testing.assert_array_equal(known("a", "b", "c", "d", absent="zero").row(x), [0.0, 0.0, 2.0, 0.0])


def test_new_features_have_an_order_that_does_not_depend_on_the_samples() -> None:
    features = known("b")
    assert features.new(["c", "b", 1, "a"]) == features.new({"a", "c", 1}) == [1, "a", "c"]
    np.testing.assert_array_equal(features.row({"c": 3.0, "b": 2.0, "a": 1.0}, ["a", "c"]), [2.0, 1.0, 3.0])


def test_rows_of_a_table_are_the_rows_of_its_samples() -> None:
    features, columns = known("a", "b"), ["c", "b", "z"]
    table = np.array([[1.0, np.nan, 5.0], [2.0, 3.0, 6.0]])
    rows = features.rows(columns, table, ["c"])
    for row, values in zip(rows, table, strict=True):
        np.testing.assert_array_equal(row, features.row(dict(zip(columns, values, strict=True)), ["c"]))


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(ValueError, match="feature 'colour' is 'red', a number or a text is expected"):
        known("colour").row({"colour": "red"})
    with pytest.raises(ValueError, match=r"feature 'v' is \[1\.0\], a number or a text is expected"):
        known("v").row({"v": [1.0]})
    with pytest.raises(ValueError, match="feature 'b' is infinite"):
        known("a", "b").row({"a": 0.0, "b": -np.inf})
    with pytest.raises(TypeError, match="a sample is a dict of features"):
        demand_sample([1.0])
    with pytest.raises(ValueError, match="absent is 'mean' or 'zero', given 'median'"):
        Features("median")


def test_a_text_is_a_feature_of_its_own_that_is_zero_elsewhere() -> None:
    for red in ("red", np.str_("red")):
        assert as_numbers({"age": 3, "colour": red}) == {"age": 3, "colour=red": 1.0}
    features = known("age")
    new = features.new(as_numbers({"age": 3, "colour": "red"}))
    features.add(new)
    assert features.categories == [1]
    np.testing.assert_array_equal(features.row(as_numbers({"colour": "blue"})), [np.nan, 0.0])
    features.remove(1)
    assert (features.names, features.known, features.categories) == (["age"], {"age"}, [])


def test_texts_of_a_table_are_those_of_its_rows() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "colour": ["red", None, "blue"], "mixed": ["x", 5, None]})
    columns, values = table_of(table)
    assert columns == ["size", "mixed", "colour=red", "colour=blue", "mixed=x"]
    assert [name for name in columns if isinstance(name, Category)] == columns[2:]
    np.testing.assert_array_equal(values[:, 2:], [[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(values[:, :2], [[1, np.nan], [2, 5], [3, np.nan]])


def test_a_table_without_numbers_is_refused_with_the_name_of_its_column() -> None:
    pd = pytest.importorskip("pandas")
    columns, values = table_of(pd.DataFrame({"a": [1, 2], "b": [True, False]}))
    assert columns == ["a", "b"]
    assert values.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    with pytest.raises(ValueError, match=r"feature 'b' is \{\}, a number or a text is expected"):
        table_of(pd.DataFrame({"a": [1.0], "b": [{}]}))
    with pytest.raises(TypeError, match="a pandas DataFrame"):
        table_of([[1.0]])


NAMES = sorted(set(DEFAULTS) - {settings.GAUSS_NEWTON})

OLD, NEW = 3, 2


def trained(name: str, steps: int = 5, hidden: tuple[int, ...] = (6, 5)) -> Any:
    torch.manual_seed(0)
    method = methods.create(name, models.mlp(OLD, hidden, 3).double(), **DEFAULTS[name])
    for x, y in samples(steps, OLD):
        method.step(x, y)
    return method


def samples(steps: int, inputs: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(inputs)
    x = torch.randn(steps, 1, inputs, generator=random, dtype=torch.float64)
    return [(x[i], torch.tensor([i % 3])) for i in range(steps)]


def new_weights() -> Tensor:
    return torch.linspace(-1, 1, 6 * NEW, dtype=torch.float64).reshape(6, NEW)


def padded(x: Tensor) -> Tensor:
    return nn.functional.pad(x, (0, NEW))


@pytest.mark.parametrize("name", NAMES)
def test_learning_goes_on_as_in_a_network_that_had_the_inputs_from_the_start(name: str) -> None:
    torch.manual_seed(0)
    model = models.mlp(OLD, (6, 5), 3).double()
    whole = models.mlp(OLD + NEW, (6, 5), 3).double()
    whole.load_state_dict({**model.state_dict(), "1.weight": torch.cat([model[1].weight, new_weights()], 1)})
    # the damping of a memory is in units of the mean over all inputs, to which inputs of zero belong
    options = {**DEFAULTS[name], **({"damping": 0.0} if name == "am-mem-fitted" else {})}
    late, early = (methods.create(name, net, **options) for net in (model, whole))
    for x, y in samples(6, OLD):
        late.step(x, y)
        early.step(padded(x), y)
    growth.add_inputs(late, new_weights())
    for x, y in samples(6, OLD + NEW):
        torch.testing.assert_close(late.step(x, y).loss, early.step(x, y).loss, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close([*late.model.parameters()], [*early.model.parameters()], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("hidden", [(6, 5), ()])
def test_new_outputs_leave_the_others_as_they_were_and_can_be_learnt(name: str, hidden: tuple[int, ...]) -> None:
    method, x = trained(name, hidden=hidden), torch.randn(7, OLD, dtype=torch.float64)
    with torch.no_grad():
        before = method.model(x)
    growth.add_outputs(method, 2)
    with torch.no_grad():
        after = method.model(x)
    torch.testing.assert_close(after[:, :3], before, rtol=1e-13, atol=1e-13)
    assert not after[:, 3:].any()
    for _ in range(100):
        method.step(x[:1], torch.tensor([4]))
    assert method.model(x[:1]).argmax() == 4


def test_moments_of_old_outputs_stay() -> None:
    method = trained("adam")
    bias = method.model[-1].bias
    before = method.optimizer.state[bias]["exp_avg"].clone()
    growth.add_outputs(method, 2)
    assert method.optimizer.state[bias]["exp_avg"].tolist() == [*before.tolist(), 0.0, 0.0]


def built(name: str, lr: float | None = 0.07, options: Any = None, seed: int = 0, classes: bool = True) -> Any:
    return settings.build(name, (4, (5, 3), 2 if classes else 1), classes, lr, options, seed, 1)


@pytest.mark.parametrize("name", sorted(settings.DEFAULTS))
def test_a_network_has_the_widths_and_the_seed_that_were_given(name: str) -> None:
    before = torch.random.get_rng_state()
    first, second, other = (built(name, seed=seed).module for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)  # the user's random numbers stay
    assert [tuple(p.shape) for p in first.parameters()] == [(5, 4), (5,), (3, 5), (3,), (2, 3), (2,)]
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert {p.dtype for p in first.parameters()} == {torch.float64}


def test_what_is_given_replaces_the_default() -> None:
    made = built("am-mem-fitted", options={"rate": 12.0}).method
    assert (made.weights.rate, made.weights.forget) == (12.0, settings.DEFAULTS["am-mem-fitted"]["forget"])
    assert made.optimizer.param_groups[0]["lr"] == 0.07


def test_options_are_not_used_up() -> None:
    options = {"penalty": altmin.Penalty(3.0)}
    for _ in range(2):
        assert built("am-adam", None, options).method.penalty.start == 3.0
    assert not options["penalty"].claimed


def test_unknown_methods_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown method for a stream 'am-adm'; did you mean 'am-adam'\?"):
        settings.check("am-adm", None, None)
    with pytest.raises(ValueError, match=r"unknown option of method 'am-mem-fitted', 'rates'; did you mean 'rate'\?"):
        settings.check("am-mem-fitted", None, {"rates": 1.0})
    with pytest.raises(ValueError, match="unknown option of method 'adam', 'lr'"):
        settings.check("adam", None, {"lr": 1.0})  # it has a parameter of its own
    with pytest.raises(ValueError, match="lr of method 'adam' must be a finite number of at least 0, given -1"):
        settings.check("adam", -1.0, None)
    with pytest.raises(TypeError, match="options are a dict"):
        settings.check("adam", None, "fused")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'gauss-newton' has no learning rate; leave lr out"):
        settings.check("gauss-newton", 0.1, None)
    with pytest.raises(ValueError, match="start"):
        settings.check("gauss-newton", None, {"start": 0})


def test_the_squared_error_has_a_rate_of_its_own() -> None:
    for classes, rate in ((True, 20.0), (False, settings.REGRESSION["am-mem-fitted"]["rate"])):
        assert built("am-mem-fitted", None, classes=classes).method.weights.rate == rate


def table(seed: int, samples: int, features: int, absent: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    x = random.normal(3.0, 2.0, (samples, features)) * 10.0 ** random.integers(-3, 4, features)
    return np.where(random.random(x.shape) < absent, np.nan, x)


def after(x: np.ndarray, forget: float = 1.0) -> RunningStatistics:
    statistics = RunningStatistics(x.shape[1], forget)
    for row in x:
        statistics.update(row)
    return statistics


@given(st.integers(0, 1000), st.integers(1, 30), st.sampled_from([0.0, 0.4]), st.sampled_from([1.0, 0.9, 0.3]))
def test_mean_and_variance_are_those_of_the_weighted_samples_that_have_the_feature(
    seed: int, samples: int, absent: float, forget: float
) -> None:
    x = table(seed, samples, 4, absent)
    statistics = after(x, forget)
    for j, column in enumerate(x.T):
        here = column[~np.isnan(column)]
        if len(here):
            weights = forget ** np.arange(len(here))[::-1]
            mean = np.average(here, weights=weights)
            variance = np.average((here - mean) ** 2, weights=weights)
            np.testing.assert_allclose(statistics.mean[j], mean, rtol=1e-10)
            np.testing.assert_allclose(statistics.variance[j], variance, rtol=1e-8, atol=1e-20 * mean**2)
            np.testing.assert_allclose(statistics.weight[j], weights.sum())
        else:
            assert statistics.weight[j] == statistics.variance[j] == 0


def test_a_small_variance_beside_a_large_mean_is_not_lost() -> None:
    x = 1e9 + np.random.default_rng(0).normal(size=(500, 1))
    np.testing.assert_allclose(after(x).variance, x.var(0), rtol=1e-6)


def test_what_is_absent_or_has_not_varied_is_zero_and_outliers_are_bounded() -> None:
    x = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, np.nan], [2.0, 5.0, np.nan]])
    statistics = after(x)
    assert statistics.standardise(np.array([np.nan, 7.0, 4.0])).tolist() == [0.0, 0.0, 0.0]
    assert statistics.standardise(np.array([1e6, 5.0, 0.0]))[0] == FARTHEST
    assert statistics.standardise(np.array([-1e6, 5.0, 0.0]))[0] == -FARTHEST


@pytest.mark.parametrize("forget", [1.0, 0.8])
def test_a_feature_that_counts_as_seen_has_the_statistics_of_one_that_was_always_zero(forget: float) -> None:
    x = table(1, 12, 3, 0.0)
    x[:7, 2] = 0.0
    late = after(x[:7, :2], forget)
    late.grow(1, seen=True)
    for row in x[7:]:
        late.update(row)
    early = after(x, forget)
    for name in ("weight", "mean", "scatter"):
        np.testing.assert_allclose(getattr(late, name), getattr(early, name), rtol=1e-12)


def test_a_feature_that_is_new_has_statistics_of_its_own_samples_alone() -> None:
    x = table(2, 12, 2, 0.0)
    late = after(x[:7, :1])
    late.grow(1)
    for row in x[7:]:
        late.update(row)
    np.testing.assert_allclose(late.mean, [x[:, 0].mean(), x[7:, 1].mean()])
    np.testing.assert_allclose(late.variance, [x[:, 0].var(), x[7:, 1].var()])


@pytest.mark.parametrize("forget", [0.0, 1.5, float("nan")])
def test_a_factor_that_is_none_is_refused(forget: float) -> None:
    with pytest.raises(ValueError, match="forget"):
        RunningStatistics(1, forget)
