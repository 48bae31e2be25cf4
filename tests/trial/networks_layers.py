"""Fragments of networks that say what is computed: layers, activations, norms, branches, attention, convolutions.
networks_writer.py says how to read them. Each gives a tensor of the shape that it takes."""

from .networks_writer import fragments

EVERY = fragments("""
## tanh
$y = torch.tanh($x)
## relu
$y = F.relu($x)
## sigmoid
$y = $x.sigmoid()
## gelu module
module: $f = nn.GELU()
$y = $f($x)
## silu in place
$y = F.silu($x + 0, inplace=True)
## relu module in place
module: $f = nn.ReLU(inplace=True)
$y = $f($x * 1.5)
## elu of a residual
$y = $x + F.elu($x)
## softplus and scale
$y = F.softplus($x) * 0.5
## leaky relu
$y = F.leaky_relu($x, negative_slope=0.2)
## gain
param: $p = torch.tensor(1.3)
$y = $x * $p
## prelu
module: $f = nn.PReLU()
$y = $f($x)
## where
$y = torch.where($x > 0.137, $x, 0.3 * $x)
## where with a constant
$y = torch.where($x > 0.137, $x, torch.zeros_like($x))
## clamp
$y = $x.clamp(-1.1, 1.3)
## product with itself
$y = $x * torch.sigmoid($x)
## unused value
$a = $x.exp()
$y = $x * 0.9
## plain attribute
init: $s = 0.7
$y = $x * $s
## constant tensor
$y = $x * torch.tensor(0.8, dtype=$x.dtype)
## a mask of its signs
$y = $x * ($x > 0.137).to($x.dtype) + 0.1 * $x
## bool mask by masked_fill
$y = $x.masked_fill($x > 1.7, 0.0)
## dropout that is off
module: $f = nn.Dropout(0.0)
$y = $f($x)
## functional dropout that is off
$y = F.dropout($x, 0.5, training=False)
## sum in a loop
$y = $x
for $i in range(3):
    $y = $y + 0.2 * torch.sin($y)
## list of tensors
$a = [$x, $x.tanh(), $x.sigmoid()]
$y = torch.stack($a).sum(0)
## identity
module: $f = nn.Identity()
$y = $f($x)
## python sum
$y = sum([$x, 0.5 * $x.cos()])
## reduce
$y = functools.reduce(torch.add, [$x, $x.tanh(), 0.1 * $x])
## nested Sequential of activations
module: $f = nn.Sequential(nn.Tanh(), nn.Sequential(nn.Softplus()))
$y = $f($x)
""")
"""For a tensor of any shape."""

FEATURES = fragments("""
## F.linear
param: $p = 0.5 * torch.randn($W, $W)
param: $q = torch.randn($W)
$y = F.linear($x, $p, $q)
## matmul
param: $p = 0.5 * torch.randn($W, $W)
$y = $x @ $p
## torch.matmul
param: $p = 0.5 * torch.randn($W, $W)
$y = torch.matmul($x, $p.T)
## einsum
param: $p = 0.5 * torch.randn($W, $W)
$y = torch.einsum("...i,ij->...j", $x, $p)
## bias
param: $p = torch.randn($W)
$y = $x + $p
## LayerNorm
module: $f = nn.LayerNorm($W)
$y = $f($x) + 0.1 * $x
## F.layer_norm
param: $p = torch.ones($W)
$y = F.layer_norm($x, ($W,), $p) + $x
## softmax
$y = $x + F.softmax($x, -1)
## F.normalize
$y = F.normalize($x, dim=-1, eps=0.1) + $x
## residual
module: $f = nn.Linear($W, $W)
$y = $x + torch.tanh($f($x))
## pre-norm residual
module: $n = nn.LayerNorm($W)
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
$y = $x + 0.5 * $g(F.gelu($f($n($x))))
## two branches, product
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
$y = $f($x) * torch.sigmoid($g($x))
## two branches, cat
module: $f = nn.Linear($W, 2)
module: $g = nn.Linear($W, 3)
module: $h = nn.Linear(5, $W)
$y = $h(torch.cat([$f($x).tanh(), $g($x)], dim=-1))
## two branches, where
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
$y = torch.where($x > 0.137, $f($x), $g($x))
## gate by chunk
module: $f = nn.Linear($W, 2 * $W)
$a, $b = $f($x).chunk(2, dim=-1)
$y = $a * torch.sigmoid($b)
## glu
module: $f = nn.Linear($W, 2 * $W)
$y = F.glu($f($x), -1)
## experts
module: $e = nn.ModuleList(nn.Linear($W, $W) for _ in range(3))
module: $g = nn.Linear($W, 3)
$a = $g($x).softmax(-1)
$y = sum($a[..., $i : $i + 1] * f($x) for $i, f in enumerate($e))
## ModuleList
module: $f = nn.ModuleList([nn.Linear($W, $W), nn.Tanh(), nn.Linear($W, $W)])
$y = $x
for $i in range(len($f)):
    $y = $f[$i]($y)
## ModuleDict
module: $f = nn.ModuleDict({'a': nn.Linear($W, $W), 'b': nn.LayerNorm($W)})
$y = $f['a']($x)
if 'b' in $f:
    $y = $f['b']($y) + $x
## zip of layers and gains
module: $f = nn.ModuleList(nn.Linear($W, $W) for _ in range(2))
module: $p = nn.ParameterList(torch.randn($W) for _ in range(2))
$y = $x
for $a, $b in zip($f, $p):
    $y = torch.tanh($a($y)) * $b + $y
## ParameterDict
module: $p = nn.ParameterDict({'s': torch.ones($W), 't': torch.zeros($W)})
$y = $x * $p['s'] + $p.t
## Sequential
module: $f = nn.Sequential(nn.Linear($W, 3), nn.ReLU(), nn.Linear(3, $W))
$y = $f($x)
## Sequential of two heads
module: $f = nn.Sequential(nn.Linear($W, $W), nn.Tanh())
$y = $f[1]($f[0]($x)) + $f($x)
## a layer twice
module: $f = nn.Linear($W, $W)
$y = $f(torch.tanh($f($x)))
## tied layers
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
init: $f.weight = $g.weight
$y = $f(torch.tanh($g($x)))
## tied transposed
module: $f = nn.Linear($W, 3)
$y = F.linear(torch.tanh($f($x)), $f.weight.t())
## weight read beside the call
module: $f = nn.Linear($W, $W)
$y = $f($x) + $x @ $f.weight
## weight norm
module: $f = parametrizations.weight_norm(nn.Linear($W, $W))
$y = $f($x)
## spectral norm
module: $f = parametrizations.spectral_norm(nn.Linear($W, $W))
$y = $f($x)
## orthogonal
module: $f = parametrizations.orthogonal(nn.Linear($W, $W))
$y = $f($x)
## pruned
module: $f = prune.random_unstructured(nn.Linear($W, $W), 'weight', 0.3)
$y = $f($x)
## pruning removed
module: $f = prune.remove(prune.random_unstructured(nn.Linear($W, $W), 'weight', 0.3), 'weight')
$y = $f($x)
## parametrization removed
module: $f = parametrize.remove_parametrizations(parametrizations.weight_norm(nn.LayerNorm($W)), 'weight')
$y = $f($x) + $x
## low rank
param: $p = torch.randn($W, 2)
param: $q = torch.randn(2, $W)
$y = $x + 0.3 * ($x @ $p) @ $q
## bilinear
module: $f = nn.Bilinear($W, $W, $W)
$y = $x + 0.1 * $f($x, torch.tanh($x))
## mixture by softmaxed parameters
param: $p = torch.randn(2)
module: $f = nn.Linear($W, $W)
$a = $p.softmax(0)
$y = $a[0] * $x + $a[1] * $f($x)
## weight times weight
module: $f = nn.Linear($W, 2)
module: $g = nn.Linear(2, $W)
$a = $g.weight @ $f.weight
$y = F.linear($x, $a)
## highway
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
$a = torch.sigmoid($g($x))
$y = $a * torch.relu($f($x)) + (1 - $a) * $x
## dense connections
module: $f = nn.Linear($W, 2)
module: $g = nn.Linear($W + 2, $W)
$a = torch.cat([$x, $f($x).relu()], -1)
$y = $g($a)
## sorted
$y = $x + 0.5 * $x.sort(dim=-1).values
## cumulative sum
$y = $x + 0.2 * $x.cumsum(-1)
## fft
$y = $x + 0.2 * torch.fft.fft($x, dim=-1).real
## unused layer
module: $f = nn.Linear($W, $W)
$y = $x * 1.1
## unused parameter
param: $p = torch.randn($W)
$y = $x - 0.1
""")
"""For tensors whose last dimension is the features."""

VECTORS = fragments("""
## addmm
param: $p = 0.5 * torch.randn($W, $W)
param: $q = torch.randn($W)
$y = torch.addmm($q, $x, $p)
## BatchNorm1d
module: $f = nn.BatchNorm1d($W)
$y = $f($x)
## BatchNorm1d, cumulative
module: $f = nn.BatchNorm1d($W, momentum=None)
$y = $f($x)
## BatchNorm1d without statistics
module: $f = nn.BatchNorm1d($W, track_running_stats=False)
$y = $f($x)
## BatchNorm1d without parameters
module: $f = nn.BatchNorm1d($W, affine=False)
$y = $f($x) + $x
## BatchNorm1d in evaluation
module: $f = nn.BatchNorm1d($W)
after: $f.eval()
$y = $f($x)
## BatchNorm1d without statistics in evaluation
module: $f = nn.BatchNorm1d($W, track_running_stats=False)
after: $f.eval()
$y = $f($x)
## F.batch_norm
buffer: $m = torch.zeros($W)
buffer: $v = torch.ones($W)
$y = F.batch_norm($x, $m, $v, training=self.training, momentum=0.2)
## batch norm by hand
buffer: $m = torch.zeros($W)
param: $p = torch.ones($W)
$a = $x.mean(0)
if self.training:
    with torch.no_grad():
        $m.lerp_($a, 0.3)
$y = ($x - $a) * $p
## GroupNorm
module: $f = nn.GroupNorm(1, $W)
$y = $f($x) + $x
## cosine layer
param: $p = torch.randn($W, $W)
$y = F.linear(F.normalize($x, dim=1, eps=0.1), F.normalize($p, dim=1)) + $x
## outer product
module: $f = nn.Linear($W * $W, $W)
$y = $f(torch.einsum('bi,bj->bij', $x, $x).flatten(1)) * 0.2
## unsqueezed Conv1d
module: $f = nn.Conv1d(1, 1, 3, padding=1)
$y = $f($x.unsqueeze(1)).squeeze(1)
## across samples
$y = $x - 0.5 * $x.mean(dim=0, keepdim=True)
## kernel between samples
$a = torch.softmax(-torch.cdist($x, $x + 0.1), dim=1)
$y = $x + 0.1 * ($a @ $x)
## vmap
module: $f = nn.Linear($W, $W)
$y = torch.vmap(lambda row: torch.tanh($f(row)))($x)
## loop over rows
module: $f = nn.Linear($W, $W)
$y = torch.stack([$f(row) for row in $x])
## loop over columns
$y = torch.stack([$x[:, $i] * (1 + 0.1 * $i) for $i in range($x.shape[1])], dim=1)
""")
"""For (samples, features)."""

SEQUENCES = fragments("""
## BatchNorm1d over positions
module: $f = nn.BatchNorm1d($W)
$y = $f($x.transpose(1, 2)).transpose(1, 2)
## InstanceNorm1d
module: $f = nn.InstanceNorm1d($W, affine=True)
$y = $f($x.transpose(1, 2)).transpose(1, 2) + $x
## InstanceNorm1d with statistics
module: $f = nn.InstanceNorm1d($W, track_running_stats=True)
$y = $x + $f($x.mT).mT
## Conv1d
module: $f = nn.Conv1d($W, $W, 3, padding=1)
$y = $f($x.permute(0, 2, 1)).permute(0, 2, 1)
## F.conv1d
param: $p = 0.3 * torch.randn($W, $W, 3)
$y = F.conv1d($x.mT, $p, padding=1).mT
## positions
param: $p = torch.randn(9, $W)
$y = $x + $p[: $x.shape[1]]
## positions by size
param: $p = torch.randn(1, 9, $W)
$y = $x + $p[:, : $x.size(1), :]
## positions by an embedding
module: $f = nn.Embedding(9, $W)
$y = $x + $f(torch.arange($x.shape[1], device=$x.device))
## fixed positions in a buffer
buffer: $b = torch.randn(9, $W)
$y = $x + $b[: $x.shape[1]]
## mean over positions
module: $f = nn.Linear($W, $W)
$y = $x + $f($x.mean(dim=1, keepdim=True))
## shift
$y = $x + 0.5 * torch.roll($x, 1, dims=1)
## mix positions
module: $f = nn.Linear($T, $T)
$y = $x + $f($x.transpose(1, 2)).transpose(1, 2)
## bmm
$y = $x + 0.2 * torch.bmm(torch.softmax(torch.bmm($x, $x.transpose(1, 2)), -1), $x)
## attention by hand
module: $f = nn.Linear($W, 3 * $W)
$q, $k, $v = $f($x).split($W, dim=2)
$a = ($q @ $k.transpose(-2, -1)) / math.sqrt($q.size(-1))
$y = $x + $a.softmax(-1) @ $v
## causal attention by hand
module: $f = nn.Linear($W, 3 * $W)
buffer: $m = torch.tril(torch.ones(9, 9))
$n = $x.size(1)
$q, $k, $v = $f($x).chunk(3, -1)
$a = ($q @ $k.mT) * $W ** -0.5
$a = $a.masked_fill($m[:$n, :$n] == 0, float("-inf"))
$y = $x + F.softmax($a, dim=-1) @ $v
## heads
module: $f = nn.Linear($W, 3 * 4)
module: $g = nn.Linear(4, $W)
$b, $t, _ = $x.shape
$q, $k, $v = $f($x).view($b, $t, 3, 2, 2).permute(2, 0, 3, 1, 4)
$a = F.scaled_dot_product_attention($q, $k, $v)
$y = $x + $g($a.transpose(1, 2).reshape($b, $t, 4))
## scaled_dot_product_attention, causal
$y = $x + F.scaled_dot_product_attention($x, $x, $x, is_causal=True)
## scaled_dot_product_attention, bool mask
$m = torch.ones($x.shape[1], $x.shape[1], dtype=torch.bool).tril()
$y = $x + F.scaled_dot_product_attention($x, $x.tanh(), $x, attn_mask=$m)
## scaled_dot_product_attention, learnt bias
param: $p = torch.randn($T, $T)
$y = $x + F.scaled_dot_product_attention($x, $x, $x.tanh(), attn_mask=$p)
## MultiheadAttention
module: $f = nn.MultiheadAttention($W, 1, batch_first=True)
$a, _ = $f($x, $x, $x, need_weights=False)
$y = $x + $a
## MultiheadAttention with weights
module: $f = nn.MultiheadAttention($W, 1, batch_first=True)
$a, $b = $f($x, $x, $x)
$y = $x + $a * $b.mean(dim=(1, 2))[:, None, None]
## MultiheadAttention, causal
module: $f = nn.MultiheadAttention($W, 1, batch_first=True)
$n = $x.shape[1]
$m = torch.triu(torch.ones($n, $n, dtype=torch.bool), diagonal=1)
$y = $x + $f($x, $x, $x, attn_mask=$m)[0]
## TransformerEncoderLayer
module: $f = nn.TransformerEncoderLayer($W, 1, 5, dropout=0.0, batch_first=True)
$y = $f($x)
## learnt queries
param: $p = torch.randn(2, $W)
$q = $p.expand($x.shape[0], -1, -1)
$a = F.scaled_dot_product_attention($q, $x, $x)
$y = $x + $a.mean(1, keepdim=True)
## LSTM
module: $f = nn.LSTM($W, $W, batch_first=True)
$a, ($h, $c) = $f($x)
$y = $x + $a
## GRU from a learnt state
module: $f = nn.GRU($W, $W, batch_first=True)
param: $p = torch.randn(1, 1, $W)
$y, _ = $f($x, $p.expand(1, $x.shape[0], $W).contiguous())
## recurrence by hand
module: $f = nn.RNNCell($W, $W)
$h = $x.new_zeros($x.shape[0], $W)
$o = []
for $t in range($x.shape[1]):
    $h = $f($x[:, $t], $h)
    $o.append($h)
$y = torch.stack($o, dim=1)
## recurrence from a parameter
param: $p = torch.randn($W)
module: $f = nn.Linear(2 * $W, $W)
$h = $p.expand($x.shape[0], -1)
$o = []
for $a in $x.unbind(1):
    $h = torch.tanh($f(torch.cat([$a, $h], 1)))
    $o += [$h]
$y = torch.stack($o, 1)
""")
"""For (samples, positions, features)."""

IMAGES = fragments("""
## Conv2d
module: $f = nn.Conv2d($W, $W, 3, padding=1)
$y = $f($x)
## F.conv2d
param: $p = 0.3 * torch.randn($W, $W, 1, 1)
$y = F.conv2d($x, $p)
## depthwise
module: $f = nn.Conv2d($W, $W, 3, padding=1, groups=$W)
$y = $x + $f($x)
## BatchNorm2d
module: $f = nn.BatchNorm2d($W)
$y = $f($x)
## BatchNorm2d, cumulative
module: $f = nn.BatchNorm2d($W, momentum=None)
$y = F.relu($f($x))
## GroupNorm of images
module: $f = nn.GroupNorm(1, $W)
$y = $f($x)
## InstanceNorm2d
module: $f = nn.InstanceNorm2d($W, affine=True, track_running_stats=True)
$y = $f($x)
## residual block
module: $f = nn.Conv2d($W, $W, 3, padding=1)
module: $n = nn.BatchNorm2d($W)
module: $g = nn.Conv2d($W, $W, 3, padding=1)
$y = F.relu($x + $g(F.relu($n($f($x)))))
## in-place residual sum
module: $f = nn.Conv2d($W, $W, 3, padding=1)
$y = $f($x)
$y += $x
$y = torch.tanh($y)
## squeeze and excite
module: $f = nn.Linear($W, $W)
$a = torch.sigmoid($f($x.mean((2, 3))))
$y = $x * $a[:, :, None, None]
## down and up
$y = $x + F.interpolate(F.avg_pool2d($x, 2), size=$x.shape[-2:], mode='bilinear', align_corners=False)
## max pool in a branch
$y = $x + F.max_pool2d($x, 3, stride=1, padding=1)
## coordinates
module: $f = nn.Conv2d($W + 1, $W, 1)
$c = torch.linspace(-1, 1, $x.shape[3]).to($x)
$y = $f(torch.cat([$x, $c.expand($x.shape[0], 1, $x.shape[2], -1)], 1))
## channel bias
param: $p = torch.randn($W)
$y = $x + $p.view(1, -1, 1, 1)
## upscaled and pooled
module: $f = nn.ConvTranspose2d($W, $W, 2, stride=2)
$y = F.avg_pool2d($f($x), 2)
""")
"""For (samples, channels, height, width)."""
