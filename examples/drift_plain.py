"""The stream of drift.py with scikit-learn: a scaler and a network that learn one sample at a time."""

from drift import stream
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler


def main(seed=0, lr=0.003):
    scaler = StandardScaler()
    network = MLPClassifier(hidden_layer_sizes=(64, 32), learning_rate_init=lr, random_state=seed)
    hits = n = 0
    for x, y in stream(seed):
        row = [list(x.values())]
        row = scaler.partial_fit(row).transform(row)
        hits += n > 0 and network.predict(row)[0] == y
        network.partial_fit(row, [y], classes=range(4))
        n += 1
    return hits / n


if __name__ == "__main__":
    print(f"accuracy before each sample was learnt {main():.3f}")
