"""What two figures have in common: recurrent nets of two sizes, LeNet-5 on two data sets."""

from altmin.paper.reproduce import Claim, Entry, Figure, Finding, Results, compared, finding, runs_of

PLAIN = {"momentum": 0.0}


def recurrent(name: str, units: int, rates: tuple[float, ...]) -> Figure:
    """An Elman net on MNIST, one pixel a step, 10 epochs: AM-Adam beside backprop through time, all at best rates."""
    net, grid = f"elman-{units}", {"together": 4, "run": {"epochs": 5}}
    entries = [
        Entry("am-adam", {"lr": 0.005}, {"lr": rates}, search=grid),
        Entry("adam", {"lr": 0.005}, {"lr": rates}, search=grid),
        Entry("sgd", {"lr": 0.05, **PLAIN}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=grid),
    ]
    made, searches = runs_of(name, entries, [net], data="mnist-sequential", epochs=10, batch_size=1024, seeds=3)
    runs = list(made.values())

    def judge(results: Results) -> Finding:
        first, sixth, last = (compared(results, runs, f"{net}, epoch {n}", epoch=n) for n in (1, 6, 10))
        against = {
            f"{net}: AM-Adam is more than 0.02 behind Adam in epoch 1": first["am-adam"] < first["adam"] - 0.02,
            f"{net}: AM-Adam is not above SGD in epoch 1": first["am-adam"] <= first["sgd"],
            f"{net}: AM-Adam is below SGD at epoch 6": sixth["am-adam"] < sixth["sgd"],
            f"{net}: AM-Adam is not level with Adam at the end": abs(last["am-adam"] - last["adam"]) > 0.02,
            f"{net}: AM-Adam is not level with SGD at the end": abs(last["am-adam"] - last["sgd"]) > 0.02,
        }
        return finding([first, sixth, last], against)

    text = "RNN: AM-Adam like Adam in the first epoch, above SGD to epoch 6, level after (d = 15 and 50)"
    return Figure(
        name,
        f"sequential MNIST, Elman net, {units} units",
        runs,
        ("epochs", "batches", "seconds"),
        minutes=6,
        bottom=0.7,
        searches=searches,
        claims=[Claim("C12", text, "curves, no numbers", judge)],
    )


def lenet(name: str, data: str) -> Figure:
    """LeNet-5, 10 epochs: AM-Adam, Adam and SGD, each at its best rate."""
    rates, grid = (5e-4, 1e-3, 2e-3), {"together": 4}
    entries = [
        Entry("am-adam", {"lr": 0.001}, {"lr": rates}, search=grid),
        Entry("adam", {"lr": 0.001}, {"lr": rates}, search=grid),
        Entry("sgd", {"lr": 0.05, **PLAIN}, {"lr": (0.02, 0.05, 0.1, 0.2)}, search=grid),
    ]
    made, searches = runs_of(
        name, entries, ["lenet5"], data=data, epochs=10, batch_size=128, eval_batches=(25, 50, 100, 200)
    )
    runs = list(made.values())

    def judge(results: Results) -> Finding:
        first, last = (compared(results, runs, f"{data}, epoch {n}", epoch=n) for n in (1, 10))
        against = {
            f"on {data} AM-Adam is not above SGD after epoch 1": first["am-adam"] <= first["sgd"],
            f"on {data} AM-Adam is not above SGD at the end": last["am-adam"] <= last["sgd"],
            f"on {data} AM-Adam is not below Adam, but level or above": last["am-adam"] >= last["adam"],
        }
        return finding([first, last], against)

    text = "LeNet-5: AM-Adam clearly above SGD, somewhat below Adam (MNIST and Fashion-MNIST)"
    return Figure(
        name,
        f"{data}, LeNet-5",
        runs,
        ("epochs", "batches", "seconds"),
        minutes=1,
        bottom=0.9 if data == "mnist" else 0.7,
        searches=searches,
        claims=[Claim("C13", text, "curves, no numbers", judge)],
    )
