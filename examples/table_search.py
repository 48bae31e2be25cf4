"""A table with categories and missing values in a grid search."""

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, train_test_split

from altmin.sklearn import AltMinClassifier


def customers(seed):
    """Who stays: a rule of plan, country, visits and age, with noise; every tenth value of a column is missing."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "plan": random.choice(["free", "basic", "team"], 1200),
            "country": random.choice(["NO", "IT", "DE", "FR"], 1200),
            "visits": random.poisson(20, 1200).astype(float),
            "age": random.uniform(18, 80, 1200),
        }
    )
    score = 2.0 * (table["plan"] == "team") + (table["country"] == "NO") * (table["age"] > 50)
    stays = score + (table["visits"] - 20) / 4 + random.normal(0, 0.5, 1200) > 0.8
    for column in table:
        table.loc[random.random(1200) < 0.1, column] = np.nan
    return train_test_split(table, stays, random_state=seed)


def main(seed=0):
    x, x_test, y, y_test = customers(seed)
    network = AltMinClassifier(categorical="auto", early_stopping=True, random_state=seed)
    search = GridSearchCV(network, {"hidden": [(16,), (32, 32)], "lr": [0.001, 0.01]}, cv=3)
    search.fit(x, y)
    return search.score(x_test, y_test)


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
