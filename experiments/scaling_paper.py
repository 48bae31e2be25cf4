"""The cost model on GPUs: data-parallel steps with a fixed batch on each, and consecutive blocks on 8 of one machine.

The figures of the machine are assumptions, near those of an H100: 495 TFLOP/s in TF32, of which a tenth is reached, as
by ResNet-18 on an H200 in benchmarks/networks/cost.jsonl; NVLink between 8 GPUs, beyond them one InfiniBand link of
400 Gbit/s for each.
"""

from collections.abc import Sequence

import torch
from common import Row
from scaling_cost import Layer, data_parallel, layers
from scaling_critical_path import Machine, data_parallel_time, even, layer_parallel_time

import altmin

FLOPS = 0.1 * 495e12
INSIDE = Machine(FLOPS, latency=3e-6, bandwidth=450e9)
BEYOND = Machine(FLOPS, latency=6e-6, bandwidth=50e9)
NODE = 8
GPUS = (1, 8, 64, 256, 1024)
NETS = {"resnet18-64": 32, "gpt-12x768": 8, "mlp-15x4096": 128}
"""Samples on each GPU; of the GPT each has 1,024 tokens of 50,257."""
MICRO_BATCHES = 32


def net(name: str) -> list[Layer]:
    """A network's layers; no number of it is ever stored."""
    with torch.device("meta"):
        if name == "gpt-12x768":
            model, x = altmin.models.gpt(12, 768, 12, 1024, 50257), torch.zeros(2, 1024, dtype=torch.long)
        elif name == "resnet18-64":
            model, x = altmin.models.create(name, (3, 32, 32), 10), torch.zeros(2, 3, 32, 32)
        else:
            model, x = altmin.models.create(name, (4096,), 10), torch.zeros(2, 4096)
    return layers(model, x)


def machine(gpus: int) -> Machine:
    return INSIDE if gpus <= NODE else BEYOND


def replicas(name: str, of: Sequence[Layer], samples: int) -> list[Row]:
    """Data-parallel steps. Backprop is torch's: it sums gradients alone, batch norm sees the samples of its rank."""
    methods = {"am": "am", "am-mem-fitted": "am-mem-fitted", "backprop DDP": "backprop"}
    if all(layer.memory is None for layer in of):
        del methods["am-mem-fitted"]
    rows = []
    for what, method in methods.items():
        one = None
        for gpus in GPUS:
            parts = data_parallel_time(of, samples, gpus, machine(gpus), method)
            if method == "backprop":
                parts |= {"numbers": 0.0, "norms": 0.0}
            seconds = sum(parts.values())
            one = seconds if one is None else one
            sent = data_parallel(of, method)
            rows.append(
                {
                    "what": what,
                    "model": name,
                    "gpus": gpus,
                    "samples": samples,
                    "seconds": seconds,
                    "parts": parts,
                    "efficiency": one / seconds,
                    "messages": len(sent.bulk) if method == "backprop" else sent.messages,
                    "bytes": sum(sent.bulk) if method == "backprop" else sent.bytes,
                }
            )
    return rows


def pipelines(name: str, of: Sequence[Layer], samples: int) -> list[Row]:
    """Consecutive blocks on the GPUs of one machine, with the samples of all of them in micro-batches."""
    rows = []
    batch = samples * NODE
    for what, method, fill in (
        ("am layer-parallel", "am", True),
        ("backprop 1F1B", "backprop", False),
        ("backprop zero bubble", "backprop", True),
    ):
        cuts = even(of, NODE, method)
        seconds = layer_parallel_time(of, cuts, batch, MICRO_BATCHES, INSIDE, method, fill)
        alone = layer_parallel_time(of, [], batch, 1, INSIDE, method, fill)
        rows.append(
            {
                "what": what,
                "model": name,
                "gpus": NODE,
                "samples": batch,
                "micro_batches": MICRO_BATCHES,
                "cuts": cuts,
                "seconds": seconds,
                "efficiency": alone / NODE / seconds,
            }
        )
    return rows


def rows() -> list[Row]:
    assumed = {
        place: {"flops": m.flops, "latency": m.latency, "bandwidth": m.bandwidth}
        for place, m in (("inside", INSIDE), ("beyond", BEYOND))
    }
    found: list[Row] = []
    for name, samples in NETS.items():
        of = net(name)
        found += [row | {"assumed": assumed} for row in (*replicas(name, of, samples), *pipelines(name, of, samples))]
    return found
