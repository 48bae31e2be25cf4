"""The grid search of table_search.py with scikit-learn, whose network needs its columns encoded."""

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from table_search import customers


def columns():
    numbers = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )


def main(seed=0):
    x, x_test, y, y_test = customers(seed)
    network = MLPClassifier(batch_size=64, early_stopping=True, random_state=seed)
    grid = {"hidden_layer_sizes": [(16,), (32, 32)], "learning_rate_init": [0.001, 0.01]}
    search = GridSearchCV(
        make_pipeline(columns(), network), {f"mlpclassifier__{name}": values for name, values in grid.items()}, cv=3
    )
    search.fit(x, y)
    return search.score(x_test, y_test)


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
