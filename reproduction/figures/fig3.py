"""Figure 3: CIFAR-10, the first epoch of the online methods."""

from dataclasses import replace

from reproduction import Between, Claim, Figure, Finding, Results, Statement, finding, statement
from reproduction.figures._families import ADAM, FIRST, NETS, SGD, early, family, first_epochs, of_paper

PAPER = {"adam": of_paper(0.0029, 0.0002), "sgd": of_paper(0.1500, 0.1428)}
RUNS, SEARCHES = first_epochs(
    "fig3",
    PAPER,
    (0.002, Between(1e-4, 1e-2)),
    (0.002, Between(1e-4, 1e-2)),
    (0.1, Between(3e-3, 1.0)),
    data="cifar10",
    eval_batches=(*FIRST, *range(60, 200, 10)),
)


def ahead(net: str) -> Statement:
    @statement(
        f"{net}: AM-Adam is slightly ahead of SGD and Adam",
        "over the first 50 batches the printed AM-Adam is above both at the paper's rates; exceeded if ours is above "
        "both at searched rates",
    )
    def judge(results: Results) -> Finding:
        printed = early(results, RUNS, net, ("am-adam-printed", ADAM, SGD))
        ours = early(results, RUNS, net, ("am-adam", "adam", "sgd"))
        return finding(
            [printed, ours],
            reproduced=printed["am-adam-printed"] > max(printed[ADAM], printed[SGD]),
            exceeded=ours["am-adam"] > max(ours["adam"], ours["sgd"]),
            because="at searched rates Adam and AM-Adam are level",
        )

    return judge


FIGURE = Figure(
    name="fig3",
    title="CIFAR-10, first epoch, online methods",
    runs=list(RUNS.values()),
    axes=("batches", "epochs", "seconds"),
    searches=SEARCHES,
    bottom=0.1,
    family=family,
    level=True,
    right=52,
    quick=lambda run: replace(run.reduced(), eval_batches=(1, 2, 5, 10, 20, 30, 40, 50)),
    claims=[
        Claim(
            "C7",
            "CIFAR-10, first 50 batches: AM-Adam is slightly ahead of SGD and Adam",
            "curves, no numbers",
            list(map(ahead, NETS)),
        )
    ],
)
