"""Models that other people wrote, of timm and transformers: is one accepted, in how many blocks, are its gradients
autograd's, does it learn, and what do steps take beside Adam's.

Nothing is downloaded. Weights are random, with noise on all of them, so that no layer that begins at zero hides those
below it. Dropout and stochastic depth are zero; batch norm is as in training.
"""

import sys
import time
import warnings
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

import altmin
from altmin.common.optional import need
from reproduction.case import Case
from reproduction.figure import Figure
from reproduction.measurements import results
from reproduction.results import Row, Setting
from reproduction.speed.measure import step_bytes
from reproduction.tables import markdown, table

FAMILIES = """
lcnet_050 resnet10t res2net50_14w_8s repvgg_a0 dla46_c densenet121 regnetx_002 regnety_002 ese_vovnet19b_slim
selecsls42 mobilenetv2_035 mobilenetv3_small_050 mobilenetv4_conv_small_035 mnasnet_small tinynet_e hardcorenas_a
ghostnet_050 rexnet_100 repghostnet_050 efficientnet_b0 test_nfnet convnext_atto mobilevit_xxs edgenext_xx_small
efficientvit_b0 test_maxvit test_coatnet vit_tiny_patch16_224 deit_tiny_patch16_224 beit_base_patch16_224
eva02_tiny_patch14_224 cait_xxs24_224 convit_tiny pit_ti_224 swin_tiny_patch4_window7_224 twins_svt_small
xcit_nano_12_p16_224 gmlp_ti16_224 inception_next_atto fastvit_t8 efficientvit_m0 coat_lite_tiny resnext50_32x4d
mixer_s32_224 resmlp_12_224 levit_128s visformer_tiny sequencer2d_s poolformer_s12 hrnet_w18_small
"""
"""A small model of each."""
TIMM = FAMILIES.split()
SIDES = {"eva02_tiny_patch14_224": 28}
"""Of images, where it is not 32."""
SMALLER: dict[str, Row] = {
    "res2net50_14w_8s": {"layers": [1] * 4},
    "densenet121": {"block_config": [2] * 4},
    **{f"{name}_tiny_patch16_224": {"depth": 4} for name in ("vit", "deit")},
    "cait_xxs24_224": {"depth": 4},
    "beit_base_patch16_224": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "swin_tiny_patch4_window7_224": {"embed_dim": 32, "depths": [1, 1, 2, 1], "num_heads": [1, 2, 4, 8]},
    "twins_svt_small": {"embed_dims": [32, 64, 64, 64], "depths": [1] * 4},
}
"""Arguments that make the smallest of a family smaller."""
METHODS = ("adam", "am-adam", "coactivation")
WIDTH, LENGTH, TOKENS, CLASSES = 32, 16, 50, 10
BATCH, RATE, STEPS, PROFILED, NOISE, LEAST = 8, 1e-3, 20, 4, 0.02, 1e-6
"""The memory of the first steps is measured, of the others the time. Differences of gradients are relative to the
largest entry of the parameter's gradient, or to `LEAST` of the largest of all."""

SIZES: Row = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT: Row = {"vocab_size": TOKENS, "max_position_embeddings": LENGTH, "bos_token_id": 0, "eos_token_id": 0}
GPT: Row = {"n_embd": WIDTH, "n_layer": 2, "n_head": 2, "n_positions": LENGTH, "vocab_size": TOKENS}
T5: Row = {"d_model": WIDTH, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": TOKENS}
PARTS = {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_attention_heads": 2}
WHISPER: Row = {"d_model": WIDTH, **PARTS, "num_mel_bins": 8, "max_source_positions": LENGTH, "vocab_size": TOKENS}
WHISPER |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"), 0)
TRANSFORMERS: dict[str, tuple[str, Row, str, str]] = {
    "BERT": ("bert", SIZES | TEXT, "encoder.layer", ""),
    "BERT, as one module": ("bert", SIZES | TEXT, "", ""),
    "GPT-2": ("gpt2", GPT | {"bos_token_id": 0, "eos_token_id": 0}, "h", "ln_f"),
    "Llama": ("llama", SIZES | TEXT, "layers", "norm"),
    "T5 encoder": ("t5", T5, "block", "final_layer_norm"),
    "ViT": ("vit", SIZES | {"image_size": 32, "patch_size": 8}, "layers", "layernorm"),
    "Whisper encoder": ("whisper", WHISPER, "layers", "layer_norm"),
}
"""The configuration, the names of the layers and of the last norm."""
FIRST: dict[str, Any] = {
    "gpt2": lambda m, x: (m.wte(x) + m.wpe.weight, {}),
    "llama": lambda m, x: (m.embed_tokens(x), {"position_embeddings": (m.cos, m.sin)}),
    "t5": lambda m, x: (
        m.embed_tokens(x),
        {"position_bias": m.block[0].layer[0].SelfAttention.compute_bias(LENGTH, LENGTH)},
    ),
    "whisper": lambda m, x: (
        gelu(m.conv2(gelu(m.conv1(x)))).mT + m.embed_positions.weight,
        {"attention_mask": None},
    ),
}
"""The input of the first layer, and further arguments of all; of others what `embeddings` gives."""


class Transformer(nn.Module):
    """A model of transformers that is called layer after layer, so that it is cut between them, with a linear head."""

    def __init__(self, name: str):
        super().__init__()
        hf = need("transformers", "others", "this measurement")
        self.kind, sizes, self.layers, self.norm = TRANSFORMERS[name]
        config = hf.AutoConfig.for_model(self.kind, **sizes)
        still(config)
        self.body = hf.AutoModel.from_config(config)
        self.body = self.body.encoder if name.endswith(" encoder") else self.body
        self.body.pooler, self.head = None, nn.Linear(WIDTH, CLASSES)
        if name == "Llama":  # computed from the first code, they would lead past every cut
            turns = self.body.rotary_emb(torch.zeros(1), torch.arange(LENGTH)[None])
            for key, t in zip(("cos", "sin"), turns, strict=True):
                self.body.register_buffer(key, t)

    def forward(self, x: Tensor) -> Tensor:
        if not self.layers:
            return self.head(self.body(x).last_hidden_state.mean(1))
        x, more = FIRST.get(self.kind, lambda m, x: (m.embeddings(x), {}))(self.body, x)
        for layer in self.body.get_submodule(self.layers):
            x = layer(x, **more)
            x = x[0] if self.kind == "t5" else x
        return self.head((self.body.get_submodule(self.norm)(x) if self.norm else x).mean(1))


def still(thing: Any) -> None:
    """Set every rate of dropout of a module or a configuration to zero."""
    for name, rate in vars(thing).items():
        if isinstance(rate, float) and ("drop" in name or isinstance(thing, nn.Dropout)):
            setattr(thing, name, 0.0)


def timm() -> Any:
    """timm, also where torchvision is missing or made for another torch: timm's models need one class of it."""
    stubs: dict[str, Any] = {}
    try:
        need("torchvision")
    except (ImportError, RuntimeError):
        stub = MagicMock()
        stub.ops.misc.FrozenBatchNorm2d = type("FrozenBatchNorm2d", (nn.Module,), {})
        parts = ("", ".datasets", ".transforms", ".transforms.functional", ".ops", ".models.feature_extraction")
        stubs = {f"torchvision{part}": stub for part in parts} | {"torchvision.ops.misc": stub.ops.misc}
        sys.modules.update(stubs)
    try:
        return need("timm", "others", "this measurement")
    finally:
        for name in stubs:
            del sys.modules[name]


def created(case: Case) -> nn.Module:
    """A model, the same at every call."""
    torch.manual_seed(0)
    if case["library"] == "timm":
        create = partial(timm().create_model, case["model"], num_classes=CLASSES, **case["more"])
        try:
            model: nn.Module = create(img_size=case["side"])
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            model = create()
    else:
        model = Transformer(case["model"])
    for m in model.modules():
        still(m)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(NOISE * torch.randn_like(p))
    return model


def samples(case: Case) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    side = case.settings.get("side", 32)
    shapes = {"Whisper encoder": (8, 2 * LENGTH)} | dict.fromkeys(("ViT", *TIMM), (3, side, side))
    shape = shapes.get(case["model"])
    x = torch.randint(TOKENS, (BATCH, LENGTH)) if shape is None else torch.randn(BATCH, *shape)
    return x, torch.arange(BATCH) % CLASSES


def method(case: Case, name: str) -> Any:
    return altmin.methods.create(name, created(case), lr=RATE)


def measure(case: Case, seed: int, setting: Setting) -> Row:
    """What is found of a model; of one that is refused, the sentence."""
    warnings.simplefilter("ignore")
    (x, y), model = samples(case), created(case)
    row: Row = {"parameters": sum(p.numel() for p in model.parameters())}
    try:
        row |= difference(case, x, y)
    except (ValueError, TypeError) as error:
        return {**row, "refused": str(error)}
    methods, sizes = dict[str, Any](), dict[str, int]()
    for name in METHODS:
        methods[name], _, sizes[name] = step_bytes(partial(method, case, name), (x, y))
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for n in range(STEPS - PROFILED):
        for name in METHODS[n % 3 :] + METHODS[: n % 3]:  # in turn, so that a slow moment falls on all
            start = time.perf_counter()
            methods[name].step(x, y)
            seconds[name].append(time.perf_counter() - start)
    for name in METHODS:
        loss, ratios = float(methods[name].step(x, y).loss), zip(seconds[name], seconds["adam"], strict=True)
        row[name] = {"loss": loss, "bytes": sizes[name], "time": median(a / b for a, b in ratios)}
    return row


def difference(case: Case, x: Tensor, y: Tensor) -> Row:
    """The number of blocks, the loss, and the largest relative difference between the gradients of a step at share 0
    and autograd's, in float64."""
    x, (ours, theirs) = x.double() if x.is_floating_point() else x, (created(case).double() for _ in range(2))
    am = altmin.AltMin(ours, codes=altmin.GradientCodes(share=0.0), weights=altmin.LocalSGD(lr=1.0))
    trained, same = ([p for p in m.parameters() if p.requires_grad] for m in (ours, theirs))
    before = [p.detach().clone() for p in trained]
    am.step(x, y)
    loss = cross_entropy(theirs(x), y)
    grads = torch.autograd.grad(loss, same, materialize_grads=True)
    least = LEAST * max(float(g.abs().max()) for g in grads)
    apart = [
        float((old - new - g).abs().max() / g.abs().max().clamp(min=least))
        for old, new, g in zip(before, trained, grads, strict=True)
    ]
    return {"blocks": len(am.chain), "difference": max(apart), "first": float(loss)}


def case(library: str, model: str) -> Case:
    more = {"side": SIDES.get(model, 32), "more": SMALLER.get(model, {})} if library == "timm" else {}
    return Case(measure, {"library": library, "model": model, **more}, seeds=1)


CASES = [case("timm", name) for name in TIMM] + [case("transformers", name) for name in TRANSFORMERS]
FIGURES = [Figure("others", "Models of timm and transformers", CASES, axes=(), minutes=10)]


def rows(library: str) -> list[tuple[str, Row]]:
    """The models of a library, and what was found of each."""
    return [(case["model"], results("others").all(case)[0]) for case in CASES if case["library"] == library]


def _ratios(row: Row) -> list[float]:
    return [
        row[name]["time"] if what == "time" else row[name][what] / row["adam"][what]
        for what in ("time", "bytes")
        for name in METHODS[1:]
    ]


RATIOS = [f"{what}: {name} / adam" for what in ("time", "memory") for name in METHODS[1:]]


def _models(library: str) -> str:
    lines = []
    for name, row in rows(library):
        if "refused" not in row:
            losses = [row["first"], *(row[name]["loss"] for name in METHODS)]
            cells = [f"{row['parameters']:,}", str(row["blocks"]), f"{row['difference']:.0e}"]
            lines.append([name, *cells, *(f"{x:.3f}" for x in losses), *(f"{x:.2f}" for x in _ratios(row))])
    head = ["model", "parameters", "blocks", "difference", "loss at first", *(f"loss: {name}" for name in METHODS)]
    return markdown([*head, *RATIOS], lines)


table("others.timm")(lambda: _models("timm"))
table("others.transformers")(lambda: _models("transformers"))


@table("others.refused")
def refused() -> str:
    """What was refused, in its sentence."""
    found = [*rows("timm"), *rows("transformers")]
    return markdown(["model", "refused"], [[name, row["refused"]] for name, row in found if "refused" in row])


@table("others.summary")
def summary() -> str:
    """How many train, and medians of what was measured."""
    lines = []
    for library in ("timm", "transformers"):
        found = [row for _, row in rows(library)]
        good = [row for row in found if "refused" not in row]
        line = [library, str(len(found)), str(sum(row["blocks"] > 1 for row in good))]
        line += [str(sum(row[name]["loss"] < row["first"] for row in good)) for name in METHODS]
        line += [f"{max(row['difference'] for row in good):.0e}"]
        lines.append([*line, *(f"{median(each):.2f}" for each in zip(*map(_ratios, good), strict=True))])
    head = ["library", "models", "train in several blocks", *(f"loss falls: {name}" for name in METHODS)]
    return markdown([*head, "largest difference", *RATIOS], lines)
