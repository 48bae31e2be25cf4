"""A stream with drift: each sample is predicted, then learnt, and not kept."""

from river.datasets.synth import RandomRBFDrift

from altmin.stream import OnlineClassifier


def stream(seed, n=2000):
    """Samples around fifty centres of four classes; the centres move all the time."""
    return RandomRBFDrift(seed, seed, n_classes=4, n_features=10, change_speed=0.002, n_drift_centroids=50).take(n)


def main(seed=0):
    model, hits, n = OnlineClassifier(seed=seed), 0, 0
    for x, y in stream(seed):
        hits += model.predict_one(x) == y
        model.learn_one(x, y)
        n += 1
    return hits / n


if __name__ == "__main__":
    print(f"accuracy before each sample was learnt {main():.3f}")
