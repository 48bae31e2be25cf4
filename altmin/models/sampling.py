"""Drawing a sequence of tokens from a trained model, one after the other."""

import torch
from torch import Tensor, nn

from altmin.common.errors import demand
from altmin.common.unchanged import evaluating
from altmin.models.gpt import TokenEmbedding


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
