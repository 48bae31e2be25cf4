"""A two-tower model: the product of a user's vector and an item's says whether the user likes the item."""

import torch
from torch import nn

import altmin


class Towers(nn.Module):
    def __init__(self, users=99, items=99, features=4):
        super().__init__()
        self.users, self.items = nn.Embedding(users, 16), nn.Embedding(items, 16)
        self.user_tower, self.item_tower = (altmin.models.mlp(16 + features, (32,), 16) for _ in range(2))

    def forward(self, user, about_user, item, about_item):
        u = self.user_tower(torch.cat([self.users(user), about_user], 1))
        v = self.item_tower(torch.cat([self.items(item), about_item], 1))
        return (u * v).sum(1)


def likes(n=8000, test=2000):
    """n pairs of a user and an item, the last of them for the test. What is known of both has errors."""
    user, item, tastes, kinds = torch.randint(99, (n,)), torch.randint(99, (n,)), torch.randn(99, 4), torch.randn(99, 4)
    y = (tastes[user] * kinds[item]).sum(1) + 0.5 * torch.randn(n) > 0
    x = user, (tastes + torch.randn(99, 4))[user], item, (kinds + torch.randn(99, 4))[item]
    return [(tuple(each[part] for each in x), y[part].float()) for part in (slice(n - test), slice(n - test, n))]


def hits(output, y):
    return ((output > 0) == (y > 0)).float().mean()


def main(seed=0):
    torch.manual_seed(seed)
    am = altmin.AltMin(Towers(), loss=nn.BCEWithLogitsLoss(), weights=altmin.LocalAdam(lr=0.003))
    return altmin.fit(am, *likes(), epochs=6, batch_size=50, metrics=hits, schedule="constant").epochs[-1]["test_hits"]


if __name__ == "__main__":
    print(f"test accuracy {main():.3f}")
