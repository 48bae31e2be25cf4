"""GPT: a causal transformer over tokens, each of its sub-layers a module of the chain, and drawing tokens from it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.common.unchanged import evaluating


class TokenEmbedding(nn.Module):
    """The sum of a token embedding and a position embedding, for int64 tokens (samples, time)."""

    def __init__(self, vocabulary: int, context: int, width: int):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)

    @property
    def context(self) -> int:
        """The maximum length of a sequence."""
        return self.position.num_embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        time = tokens.shape[-1]
        if time > self.context:
            raise ValueError(
                f"this gpt reads {self.context} tokens at most, given {time}; cut the sequences, or make it with "
                f"context={time}"
            )
        return self.token(tokens) + self.position.weight[:time]


class Attention(nn.Module):
    """x + W concat(heads(norm(x))) + b, where each position attends to itself and to those before it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm, self.attend, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attend(self.norm(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.project(y.transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    """x + W2 gelu(W1 norm(x) + b1) + b2, with four times as many hidden units."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.expand, self.project = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(F.gelu(self.expand(self.norm(x)), approximate="tanh"))


class Head(nn.Module):
    """W norm(x): for every position the logits of the next token."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def gpt(layers: int, width: int, heads: int, context: int, vocabulary: int) -> nn.Sequential:
    """A GPT: maps int64 tokens (samples, time) below `vocabulary` to logits (samples, time, vocabulary).

    time: `context` at most. The output at a position depends on the tokens up to it and predicts the next one.

    `TokenEmbedding`, then `layers` times `Attention` and `Perceptron`, then `Head`: every sub-layer is one module of
    the chain. Weights start as GPT-2's: N(0, 0.02^2), those that end a sub-layer with 0.02 / sqrt(2 layers), biases
    zero. The head does not share the embedding's weights.

    Raises ValueError unless all are whole numbers above 0 and width is a multiple of heads.
    """
    sizes = {"layers": layers, "width": width, "heads": heads, "context": context, "vocabulary": vocabulary}
    for name, value in sizes.items():
        demand("gpt", name, value, low=1, whole=True)
    if width % heads:
        raise ValueError(f"width of gpt must be a multiple of heads, given width {width} and {heads} heads")
    sublayers = [sub for _ in range(layers) for sub in (Attention(width, heads), Perceptron(width))]
    model = nn.Sequential(TokenEmbedding(vocabulary, context, width), *sublayers, Head(width, vocabulary))
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
    for sub in sublayers:
        nn.init.normal_(sub.project.weight, std=0.02 / (2 * layers) ** 0.5)
    return model


def sample(model: nn.Sequential, prompt: Tensor, length: int, temperature: float = 1.0, seed: int = 0) -> Tensor:
    """Continue `prompt` by `length` tokens of `model`, a `gpt` in evaluation mode; int64 on the CPU.

    Each token is drawn from softmax(output / temperature) at the last position, given the last `context` tokens; with
    temperature 0 it is the most likely one. prompt: at least one token, int64. The
    modes of all layers and the global random state are unchanged.

    Raises ValueError for another model, for an invalid prompt, and for tokens outside the vocabulary.
    """
    first = model[0] if isinstance(model, nn.Sequential) and len(model) else None
    if not isinstance(first, TokenEmbedding):
        raise ValueError("tokens are drawn from an altmin.models.gpt, given another model")
    demand("sample", "length", length, whole=True)
    demand("sample", "temperature", temperature)
    vocabulary, device = first.token.num_embeddings, first.token.weight.device
    if prompt.ndim != 1 or not len(prompt) or prompt.dtype != torch.int64:
        raise ValueError(
            f"a prompt is a sequence of at least one int64 token, given {prompt.dtype} of shape {tuple(prompt.shape)}"
        )
    if prompt.min() < 0 or prompt.max() >= vocabulary:
        raise ValueError(f"tokens go from 0 to {vocabulary - 1}, the prompt's from {prompt.min()} to {prompt.max()}")
    generator = torch.Generator().manual_seed(seed)
    tokens = prompt.cpu()
    with evaluating(model):
        for _ in range(length):
            output = model(tokens[-first.context :].to(device).unsqueeze(0))[0, -1].double().cpu()
            if temperature:
                drawn = torch.multinomial((output / temperature).softmax(0), 1, generator=generator)
            else:
                drawn = output.argmax().unsqueeze(0)
            tokens = torch.cat([tokens, drawn])
    return tokens[len(prompt) :]
