"""A table of one's own on the command line: train, keep the model, predict with it and measure it."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import read, said

from altmin import data, methods, models
from altmin.data.tables import Choices, TableData
from altmin.training import fit
from altmin.training.model_file import TrainedModel

NETS = """
from torch import nn

def build(sample_shape, classes):
    return nn.Sequential(nn.Linear(sample_shape[0], 8), nn.Tanh(), nn.Linear(8, classes))

def wide(sample_shape, classes):
    return nn.Linear(sample_shape[0], classes + 1)
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
        writer.writerow(["size", "district", "age", "price", "dear"])
        for n in range(300):
            age = f"{random.uniform(0, 90):.1f}" if known[n] else ""
            row = [f"{size[n]:.2f}", "" if n % 50 == 0 else district[n], age]
            writer.writerow([*row, f"{price[n]:.2f}", "yes" if price[n] > 3e5 else "no"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ["train", "--data", "flats.csv", "--model", "mlp-1x32", "--lr", "0.01", "--threads", "1"]
CLASSES = [*TRAIN, "--target", "dear", "--drop", "price", "--save-model", "dear.safetensors"]
PRICES = [*TRAIN, "--target", "price", "--drop", "dear", "--save-model", "price.safetensors"]


def ran(*arguments: str) -> str:
    code, out, error = said(*arguments)
    assert (code, error) == (0, "")
    return out


def column(text: str, name: str = "prediction") -> list[str]:
    return [row[name] for row in csv.DictReader(io.StringIO(text))]


def test_classes_are_learnt_from_categories_and_missing_values_and_predicted_from_the_file() -> None:
    ran(*CLASSES, "--json", "run.json")
    result = read("run.json")
    assert result["epochs"][-1]["test_accuracy"] > 0.9
    assert result["table"]["rows"] == {"train": 240, "test": 60}
    assert result["table"]["classes"] == ["no", "yes"]
    assert result["table"]["inputs"] == [7], "size, three districts, one that is missing, age, whether it is"

    known = TableData.read("flats.csv", Choices("dear", drop=["price"]))
    torch.manual_seed(0)
    method = methods.create("am-adam", models.create("mlp-1x32", (7,), 2), lr=0.01)
    fit(method, known.load("train"), epochs=50, batch_size=64)
    whole = {name: values for name, values in known.table.items() if name != "dear"}
    with torch.no_grad():
        output = method.model.eval()(known.encoding.samples(whole))
    shown = ran("predict", "dear.safetensors", "--data", "flats.csv", "--probabilities")
    assert column(shown) == [["no", "yes"][n] for n in output.argmax(1)]
    found = torch.tensor([float(p) for p in column(shown, "probability_yes")])
    torch.testing.assert_close(found, output.softmax(1)[:, 1], atol=1e-6, rtol=0)


def test_numbers_are_learnt_and_given_in_their_own_unit() -> None:
    ran(*PRICES, "--json", "run.json")
    last = read("run.json")["epochs"][-1]
    assert last["test_r2"] > 0.9
    prices = np.array([float(p) for p in column(Path("flats.csv").read_text(), "price")])
    ran("predict", "price.safetensors", "--data", "flats.csv", "--out", "found.csv")
    found = np.array([float(p) for p in column(Path("found.csv").read_text())])
    test = TableData.read("flats.csv", Choices("price", drop=["dear"])).parts["test"]
    errors = (found - prices)[test]
    assert last["test_rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-4)
    assert last["test_r2"] == pytest.approx(1 - (errors**2).sum() / ((prices[test] - prices[test].mean()) ** 2).sum())

    ran("evaluate", "price.safetensors", "--data", "flats.csv", "--json", "all.json")
    assert read("all.json")["rmse"] == pytest.approx(np.sqrt(((found - prices) ** 2).mean()), rel=1e-4)
    assert read("all.json")["samples"] == 300


def test_evaluate_gives_accuracy_and_log_loss_also_of_a_column_of_another_name() -> None:
    ran(*CLASSES, "--epochs", "5")
    Path("renamed.csv").write_text(Path("flats.csv").read_text().replace("dear", "truth", 1))
    ran("evaluate", "dear.safetensors", "--data", "renamed.csv", "--target", "truth", "--json", "found.json")
    shown = ran("predict", "dear.safetensors", "--data", "flats.csv", "--probabilities")
    truth = column(Path("flats.csv").read_text(), "dear")
    given = [float(row[f"probability_{t}"]) for row, t in zip(csv.DictReader(io.StringIO(shown)), truth, strict=True)]
    assert read("found.json")["log_loss"] == pytest.approx(-np.log(given).mean(), rel=1e-4)
    assert read("found.json")["accuracy"] == pytest.approx(np.mean([p > 0.5 for p in given]))
    code, _, error = said("evaluate", "dear.safetensors", "--data", "flats.csv", "--target", "age")
    assert code != 0
    assert "--target age is an input of the model, which predicts 'dear'" in error


def test_a_model_of_a_data_set_is_kept_and_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = torch.randn(200, 1, 28, 28), torch.randint(10, (200,))
    monkeypatch.setattr(data, "load", lambda name, split, data_dir=None: samples)
    ran("train", "--model", "mlp-1x16", "--save-model", "m.safetensors", "--json", "run.json")
    ran("evaluate", "m.safetensors", "--json", "found.json")
    assert read("found.json")["accuracy"] == read("run.json")["epochs"][-1]["test_accuracy"]
    assert len(column(ran("predict", "m.safetensors", "--data", "mnist"))) == 200
    code, _, error = said("predict", "m.safetensors", "--data", "flats.csv")
    assert (code, "trained on the data set mnist; give --data mnist" in error) == (2, True)


def test_validation_rows_leave_the_test_rows_alone_and_seeds_share_the_split() -> None:
    ran(*TRAIN, "--target", "dear", "--validation", "--epochs", "2", "--json", "run.json", "--seeds", "2")
    result = read("run.json")
    assert result["table"]["rows"] == {"train": 180, "test": 60, "validation": 60}
    assert "validation_accuracy" in result["epochs"][-1]
    for n, run in enumerate(result["runs"]):
        ran(*TRAIN, "--target", "dear", "--validation", "--epochs", "2", "--json", "one.json", "--seed", str(n))
        assert read("one.json")["epochs"][-1]["train_loss"] == run["epochs"][-1]["train_loss"]


def test_a_run_over_a_table_is_resumed_and_repeated_from_its_settings() -> None:
    ran(*PRICES, "--epochs", "4", "--json", "whole.json")
    ran(*PRICES, "--epochs", "2", "--checkpoint", "run")
    ran(*PRICES, "--epochs", "4", "--checkpoint", "run", "--resume", "--json", "both.json")
    rows = [[row["train_loss"] for row in read(name)["epochs"]] for name in ("whole.json", "both.json")]
    assert rows[0] == rows[1]
    code, _, error = said(*PRICES, "--epochs", "4", "--checkpoint", "run", "--resume", "--split-seed", "1")
    assert (code, "run belongs to another run: its training data" in error) == (2, True)


def test_a_model_of_ones_own_is_trained_and_predicts_only_if_it_is_named_again() -> None:
    Path("own_nets.py").write_text(NETS)
    try:
        ran(*CLASSES, "--epochs", "2", "--model", "own_nets:build")
        code, _, error = said("predict", "dear.safetensors", "--data", "flats.csv")
        assert (code, "which is code of your own; give --model own_nets:build" in error) == (2, True)
        assert (
            len(column(ran("predict", "dear.safetensors", "--data", "flats.csv", "--model", "own_nets:build"))) == 300
        )
        code, _, error = said("evaluate", "dear.safetensors", "--data", "flats.csv", "--model", "mlp-1x8")
        assert (code, "do not fit the model mlp-1x8" in error) == (2, True)
        code, _, error = said(*CLASSES, "--model", "own_nets:wide")
        assert (code, "gives (2, 3) for 2 samples, (2, 2) is expected" in error) == (2, True)
    finally:
        sys.modules.pop("own_nets", None)


def test_a_saved_model_is_the_same_and_a_file_of_another_kind_is_refused(folder: Path) -> None:
    ran(*CLASSES, "--epochs", "1")
    content = Path("dear.safetensors").read_bytes()
    loaded = TrainedModel.load("dear.safetensors")
    loaded.save("again.safetensors", "1.0")
    again = TrainedModel.load("again.safetensors")
    torch.testing.assert_close(again.network.state_dict(), loaded.network.state_dict(), atol=0, rtol=0)
    assert again.encoding == loaded.encoding
    Path("torn").write_bytes(content[: len(content) // 2])
    Path("damaged").write_bytes(content.replace(b"dear", b"bear"))
    for name in ("torn", "damaged", "flats.csv", "none"):
        code, out, error = said("predict", name, "--data", "flats.csv")
        assert (code, out) == (2, "")
        assert name in error


ERRORS = {
    "train --data none.csv --target price": "there is no file none.csv",
    "train --data flats.csv": "--target names the column of flats.csv to predict, one of: size, district",
    "train --data flats.csv --target prise": "unknown column of --target, 'prise'; did you mean 'price'?",
    "train --data flats --target price": "flats should end in .csv",
    "train --data flats.xlsx --target price": "flats.xlsx should end in .csv",
    "train --data mnist --target price": "--target is for a table of your own, given --data mnist",
    "train --data flats.csv --target price --test-part 1": "--test-part lies between 0 and 1, given 1",
    "train --data flats.csv --target price --method admm": "method 'admm' trains classifiers alone",
    "train --data flats.csv --target price --model lenet5": "lenet5 reads images",
    "train --data flats.csv --target price --model nets:build": "there is no module nets",
    "train --data flats.csv --target dear --seeds 2 --save-model m": "--seeds 2",
    "train --data flats.csv --target dear --save-model nowhere/m": "nowhere/m",
    "predict price.safetensors": "--data names the table to predict; the model was trained on flats.csv",
    "predict price.safetensors --data mnist": "the model was trained on the table flats.csv",
    "predict price.safetensors --data flats.csv --probabilities": "--probabilities are those of classes",
    "predict price.safetensors --data narrow.csv": "there is no column 'district', 'age'; the columns are: size",
    "predict price.safetensors --data words.csv": "column 'size' has 'large' in row 2, where numbers are expected",
    "evaluate price.safetensors --data narrow.csv": "unknown column of --target, 'price'",
    "evaluate price.safetensors --data flats.csv --target dear": "column 'dear' has",
}


def test_every_mistake_gets_one_line_and_leaves_nothing(folder: Path) -> None:
    ran(*PRICES, "--epochs", "1")
    Path("narrow.csv").write_text("size\n50\n")
    Path("words.csv").write_text("size,district,age\n50,north,3\nlarge,north,3\n")
    before = sorted(folder.iterdir())
    for line, words in ERRORS.items():
        code, out, error = said(*line.split())
        assert (code, out, error.count("\n")) == (2, "", 1), line
        assert words in error, line
        assert sorted(folder.iterdir()) == before, line


def test_rows_of_unknown_categories_and_missing_values_are_predicted_too() -> None:
    ran(*PRICES, "--epochs", "20")
    Path("new.csv").write_text("district,age,size\nwest,,50\n,,\nnorth,3,50\n")
    west, nothing, north = map(float, column(ran("predict", "price.safetensors", "--data", "new.csv")))
    assert west > north + 1e5, "an unknown age costs 200,000 more"
    prices = [float(p) for p in column(Path("flats.csv").read_text(), "price")]
    assert min(prices) < nothing < max(prices)
