"""The regression of regression.py with scikit-learn, whose network needs columns and targets standardised."""

from regression import houses
from sklearn.compose import TransformedTargetRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


def main(seed=0):
    x, x_test, y, y_test = houses(seed)
    network = MLPRegressor(hidden_layer_sizes=(64, 64), batch_size=64, early_stopping=True, random_state=seed)
    regressor = TransformedTargetRegressor(make_pipeline(StandardScaler(), network), transformer=StandardScaler())
    return regressor.fit(x, y).score(x_test, y_test)


if __name__ == "__main__":
    print(f"test R^2 {main():.3f}")
