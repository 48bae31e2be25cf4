"""Figure 1: MNIST, the first epoch of the online methods, test accuracy after each of the first 50 batches."""

from reproduction import Between, Claim, Figure, Finding, Results, Statement, finding, statement
from reproduction.figures._families import ADAM, FIRST, NETS, SGD, early, family, first_epochs, of_paper

PAPER = {"adam": of_paper(0.0210, 0.0005), "sgd": of_paper(0.2030, 0.1497)}
RATES = Between(3e-4, 3e-2)
RUNS, SEARCHES = first_epochs(
    "fig1",
    PAPER,
    (0.004, RATES),
    (0.004, RATES),
    (0.2, Between(1e-2, 2.0)),
    eval_batches=(*FIRST, *range(60, 250, 10)),
)


def comparable(net: str) -> Statement:
    @statement(
        f"{net}: AM-Adam is comparable to SGD and Adam",
        "over the first 50 batches the printed AM-Adam (or ours, beside searched rivals) is behind neither by more "
        "than 0.01 or twice the standard error",
    )
    def judge(results: Results) -> Finding:
        printed = early(results, RUNS, net, ("am-adam-printed", ADAM, SGD))
        ours = early(results, RUNS, net, ("am-adam", "adam", "sgd"))
        return finding(
            [printed, ours],
            reproduced=not printed.behind("am-adam-printed", (ADAM, SGD), 0.01),
            exceeded=not ours.behind("am-adam", ("adam", "sgd"), 0.01),
            because="the printed AM-Adam starts slower",
        )

    return judge


def better_early(net: str) -> Statement:
    @statement(
        f"{net}: in early stages it is even slightly better",
        "over the first 10 batches the printed AM-Adam (or ours, beside searched rivals) is above both",
    )
    def judge(results: Results) -> Finding:
        printed = early(results, RUNS, net, ("am-adam-printed", ADAM, SGD), range(1, 11))
        ours = early(results, RUNS, net, ("am-adam", "adam", "sgd"), range(1, 11))
        return finding(
            [printed, ours],
            reproduced=printed["am-adam-printed"] > max(printed[ADAM], printed[SGD]),
            exceeded=ours["am-adam"] > max(ours["adam"], ours["sgd"]),
            because="whether it is ahead of Adam is decided by the rates",
        )

    return judge


@statement(
    "mlp-2x500: AM-mem is comparable to SGD and Adam",
    "over the first 50 batches the printed AM-mem is not behind the lower of the two by more than 0.02; exceeded if "
    "ours, beside searched rivals, is ahead of both by more than twice the standard error",
)
def memory_comparable(results: Results) -> Finding:
    printed = early(results, RUNS, NETS[1], ("am-mem-printed", ADAM, SGD))
    ours = early(results, RUNS, NETS[1], ("am-mem", "adam", "sgd"))
    return finding(
        [printed, ours],
        reproduced=printed["am-mem-printed"] >= min(printed[ADAM], printed[SGD]) - 0.02,
        exceeded=not ours.not_ahead("am-mem", ("adam", "sgd")),
        because="plain sums remember the codes of the first weights",
    )


@statement(
    "mlp-2x100: AM-mem falls between SGD and Adam",
    "over the first 50 batches the printed AM-mem is between the two; exceeded if ours, beside searched rivals, is "
    "ahead of both by more than twice the standard error",
)
def memory_between(results: Results) -> Finding:
    printed = early(results, RUNS, NETS[0], ("am-mem-printed", ADAM, SGD))
    ours = early(results, RUNS, NETS[0], ("am-mem", "adam", "sgd"))
    low, high = sorted((printed[ADAM], printed[SGD]))
    return finding(
        [printed, ours],
        reproduced=low <= printed["am-mem-printed"] <= high,
        exceeded=not ours.not_ahead("am-mem", ("adam", "sgd")),
        because="the printed AM-mem is not between SGD and Adam",
    )


FIGURE = Figure(
    name="fig1",
    title="MNIST, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    bottom=0.3,
    family=family,
    level=True,
    right=52,
    claims=[
        Claim(
            "C1",
            "MNIST, first 50 batches: AM-Adam is comparable to SGD and Adam, early even slightly better",
            "curves, no numbers",
            [each(net) for net in NETS for each in (comparable, better_early)],
        ),
        Claim(
            "C2",
            "MNIST, first 50 batches: AM-mem is comparable on 2x500, between SGD and Adam on 2x100",
            "curves, no numbers",
            [memory_comparable, memory_between],
        ),
    ],
)
