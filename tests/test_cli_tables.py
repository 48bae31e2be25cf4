"""A table on the command line: train, keep the model, predict with it and measure it; models of data sets too."""

import copy
import csv
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import read, said

from altmin.training import checkpoint

pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")

NETS = """
from torch import nn

def build(sample_shape, classes):
    return nn.Sequential(nn.Linear(sample_shape[0], 8), nn.Tanh(), nn.Linear(8, classes))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with flats.csv: the price depends on the size, the district and whether the age is known."""
    random = np.random.default_rng(0)
    size, district = random.uniform(20, 120, 300), random.choice(["north", "south", "old, town"], 300)
    known = random.random(300) < 0.7
    price = 3000.0 * size + np.where(district == "south", 1e5, 0) + np.where(known, 0, 2e5)
    with (tmp_path / "flats.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["size", "district", "age", "price", "dear", "floor"])
        for n in range(300):
            age = f"{random.uniform(0, 90):.1f}" if known[n] else ""
            row = [f"{size[n]:.2f}", "" if n % 50 == 0 else district[n], age, f"{price[n]:.2f}"]
            writer.writerow([*row, "yes" if price[n] > 3e5 else "no", "" if n == 7 else int(size[n] > 70) + 9])
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ["train", "--data", "flats.csv", "--model", "mlp-1x32", "--lr", "0.01", "--threads", "1"]
CLASSES = [*TRAIN, "--target", "dear", "--drop", "price,floor", "--save-model", "dear.altmin"]
PRICES = [*TRAIN, "--target", "price", "--drop", "dear,floor", "--save-model", "price.altmin"]


def ran(*arguments: str) -> str:
    code, out, error = said(*arguments)
    assert (code, error) == (0, "")
    return out


def column(text: str, name: str = "prediction") -> list[str]:
    return [row[name] for row in csv.DictReader(io.StringIO(text))]


def test_classes_are_learnt_from_categories_and_missing_values_and_predicted_from_the_file() -> None:
    from altmin import models
    from altmin.sklearn import AltMinClassifier
    from altmin.sklearn.tables import read_table

    ran(*CLASSES, "--epochs", "40", "--json", "run.json")
    result = read("run.json")
    assert result["table"] == {"target": "dear", "classes": ["no", "yes"], "rows": {"train": 240, "test": 60}}
    assert result["epochs"][-1]["test_accuracy"] > 0.9
    shown = ran("predict", "dear.altmin", "--data", "flats.csv", "--probabilities")
    found = np.array([[float(p) for p in column(shown, f"probability_{name}")] for name in ("no", "yes")]).T
    assert column(shown) == [("no", "yes")[n] for n in found.argmax(1)]
    assert np.mean(np.array(column(shown)) == column(Path("flats.csv").read_text(), "dear")) > 0.9

    from sklearn.model_selection import train_test_split  # the same by hand

    table = read_table("flats.csv").drop(columns=["price", "floor"])
    rows, _ = train_test_split(np.arange(300), test_size=0.2, random_state=0, stratify=table["dear"])
    classifier = AltMinClassifier(
        network=lambda i, o: models.create("mlp-1x32", (i,), o), lr=0.01, epochs=40, categorical="auto", random_state=0
    ).fit(table.iloc[rows].drop(columns="dear"), table["dear"].iloc[rows])
    np.testing.assert_allclose(found, classifier.predict_proba(table.drop(columns="dear")), atol=1e-5)

    ran("evaluate", "dear.altmin", "--data", "flats.csv", "--json", "all.json")
    given = [row[int(truth == "yes")] for row, truth in zip(found, table["dear"], strict=True)]
    assert read("all.json")["log_loss"] == pytest.approx(-np.log(given).mean())
    assert read("all.json")["accuracy"] == pytest.approx(np.mean([p > 0.5 for p in given]))


def test_numbers_are_learnt_and_given_in_their_own_unit() -> None:
    ran(*PRICES, "--epochs", "60", "--json", "run.json")
    assert read("run.json")["epochs"][-1]["test_r2"] > 0.9
    prices = np.array([float(p) for p in column(Path("flats.csv").read_text(), "price")])
    ran("predict", "price.altmin", "--data", "flats.csv", "--out", "found.csv")
    errors = np.array([float(p) for p in column(Path("found.csv").read_text())]) - prices
    ran("evaluate", "price.altmin", "--data", "flats.csv", "--json", "all.json")
    assert read("all.json")["samples"] == 300
    assert read("all.json")["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert read("all.json")["r2"] == pytest.approx(1 - (errors**2).sum() / ((prices - prices.mean()) ** 2).sum())

    Path("new.csv").write_text("district,age,size\nwest,,50\n,,\nnorth,3,50\n")
    with pytest.warns(UserWarning, match="'west'"):
        shown = ran("predict", "price.altmin", "--data", "new.csv")
    west, nothing, north = map(float, column(shown))
    assert west > north + 1e5, "an unknown age costs 200,000 more"
    assert prices.min() < nothing < prices.max()


def test_whole_numbers_are_classes_by_their_names_and_rows_without_a_target_are_left_out() -> None:
    with pytest.warns(UserWarning, match="1 rows without"):
        ran(*TRAIN, "--target", "floor", "--drop", "price,dear", "--epochs", "20", "--save-model", "m")
    assert set(column(ran("predict", "m", "--data", "flats.csv"))) == {"9", "10"}
    with pytest.warns(UserWarning, match="1 rows without"):
        ran("evaluate", "m", "--data", "flats.csv", "--json", "found.json")
    assert (read("found.json")["samples"], read("found.json")["accuracy"] > 0.9) == (299, True)


def test_texts_stay_texts_in_files_whose_other_cells_look_like_something_else() -> None:
    """A column of codes and truth values in training, of which a new file has only those that look like numbers."""
    rows = [
        f"{code},{truth},{'x' if code == '7' or truth == 'TRUE' else 'y'}"
        for code in ("7", "a", "b") * 20
        for truth in ("TRUE", "no")
    ]
    Path("codes.csv").write_text("code,truth,target\n" + "\n".join(rows) + "\n")
    ran("train", "--data", "codes.csv", "--target", "target", "--lr", "0.01", "--save-model", "m")
    Path("new.csv").write_text("code,truth\n7,no\n7,no\n")
    assert column(ran("predict", "m", "--data", "new.csv")) == ["x", "x"]
    Path("new.csv").write_text("code,truth\na,TRUE\n,no\n")
    assert column(ran("predict", "m", "--data", "new.csv")) == ["x", "y"]


def test_a_model_of_a_data_set_is_kept_and_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = torch.randn(200, 1, 28, 28), torch.randint(10, (200,))
    monkeypatch.setattr("altmin.data.Dataset.load", lambda self, split, data_dir=None: samples)
    ran("train", "--model", "mlp-1x16", "--save-model", "m.altmin", "--json", "run.json")
    ran("evaluate", "m.altmin", "--json", "found.json")
    assert read("found.json")["accuracy"] == read("run.json")["epochs"][-1]["test_accuracy"]
    assert len(column(ran("predict", "m.altmin", "--data", "mnist", "--probabilities"), "probability_9")) == 200
    assert said("predict", "m.altmin", "--data", "higgs")[0] == 2


def test_a_model_of_ones_own_predicts_only_if_it_is_named_again() -> None:
    Path("own_nets.py").write_text(NETS)
    ran(*CLASSES, "--epochs", "2", "--model", "own_nets:build")
    code, _, error = said("predict", "dear.altmin", "--data", "flats.csv")
    assert (code, "own_nets:build" in error) == (2, True)
    assert len(column(ran("predict", "dear.altmin", "--data", "flats.csv", "--model", "own_nets:build"))) == 300
    assert said("evaluate", "dear.altmin", "--data", "flats.csv", "--model", "mlp-1x8")[0] == 2


def test_a_model_file_holds_plain_values_and_is_refused_if_it_is_damaged() -> None:
    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(map(plain, [*value, *value.values()]))
        return all(map(plain, value)) if isinstance(value, list | tuple) else type(value) in PLAIN

    PLAIN = (torch.Tensor, str, int, float, bool, type(None))
    ran(*CLASSES, "--epochs", "1")
    assert plain(checkpoint.load("dear.altmin"))
    content = Path("dear.altmin").read_bytes()
    Path("torn").write_bytes(content[: len(content) // 2])
    checkpoint.save("other", {"kind": "memory"})
    for name in ("torn", "other", "flats.csv", "none"):
        code, out, error = said("predict", name, "--data", "flats.csv")
        assert (code, out, name in error) == (2, "", True)


EDITS: list[tuple[str, Any]] = [
    *(("model", value) for value in (5, "mlp-1x33", "mlp-2x3000000", "mlp-100000000x1", "mlp-" + "9" * 5000 + "x1")),
    *(("sample_shape", value) for value in ([6], (0,), ("a",), (10**12,), (2.0,), (5,), ())),
    *(("outputs", value) for value in (10**12, 3, -1, "2")),
    *(("tokens", value) for value in (1, True)),
    *(("table", value) for value in (3, {}, None)),
    *(("weights", value) for value in (3, {}, {"0.weight": 1})),
    *(("table encode numbers", value) for value in ([99], [0.5], 3, [])),
    *(("table encode texts", value) for value in ([], [(1, 10**12, True)], 3)),
    *(("table encode mean", value) for value in (["x"], [1.0, 2.0, 3.0], [float("nan")])),
    *(("table categories", value) for value in (None, {}, {"size": 3})),
    *(("table classes", value) for value in (["no"], 5)),
    *(("table target", value) for value in (3, None)),
    *((key, ...) for key in ("kind", "model", "data", "sample_shape", "outputs", "tokens", "table", "weights")),
    *((f"table {key}", ...) for key in ("target", "categories", "encode", "classes", "encode mean", "encode marked")),
]


def edited(state: Any, keys: str, value: Any) -> Any:
    """A copy of a state with another value at these keys, or without them."""
    state = copy.deepcopy(state)
    *path, last = keys.split()
    inner = state
    for key in path:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return state


def test_a_model_file_with_another_header_is_refused_in_a_line() -> None:
    ran(*CLASSES, "--epochs", "1")
    whole = checkpoint.load("dear.altmin")
    for keys, value in EDITS:
        checkpoint.save("edited", edited(whole, keys, value))
        for command in ("predict", "evaluate"):
            code, out, error = said(command, "edited", "--data", "flats.csv")
            assert (code, out, error.count("\n"), len(error) < 500) == (2, "", 1, True), (keys, value)


def test_weights_that_are_not_finite_are_refused() -> None:
    ran(*CLASSES, "--epochs", "1")
    state = checkpoint.load("dear.altmin")
    name = next(iter(state["weights"]))
    state["weights"][name][0] = torch.nan
    checkpoint.save("nan", state)
    for command in ("predict", "evaluate"):
        code, out, error = said(command, "nan", "--data", "flats.csv")
        assert (code, out, f"{name} in nan" in error) == (2, "", True)


def test_outputs_beyond_float32_of_a_data_sets_model_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = torch.full((200, 1, 28, 28), 1e30), torch.randint(10, (200,))
    ran("train", "--model", "linear", "--save-model", "m.altmin", "--limit", "200")
    state = checkpoint.load("m.altmin")
    state["weights"]["1.weight"][:] = 1e20
    checkpoint.save("m.altmin", state)
    monkeypatch.setattr("altmin.data.Dataset.load", lambda self, split, data_dir=None: samples)
    for command in ("predict", "evaluate"):
        code, out, error = said(command, "m.altmin")
        assert (code, out, "not finite" in error) == (2, "", True)


def test_a_small_file_with_a_digest_takes_little_memory() -> None:
    """Weights of one number that is repeated, a packed archive, and what is no archive."""
    state = {"kind": "model", "model": "linear", "data": "t.csv", "sample_shape": (1 << 24,), "outputs": 1 << 20}
    weights = {"0.weight": torch.zeros(1, 1).expand(1 << 20, 1 << 24), "0.bias": torch.zeros(1).expand(1 << 20)}
    repeated, packed = io.BytesIO(), io.BytesIO()
    torch.save({**state, "tokens": False, "table": {}, "weights": weights}, repeated)
    with zipfile.ZipFile(repeated) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name) + bytes(10**6) * name.endswith("data/0"))
    for content in (repeated.getvalue(), packed.getvalue(), b"no archive"):
        digest = hashlib.sha256(content).hexdigest()
        Path("small").write_bytes(f"{checkpoint.FORMAT} {digest}\n".encode() + content)
        code, out, error = said("predict", "small", "--data", "flats.csv")
        assert (code, out, error.count("\n"), "small is" in error) == (2, "", 1, True), error


def test_every_named_model_comes_back_from_a_file(tmp_path: Path) -> None:
    from altmin import models
    from altmin.models.names import KNOWN
    from altmin.training import model_file

    shapes = {"elman": (784, 1), "gru": (28, 28), "lstm": (28, 28), "mingru": (28, 28), "gpt": (64,)}
    for name in KNOWN:
        kind = name.partition("-")[0]
        shape, tokens = shapes.get(kind, (3, 32, 32) if kind == "resnet18" else (1, 28, 28)), kind == "gpt"
        x = torch.randint(9, (2, 64)) if tokens else torch.randn(2, *shape)
        net = models.create(name, shape, 10, tokens)
        with torch.no_grad():
            net(x)  # running means
        about = {"model": name, "data": "mnist", "sample_shape": shape, "outputs": 10, "tokens": tokens}
        model_file.save(tmp_path / "m", net, about)
        assert torch.equal(model_file.load(tmp_path / "m")[0](x), net.eval()(x)), name


WRONG = [
    "train --data none.csv --target price",
    "train --data flats.csv",
    "train --data flats.csv --target prise",
    "train --data flats.csv --target price --drop prise",
    "train --data flats.csv --target price --drop price",
    "train --data flats.csv --target price --json flats.csv",
    "train --data flats.xlsx --target price",
    "train --data flats.csv --target price --test-part 1",
    "train --data flats.csv --target price --schedule cosine",
    "train --data flats.csv --target dear --task regression",
    "train --data flats.csv --target dear --task both",
    "train --data flats.csv --target dear --set adam.lr=0.1",
    "train --data flats.csv --target dear --save-model nowhere/m",
    "predict price.altmin",
    "predict price.altmin --data narrow.csv",
    "predict price.altmin --data words.csv",
    "evaluate price.altmin --data narrow.csv",
    "predict price.altmin --data flats.csv --out flats.csv",
    "evaluate price.altmin --data flats.csv --json price.altmin",
]


def test_every_mistake_gets_one_line_and_leaves_nothing(folder: Path) -> None:
    ran(*PRICES, "--epochs", "1")
    Path("narrow.csv").write_text("size\n50\n")
    Path("words.csv").write_text("size,district,age\n50,north,3\nlarge,north,3\n")
    before = {path: path.is_file() and path.read_bytes() for path in folder.iterdir()}
    for line in WRONG:
        code, out, error = said(*line.split())
        assert (code, out, error.count("\n")) == (2, "", 1), line
        assert {path: path.is_file() and path.read_bytes() for path in folder.iterdir()} == before, line
