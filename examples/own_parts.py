"""A weight rule, a code solver and a method of one's own: steps of the same length for all weights."""

import torch
from sklearn.datasets import load_digits

import altmin
from altmin.core.codes.problem import joined


class Signs(altmin.WeightRule):  # W - lr sign(g), g the gradient of the block's own problem
    def __init__(self, lr):
        self.lr = lr

    def update(self, parameters, state, contribution, rates):
        return [-rates["lr"] * g.sign() for g in contribution], state


def careful(encoded, target, context):
    """Codes take little from the weights of the output block, and more from those further down."""
    moved = altmin.GradientCodes(share=0.05)(encoded[-1:], target, context)
    return joined([moved, altmin.GradientCodes(share=0.2)(encoded[:-1], moved.below, context)])


@altmin.methods.register("am-signs")
def am_signs(model, lr=0.001):
    return altmin.AltMin(model, codes=careful, weights=Signs(lr))


def main(seed=0):
    torch.manual_seed(seed)
    x, y = load_digits(return_X_y=True)
    method = altmin.methods.create("am-signs", altmin.models.mlp(64, (64, 64), 10))
    train, test = (x[:1200], y[:1200]), (x[1200:], y[1200:])
    return altmin.fit(method, train, test, epochs=20, batch_size=50, schedule="constant").epochs[-1]["test_accuracy"]


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
