"""Fragments of networks that say what Python and autograd do around the layers: parts without gradients, Functions of
the user's own, changes in place, buffers, control flow, hooks. networks_writer.py says how to read them."""

from .networks_writer import fragments

EVERY = fragments("""
## detach in a product
$y = $x * $x.detach().tanh()
## detach everything
$y = $x.detach() + 0.1
## data
$y = $x + 0.3 * $x.data.tanh()
## parameter meets a detached value
param: $p = torch.tensor(0.4)
$y = $x + $x.detach() * $p
## parameter meets a mask
param: $p = torch.tensor(0.4)
$y = $x + ($x > 0.137).to($x.dtype) * $p
## parameter in a where
param: $p = torch.tensor(0.4)
$y = torch.where($x > 0.137, $x, $p)
## parameter meets a size
param: $p = torch.tensor(0.4)
$y = $x + $p * $x.shape[0]
## parameter alone
param: $p = torch.tensor(0.4)
$a = torch.exp($p)
$y = $x * $a
## parameter meets zeros_like
param: $p = torch.tensor(0.4)
$y = $x + (torch.zeros_like($x) + $p)
## parameter meets new_ones
param: $p = torch.tensor(0.4)
$y = $x + $x.new_ones($x.shape) * $p
## detached parameter
param: $p = torch.tensor(0.4)
$y = $x * $p.detach() + $x
## parameter by its data
param: $p = torch.tensor(0.4)
$y = $x * $p.data + $x
## parameter by its number
param: $p = torch.tensor(0.4)
$y = $x * $p.item() + $x
## clamp of the parameter's data
param: $p = torch.tensor(1.4)
$p.data.clamp_(-1, 1)
$y = $x * $p
## parameter changed under no_grad
param: $p = torch.tensor(0.4)
with torch.no_grad():
    $p.mul_(0.9)
$y = $x * $p
## frozen parameter
param: $p = torch.tensor(0.4)
after: $p.requires_grad_(False)
$y = $x * $p
## parameter frozen in forward
param: $p = torch.tensor(0.4)
$p.requires_grad_(False)
$y = $x * $p
## no_grad by hand
$a = torch.is_grad_enabled()
torch.set_grad_enabled(False)
$b = $x.tanh()
torch.set_grad_enabled($a)
$y = $x * $b
## set_grad_enabled in training
with torch.set_grad_enabled(not self.training):
    $b = $x.square()
$y = $x + 0.1 * $b
## enable_grad
with torch.enable_grad():
    $y = $x.tanh()
## mask under no_grad
with torch.no_grad():
    $m = ($x > 0.137) & ($x < 1.7)
$y = $x * $m + 0.1 * $x
## statistics under no_grad
with torch.no_grad():
    $s = $x.abs().mean() + 1
$y = $x / $s
## inference_mode
with torch.inference_mode():
    $a = $x.tanh()
$y = $x + $a.clone()
## gradient reversal
top: class $Rev(Function):
top:     @staticmethod
top:     def forward(ctx, x):
top:         return x.view_as(x)
top:     @staticmethod
top:     def backward(ctx, g):
top:         return -g
$y = $Rev.apply($x)
## gradient reversal by an alias
top: class $Rev(Function):
top:     @staticmethod
top:     def forward(ctx, x, scale):
top:         ctx.scale = scale
top:         return x.clone()
top:     @staticmethod
top:     def backward(ctx, g):
top:         return -ctx.scale * g, None
top: $reverse = $Rev.apply
$y = $reverse($x, 0.5)
## straight-through rounding
top: class $Round(Function):
top:     @staticmethod
top:     def forward(ctx, x):
top:         return torch.round(4 * x) / 4
top:     @staticmethod
top:     def backward(ctx, g):
top:         return g
$y = $x + 0.5 * $Round.apply($x)
## Function with saved tensors
top: class $Exp(Function):
top:     @staticmethod
top:     def forward(ctx, x):
top:         y = x.tanh()
top:         ctx.save_for_backward(y)
top:         return y
top:     @staticmethod
top:     def backward(ctx, g):
top:         (y,) = ctx.saved_tensors
top:         return 2 * g * (1 - y * y)
$y = $Exp.apply($x)
## Function with setup_context
top: class $Clip(Function):
top:     @staticmethod
top:     def forward(x):
top:         return x * 1.0
top:     @staticmethod
top:     def setup_context(ctx, inputs, output):
top:         pass
top:     @staticmethod
top:     def backward(ctx, g):
top:         return g.clamp(-0.01, 0.01)
$y = $Clip.apply($x)
## Function of a parameter
top: class $Mul(Function):
top:     @staticmethod
top:     def forward(ctx, x, p):
top:         ctx.save_for_backward(x, p)
top:         return x * p
top:     @staticmethod
top:     def backward(ctx, g):
top:         x, p = ctx.saved_tensors
top:         return g * p, 3 * (g * x).sum()
param: $p = torch.tensor(0.8)
$y = $Mul.apply($x, $p)
## Function in a module
top: class $Rev(Function):
top:     @staticmethod
top:     def forward(ctx, x):
top:         return x.view_as(x)
top:     @staticmethod
top:     def backward(ctx, g):
top:         return -g
top: class $Layer(nn.Module):
top:     def forward(self, x):
top:         return $Rev.apply(x)
module: $f = $Layer()
$y = $f($x)
## straight-through by detach
$a = (3 * $x).round() / 3
$y = $x + ($a - $x).detach() * 0.5
## gradient scaled by detach
$y = 0.1 * $x + ($x - 0.1 * $x).detach()
## checkpoint
$y = checkpoint(torch.tanh, $x, use_reentrant=False)
## hook on a tensor
$y = $x * 1.0
if $y.requires_grad:
    $y.register_hook(lambda g: 2 * g)
## retain_grad
$y = $x * 1.0
if $y.requires_grad:
    $y.retain_grad()
## gradient inside forward
with torch.enable_grad():
    $a = $x if $x.requires_grad else $x.detach().requires_grad_()
    $b = torch.autograd.grad($a.tanh().sum(), $a, create_graph=True)[0]
$y = $x + 0.1 * $b
## autocast
with torch.autocast("cpu", dtype=torch.bfloat16):
    $y = $x.tanh()
## autocast that is off
with torch.autocast("cpu", enabled=False):
    $y = $x.tanh()
## counter
buffer: $n = torch.zeros((), dtype=torch.long)
$n += 1
$y = $x * 0.9
## counter by add_
buffer: $n = torch.zeros(())
$n.add_(1)
$y = $x / ($n + 1)
## counter in training only
buffer: $n = torch.tensor(0)
if self.training:
    $n += 1
$y = $x * 0.9
## counter that is assigned
buffer: $n = torch.zeros(())
$n = $n + 1
$y = $x / (1 + $n)
## counter of samples
buffer: $n = torch.tensor(0)
$n += $x.shape[0]
$y = $x + 0.1
## Python counter
init: $n = 0
$n += 1
$y = $x * 0.9
## Python counter that is used
init: $n = 0
$n += 1
$y = $x / (1 + $n)
## list that grows
init: $n = []
$n.append(float($x.detach().mean()))
$y = $x * 0.9
## output kept
init: $n = None
$n = $x.detach()
$y = $x * 0.9
## running scale
buffer: $s = torch.ones(())
$s.mul_(0.9).add_(0.1 * $x.detach().abs().mean())
$y = $x / $s
## running scale under no_grad
buffer: $s = torch.ones(())
with torch.no_grad():
    $s.copy_(0.9 * $s + 0.1 * $x.abs().mean())
$y = $x / $s
## running scale, used first
buffer: $s = torch.ones(())
$y = $x / $s
$s.lerp_($x.detach().abs().mean(), 0.1)
## running scale by its data
buffer: $s = torch.ones(())
$s.data = 0.9 * $s + 0.1 * $x.detach().abs().mean()
$y = $x / $s
## running scale, not used
buffer: $s = torch.ones(())
$s.fill_($x.detach().abs().max())
$y = $x * 0.9
## lazily made buffer
init: $s = None
if $s is None:
    $s = torch.ones((), dtype=$x.dtype)
$y = $x * $s
## buffer that is not saved
init: self.register_buffer("scale", torch.tensor(2.0), persistent=False)
self.scale.mul_(0.5)
$y = $x * self.scale
## in place by an operator
$y = $x.clone()
$y += 0.3
$y *= 0.9
## in place on the value itself
$x.mul_(0.9)
$y = $x + 0.1
## in place after a use
$a = $x * 1.0
$b = $a + 1
$a.add_(0.5)
$y = $a + 0.1 * $b
## in place through an alias
$a = $x.clone()
$y = $a
$a += 0.2
## in place through ravel
$y = $x.clone()
$y.ravel().mul_(0.7)
## in place through view
$y = $x * 1.0
$y.view(-1).add_(0.3)
## in place through reshape
$y = $x * 1.0
$y.reshape(-1)[:3].mul_(0.5)
## in place through transpose
$y = $x.clone()
$y.transpose(0, 1).mul_(0.7)
## in place through swapdims
$y = $x.clone()
torch.swapdims($y, 0, 1).mul_(0.7)
## in place through swapaxes
$y = $x.clone()
$y.swapaxes(0, 1)[0] += 1
## in place through narrow
$y = $x.clone()
$y.narrow(1, 0, 1).zero_()
## in place through select
$y = $x.clone()
$y.select(1, 0).mul_(0.5)
## in place through unfold
$y = $x.clone()
$y.unfold(1, 1, 1).mul_(0.5)
## in place through as_strided
$y = $x.clone()
$y.as_strided((2,), (1,)).mul_(0.5)
## in place through atleast_2d
$y = $x.clone()
torch.atleast_2d($y).mul_(0.5)
## in place through mT
$y = $x.clone()
$y.mT.mul_(0.5)
## in place through diagonal
$y = $x.clone()
$y.diagonal(0, 0, 1).mul_(0.5)
## in place through movedim
$y = $x.clone()
$y.movedim(1, 0)[0].mul_(0.5)
## in place through squeeze
$y = $x.clone()
$y.unsqueeze(0).squeeze(0).mul_(0.5)
## in place through flatten
$y = $x.clone()
$y.flatten().mul_(0.5)
## in place through detach
$y = $x * 1.0
$y.detach().mul_(0.5)
## in place through data
$y = $x * 1.0
$y.data.mul_(0.5)
## in place through expand_as
$y = $x.clone()
$y.expand_as($y).mul_(0.5)
## in place through view_as
$y = $x.clone()
$y.view_as($y).mul_(0.5)
## in place through contiguous
$y = $x.clone()
$y.contiguous().mul_(0.5)
## in place through to
$y = $x.clone()
$y.to($x.dtype).mul_(0.5)
## in place through unbind
$y = $x.detach().clone()
$y.unbind(1)[0].mul_(0.5)
$y = $y + $x
## in place through split
$y = $x.detach().clone()
$y.split(1, dim=1)[0].mul_(0.5)
$y = $y + $x
## in place through chunk
$y = $x.detach().clone()
torch.chunk($y, 2, 0)[0].mul_(0.5)
$y = $y + $x
## in place through tensor_split
$y = $x.detach().clone()
$y.tensor_split(2)[1].add_(1)
$y = $y + $x
## in place through hsplit
$y = $x.detach().clone()
$y.hsplit([1])[0].mul_(0.5)
$y = $y + $x
## in place through numpy
$y = $x.detach().clone()
$y.numpy()[0] = 1.0
$y = $y + $x
## in place through a function
top: def $halve(t):
top:     t[:, 0] *= 0.5
$y = $x.clone()
$halve($y)
## item assigned
$y = $x.clone()
$y[:, 0] = 0.3
## item added
$y = $x.clone()
$y[:, 0] += 1
## items assigned by a mask
$y = $x.clone()
$y[$y > 1.137] = 1.137
## row assigned from the value
$y = torch.zeros_like($x)
$y[:, 0] = $x[:, 0]
$y = $y + 0.5 * $x
## rows assigned in a loop
$y = torch.empty_like($x)
for $i in range($x.shape[0]):
    $y[$i] = $x[$i] * (1 + 0.1 * $i)
## copy_
$y = torch.empty_like($x)
$y.copy_($x.tanh())
## masked_fill_
$y = $x.clone()
$y.masked_fill_($x > 1.137, 0.0)
## index_add_
$y = $x.clone()
$y.index_add_(0, torch.tensor([0, 1]), 0.5 * $x[:2])
## scatter in place
$y = $x.clone()
$y.index_fill_(1, torch.tensor([0]), 0.5)
## out argument
with torch.no_grad():
    $a = torch.empty_like($x)
    torch.mul($x, 0.5, out=$a)
$y = $x + $a
## clamp_ of an activation
$y = ($x + 0.1).clamp_(max=1.3)
## list of views
$y = $x.clone()
$a = [$y[:, :1], $y[:, 1:]]
$a[0].mul_(0.5)
## if on training
if self.training:
    $y = $x * 1.1
else:
    $y = $x * 0.9
## if on a value
if $x.mean() > 0:
    $y = $x * 1.1
else:
    $y = $x.tanh()
## if on a sum of absolute values
if float($x.detach().abs().sum()) > 1e-9:
    $y = $x + 0.1
else:
    $y = $x
## while on a value
$y = $x
while $y.detach().abs().max() > 2:
    $y = $y * 0.5
## if on the number of samples
if $x.shape[0] > 4:
    $y = $x * 1.1
else:
    $y = $x * 0.7
## scale by the number of samples
$y = $x * (1 + 0.01 * len($x))
## assert on the shape
assert $x.shape[0] > 0 and $x.ndim >= 2, f"shape {$x.shape}"
$y = $x * 0.9
## assert on values
assert torch.isfinite($x).all()
$y = $x * 0.9
## isinstance
$y = $x.tanh() if isinstance($x, Tensor) else $x
## dict of tensors
$d = {"a": $x, "b": $x.tanh()}
$d["a"] = $d["a"] * 0.5
$y = sum($d.values())
## namedtuple
top: $Pair = collections.namedtuple("Pair", ["a", "b"])
$p = $Pair($x, $x.tanh())
$y = $p.a + 0.5 * $p.b
## closure
$y = (lambda t: t * 0.5 + $x)($x.tanh())
## partial
$y = functools.partial(F.leaky_relu, negative_slope=0.3)($x)
## getattr
module: $f = nn.Tanh()
init: self.chosen = $f
$y = getattr(self, "chosen")($x)
## static method
method: @staticmethod
method: def $g(t):
method:     return t * 0.7
$y = self.$g($x)
## property
method: @property
method: def $g(self):
method:     return 0.7 if self.training else 0.5
$y = $x * self.$g
## try
try:
    $y = $x.view(2, -1, 10**6)
except RuntimeError:
    $y = $x * 0.9
## shape unpacked
$a, *$b = $x.shape
$y = $x.reshape($a, -1).reshape($a, *$b) * 0.9
## numpy constant
$y = $x * float(math.sqrt(0.5))
## tolist
$y = $x * (1 + 0.1 * torch.tanh($x.detach().sum()).item())
## numbers of samples as weights
$y = $x + torch.arange($x.shape[0], dtype=$x.dtype).view(-1, *[1] * ($x.ndim - 1)) * 0.1
## attribute that a loss would read
init: $aux = 0.0
$aux = $x.square().mean()
$y = $x * 0.9
## grad of the input
$y = $x.requires_grad_() * 0.9 if $x.is_leaf else $x * 0.9
## vjp by torch.func
$y = $x + 0.1 * torch.func.vjp(torch.tanh, $x)[1](torch.ones_like($x))[0]
## deep copy of a value
$y = $x + 0.1 * torch.tensor($x.detach().tolist(), dtype=$x.dtype)
## print
$y = $x * 0.9
$a = str($y.shape)
""")
"""For a tensor of any shape."""

FEATURES = fragments("""
## layer under no_grad
module: $f = nn.Linear($W, $W)
with torch.no_grad():
    $a = $f($x)
$y = $x + $a
## layer under inference_mode
module: $f = nn.Linear($W, $W)
with torch.inference_mode():
    $a = $f($x).tanh()
$y = $x * $a.clone()
## decorated method
module: $f = nn.Linear($W, $W)
method: @torch.no_grad()
method: def $g(self, h):
method:     return torch.sigmoid($f(h))
$y = $x * self.$g($x)
## decorated submodule
top: class $Gate(nn.Linear):
top:     @torch.no_grad()
top:     def forward(self, x):
top:         return torch.sigmoid(super().forward(x))
module: $f = $Gate($W, $W)
$y = $x * $f($x)
## everything below under no_grad
module: $f = nn.Linear($W, $W)
with torch.no_grad():
    $y = $f($x).tanh()
## frozen layer
module: $f = nn.Linear($W, $W)
after: $f.requires_grad_(False)
$y = $f($x)
## frozen weight
module: $f = nn.Linear($W, $W)
after: $f.weight.requires_grad_(False)
$y = $f($x)
## detached weight
module: $f = nn.Linear($W, $W)
$y = F.linear($x, $f.weight.detach(), $f.bias)
## weight by its data
module: $f = nn.Linear($W, $W)
$y = F.linear($x, $f.weight.data, $f.bias)
## layer of a detached value
module: $f = nn.Linear($W, $W)
$y = $x + $f($x.detach())
## target network
module: $f = nn.Linear($W, $W)
module: $g = nn.Linear($W, $W)
after: $g.requires_grad_(False)
with torch.no_grad():
    for $p, $q in zip($g.parameters(), $f.parameters()):
        $p.lerp_($q, 0.1)
$y = $f($x) + $g($x)
## mask meets a weight
param: $p = torch.randn($W, $W)
$y = $x + ($x > 0.137).to($x) @ $p
## mask meets a layer
module: $f = nn.Linear($W, $W)
$y = $x + $f(($x > 0.137).to($x.dtype))
## weight by index
param: $p = torch.randn(2, $W)
$y = $x + $p[($x[..., 0] > 0.137).long()]
## F.embedding of a mask
param: $p = torch.randn(2, $W)
$y = $x + F.embedding(($x[..., 0] > 0.137).long(), $p)
## embedding of an argmax
module: $f = nn.Embedding($W, $W)
$y = $x + $f(($x + torch.arange($W) * 1e-3).argmax(-1))
## index_select of a weight
param: $p = torch.randn(2, $W)
$y = $x + $p.index_select(0, ($x[..., 0] > 0.137).long().flatten()).view($x.shape)
## gather of a weight
param: $p = torch.randn(2)
$y = $x * $p.gather(0, ($x > 0.137).long().flatten()).view($x.shape)
## one-hot
param: $p = torch.randn(2, $W)
$y = $x + F.one_hot(($x[..., 0] > 0.137).long(), 2).to($x) @ $p
## prototypes expanded
param: $p = torch.randn($W)
$a = $p.expand($x.shape)
$y = $x + $a
## prototypes repeated
param: $p = torch.randn(1, $W)
$a = $p.repeat($x.shape[0], 1)
$y = $x + ($a if $x.ndim == 2 else $a.unsqueeze(1))
## sizes to a layer
module: $f = nn.Linear(1, $W)
$y = $x + $f(torch.tensor([float($x.shape[0])], dtype=$x.dtype))
## layer of ones
module: $f = nn.Linear($W, $W)
$y = $x + $f(torch.ones_like($x))
## layer of a buffer
module: $f = nn.Linear($W, $W)
buffer: $b = torch.randn($W)
$y = $x * torch.sigmoid($f($b))
## layer of a parameter
module: $f = nn.Linear($W, $W)
param: $p = torch.randn($W)
$a = $f($p)
$y = $x * torch.sigmoid($a)
## hypernetwork
module: $f = nn.Linear(2, $W * $W)
param: $p = torch.randn(2)
$a = $f($p).view($W, $W)
$y = $x + 0.3 * $x @ $a
## checkpoint of a layer
module: $f = nn.Linear($W, $W)
$y = checkpoint($f, $x, use_reentrant=False)
## reentrant checkpoint of a layer
module: $f = nn.Linear($W, $W)
$y = checkpoint($f, $x, use_reentrant=True)
## checkpoint of a closure
module: $f = nn.Linear($W, $W)
$y = checkpoint(lambda t: torch.tanh($f(t)) + $x, $x, use_reentrant=False)
## functional_call
module: $f = nn.Linear($W, $W)
$y = torch.func.functional_call($f, {"weight": 2 * $f.weight, "bias": $f.bias}, ($x,))
## layer by its forward
module: $f = nn.Linear($W, $W)
$y = $f.forward($x)
## layer by its class
module: $f = nn.Linear($W, $W)
$y = nn.Linear.forward($f, $x)
## layers kept in a plain list
module: $f = nn.Linear($W, $W)
init: self.chosen_layers = [$f, nn.Tanh()]
$y = $x
for $a in self.chosen_layers:
    $y = $a($y)
## subclass with a call of its own
top: class $Twice(nn.Linear):
top:     def __call__(self, x):
top:         return 2 * super().__call__(x)
module: $f = $Twice($W, $W)
$y = $f($x)
## subclass with a forward of its own
top: class $Shifted(nn.Linear):
top:     def forward(self, x):
top:         return super().forward(x) + 0.1 * x.sum(-1, keepdim=True)
module: $f = $Shifted($W, $W)
$y = $f($x)
## forward replaced on the instance
module: $f = nn.Linear($W, $W)
after: $f.forward = types.MethodType(lambda self, x: F.linear(x, 2 * self.weight, self.bias), $f)
$y = $f($x)
## LayerNorm subclass that counts
top: class $Counted(nn.LayerNorm):
top:     def __init__(self, n):
top:         super().__init__(n)
top:         self.register_buffer("calls", torch.tensor(0))
top:     def forward(self, x):
top:         self.calls += 1
top:         return super().forward(x)
module: $f = $Counted($W)
$y = $f($x) + $x
## activation subclass
top: class $Act(nn.ReLU):
top:     def forward(self, x):
top:         return super().forward(x) + 0.1 * x
module: $f = $Act()
$y = $f($x)
## submodule with two outputs
top: class $Two(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.a, self.b = nn.Linear($W, $W), nn.Linear($W, $W)
top:     def forward(self, x):
top:         return self.a(x), self.b(x)
module: $f = $Two()
$a, $b = $f($x)
$y = $a * torch.sigmoid($b)
## submodule with a dict
top: class $Two(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.a = nn.Linear($W, $W)
top:     def forward(self, inputs):
top:         return {"out": self.a(inputs["x"]), "skip": inputs["x"]}
module: $f = $Two()
$a = $f({"x": $x})
$y = $a["out"] + $a["skip"]
## submodule with keywords
top: class $Scaled(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.a = nn.Linear($W, $W)
top:     def forward(self, x, scale=1.0, *, shift=None, **rest):
top:         y = self.a(x) * scale
top:         return y if shift is None else y + shift
module: $f = $Scaled()
$y = $f($x, scale=0.5, shift=$x.tanh())
## submodule with two inputs
top: class $Gated(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.a = nn.Linear($W, $W)
top:     def forward(self, x, gate):
top:         return self.a(x) * gate
module: $f = $Gated()
$y = $f($x, torch.sigmoid($x))
## submodule with a parameter as an input
top: class $Gated(nn.Module):
top:     def forward(self, x, gate):
top:         return x * gate
module: $f = $Gated()
param: $p = torch.randn($W)
$y = $f($x, $p)
## early return of a submodule
top: class $Early(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.a = nn.Linear($W, $W)
top:     def forward(self, x):
top:         if x.shape[0] > 4:
top:             return self.a(x)
top:         return x * 2
module: $f = $Early()
$y = $f($x)
## submodule that counts
top: class $Counter(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.register_buffer("n", torch.tensor(0.0))
top:     def forward(self, x):
top:         self.n += 1
top:         return x / (1 + self.n)
module: $f = $Counter()
$y = $f($x)
## submodule that keeps a running mean
top: class $Centred(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.register_buffer("mean", torch.zeros($W))
top:     def forward(self, x):
top:         if self.training:
top:             self.mean = 0.9 * self.mean + 0.1 * x.detach().flatten(0, -2).mean(0)
top:         return x - self.mean
module: $f = $Centred()
$y = $f($x)
## submodule that is called for its buffers alone
top: class $Seen(nn.Module):
top:     def __init__(self):
top:         super().__init__()
top:         self.register_buffer("mean", torch.zeros($W))
top:     def forward(self, x):
top:         self.mean.copy_(x.detach().flatten(0, -2).mean(0))
module: $f = $Seen()
$f($x)
$y = $x * 0.9
## layer whose output is not used
module: $f = nn.Linear($W, $W)
$f($x)
$y = $x * 0.9
## running mean by add_
buffer: $b = torch.zeros($W)
$b.mul_(0.9).add_($x.detach().flatten(0, -2).mean(0), alpha=0.1)
$y = $x - $b
## running mean by assignment
buffer: $b = torch.zeros($W)
$b = 0.9 * $b + 0.1 * $x.detach().flatten(0, -2).mean(0)
$y = $x - $b
## running mean through a view
buffer: $b = torch.zeros(2, $W)
$b[0].copy_($x.detach().flatten(0, -2).mean(0))
$y = $x - 0.1 * $b[0]
## running mean by an item
buffer: $b = torch.zeros(2, $W)
$b[1] = $x.detach().flatten(0, -2).mean(0)
$y = $x - 0.1 * $b.sum(0)
## queue
buffer: $b = torch.zeros(4, $W)
buffer: $n = torch.zeros((), dtype=torch.long)
$b[int($n) % 4] = $x.detach().flatten(0, -2)[0]
$n += 1
$y = $x + 0.1 * $b.mean(0)
## layer in place through T
module: $f = nn.Linear($W, $W)
$y = $f($x)
$y.mT.mul_(0.5)
## layer in place through chunk of a clone
module: $f = nn.Linear($W, $W)
$a = $f($x)
$y = $a.clone()
$y[..., : $W // 2] *= 0.5
$y = $y + $a
## weight in place through a view of a copy
module: $f = nn.Linear($W, $W)
$a = $f.weight.clone()
$a.fill_diagonal_(0.0)
$y = F.linear($x, $a, $f.bias)
## weight masked in place before its use
module: $f = nn.Linear($W, $W)
$f.weight.data.tril_()
$y = $f($x)
## expanded buffer in place
buffer: $b = torch.zeros(1, $W)
$a = $b.expand(3, $W)
$b.add_(1)
$y = $x + $a[0]
## layer in evaluation
module: $f = nn.Sequential(nn.Linear($W, $W), nn.Dropout(0.5))
after: $f.eval()
$y = $f($x)
## LayerNorm by name
module: $f = nn.ModuleDict({"norm": nn.LayerNorm($W), "fc": nn.Linear($W, $W)})
$y = $x
for $k, $v in $f.items():
    $y = $v($y)
## loop over children
module: $f = nn.Sequential(nn.Linear($W, $W), nn.Tanh(), nn.Linear($W, $W))
$y = $x
for $a in $f.children():
    $y = $a($y)
## loop over named_parameters
module: $f = nn.ParameterList(torch.randn($W) for _ in range(2))
$y = $x
for $k, $a in $f.named_parameters():
    $y = $y * torch.tanh($a)
## penalty of the parameters inside forward
module: $f = nn.Linear($W, $W)
$y = $f($x) + 0.1 * sum(p.square().sum() for p in $f.parameters())
## layer depth by a Python number
module: $f = nn.Linear($W, $W)
init: self.times = 2
$y = $x
for _ in range(self.times):
    $y = torch.tanh($f($y))
## fixed point
module: $f = nn.Linear($W, $W)
$y = torch.zeros_like($x)
with torch.no_grad():
    for _ in range(3):
        $y = torch.tanh($f($y) * 0.3 + $x)
$y = torch.tanh($f($y) * 0.3 + $x)
## vector quantisation
param: $p = torch.randn(4, $W)
$i = torch.cdist($x.reshape(-1, $W), $p).argmin(1)
$q = $p[$i].view($x.shape)
$y = $x + ($q - $x).detach()
## vector quantisation with codebook gradient
param: $p = torch.randn(4, $W)
$i = torch.cdist($x.reshape(-1, $W), $p).argmin(1)
$q = F.embedding($i, $p).view($x.shape)
$y = 0.5 * $x + 0.5 * $q
## top k
$v, $i = $x.topk(1, dim=-1)
$y = $x + torch.zeros_like($x).scatter(-1, $i, $v)
## complex parameter product
param: $p = torch.randn($W, 2)
$y = $x * torch.view_as_complex($p).abs()
## linear solve
param: $p = torch.randn($W, $W)
$y = $x @ torch.linalg.inv($p @ $p.T + torch.eye($W, dtype=$x.dtype))
## matrix exponential
param: $p = 0.1 * torch.randn($W, $W)
$y = $x @ torch.matrix_exp($p - $p.T)
## jvp by torch.func
module: $f = nn.Linear($W, $W)
$y = $x + 0.1 * torch.func.jvp($f, ($x,), ($x.tanh(),))[1]
""")
"""For tensors whose last dimension is the features."""

VECTORS = fragments("""
## unused BatchNorm1d
module: $f = nn.BatchNorm1d($W)
$f($x)
$y = $x * 0.9
## unused BatchNorm1d in a branch
module: $f = nn.BatchNorm1d($W)
$a = $f($x).tanh()
$y = $x * 0.9
## BatchNorm1d under no_grad
module: $f = nn.BatchNorm1d($W)
with torch.no_grad():
    $a = $f($x)
$y = $x + $a
## BatchNorm1d twice
module: $f = nn.BatchNorm1d($W)
$y = $f(torch.tanh($f($x)))
## BatchNorm1d of a detached value
module: $f = nn.BatchNorm1d($W)
$y = $x + $f($x.detach())
## BatchNorm1d put into evaluation in forward
module: $f = nn.BatchNorm1d($W)
$f.eval()
$y = $f($x)
## BatchNorm1d after a counter of its own
module: $f = nn.BatchNorm1d($W)
$f.num_batches_tracked += 1
$y = $f($x)
## SyncBatchNorm left as BatchNorm1d subclass
top: class $Norm(nn.BatchNorm1d):
top:     def forward(self, x):
top:         return 2 * super().forward(x)
module: $f = $Norm($W)
$y = $f($x)
## BatchNorm1d with a momentum set in forward
module: $f = nn.BatchNorm1d($W)
$f.momentum = 0.5
$y = $f($x)
## in place through diag
$y = $x.clone()
torch.diagonal($y).zero_()
## in place through T
$y = $x.clone()
$y.T.mul_(0.7)
## in place through permute
$y = $x.clone()
$y.permute(1, 0)[0] *= 0.7
## in place through expand of a row
$y = $x.clone()
$a = $y[:1]
$a.expand(1, $W).mul_(0.5)
## class means
param: $p = torch.randn(3, $W)
$d = torch.cdist($x, $p)
$y = $x + 0.1 * $d.softmax(1) @ $p
## batch loop with Python state
$s = 0.0
$o = []
for $row in $x:
    $s = 0.5 * $s + $row
    $o.append($s)
$y = torch.stack($o)
""")
"""For (samples, features)."""

SEQUENCES = fragments("""
## class token
param: $p = torch.randn(1, 1, $W)
$c = $p.expand($x.shape[0], -1, -1)
$y = torch.cat([$c, $x], dim=1)[:, 1:] + $c
## class token repeated
param: $p = torch.randn($W)
$c = $p.repeat($x.size(0), 1, 1)
$a = torch.cat((torch.tanh($c), $x), 1)
$y = $x + $a[:, :1]
## position by shape, first
param: $p = torch.randn(9, $W)
$a = $p[: $x.shape[1]].unsqueeze(0)
$y = torch.tanh($x) + $a
## position by arange
param: $p = torch.randn(9, $W)
$y = $x + $p[torch.arange($x.size(1))]
## position by F.embedding
param: $p = torch.randn(9, $W)
$y = $x + F.embedding(torch.arange($x.size(1)), $p)[None]
## position through a layer
module: $f = nn.Linear(1, $W)
$a = torch.arange($x.shape[1], dtype=$x.dtype)[:, None]
$y = $x + $f($a)
## relative position bias
param: $p = torch.randn(17)
$i = torch.arange($x.shape[1])
$b = $p[$i[:, None] - $i[None] + 8]
$y = $x + ($x @ $x.mT + $b).softmax(-1) @ $x
## learnt padding
param: $p = torch.randn($W)
$m = ($x[..., :1] > 0.137)
$y = torch.where($m, $x, $p)
## masked mean, made late
$m = ($x[..., :1] > -0.337).to($x.dtype)
$a = ($x * $m).sum(1) / $m.sum(1).clamp(min=1)
$y = $x + $a[:, None]
## key padding mask
module: $f = nn.MultiheadAttention($W, 1, batch_first=True)
$m = $x[..., 0] > 1.137
$m = $m & (torch.arange($x.shape[1]) > 0)
$y = $x + $f($x, $x, $x, key_padding_mask=$m, need_weights=False)[0]
## attention with float mask
$n = $x.shape[1]
$m = torch.full(($n, $n), -1e9, dtype=$x.dtype).triu(1)
$y = $x + F.scaled_dot_product_attention($x, $x, $x, attn_mask=$m)
## last position
$y = $x + $x[:, -1:]
## packed by lengths
$n = torch.full(($x.shape[0],), $x.shape[1])
$y = $x * ($n.to($x) / 5).view(-1, 1, 1)
## in place through movedim of positions
$y = $x.clone()
$y.movedim(1, 0)[0].mul_(0.5)
## in place through unflatten
$y = $x.clone()
$y.flatten(1).unflatten(1, ($T, $W)).mul_(0.5)
## in place through diagonal of positions
$y = $x.clone()
$y.diagonal(0, 1, 2).zero_()
""")
"""For (samples, positions, features)."""

IMAGES = fragments("""
## unused BatchNorm2d
module: $f = nn.BatchNorm2d($W)
$f($x)
$y = $x * 0.9
## convolution under no_grad
module: $f = nn.Conv2d($W, $W, 1)
with torch.no_grad():
    $a = $f($x)
$y = $x + $a
## convolution in place through a view
module: $f = nn.Conv2d($W, $W, 1)
$y = $f($x)
$y[:, 0].mul_(0.5)
## frozen convolution
module: $f = nn.Conv2d($W, $W, 3, padding=1)
after: $f.requires_grad_(False)
$y = $f($x)
## checkpoint of a convolution
module: $f = nn.Conv2d($W, $W, 1)
$y = checkpoint($f, $x, use_reentrant=False)
## learnt patch
param: $p = torch.randn($W, $H, $H)
$y = $x + $p.expand($x.shape[0], -1, -1, -1)
## unfold and fold
$a = F.unfold($x, 3, padding=1)
$y = F.fold($a, $x.shape[-2:], 3, padding=1) / 5
""")
"""For (samples, channels, height, width)."""

HOOKS = fragments("""
## forward hook
after: $f.register_forward_hook(lambda m, args, out: 2 * out)
## forward hook that only looks
after: $f.register_forward_hook(lambda m, args, out: None)
## forward hook that counts
after: $f.register_buffer("seen", torch.tensor(0))
after: $f.register_forward_hook(lambda m, args, out: m.seen.add_(1) and None)
## forward hook that keeps the output
after: $f.kept = {}
after: $f.register_forward_hook(lambda m, args, out: m.kept.update(out=out))
## forward hook that detaches
after: $f.register_forward_hook(lambda m, args, out: out.detach() + 0.1 * out)
## forward pre-hook
after: $f.register_forward_pre_hook(lambda m, args: (0.5 * args[0], *args[1:]))
## forward pre-hook with keywords
after: $f.register_forward_pre_hook(lambda m, args, kwargs: ((0.5 * args[0],), kwargs), with_kwargs=True)
## full backward hook
after: $f.register_full_backward_hook(lambda m, below, above: tuple(g if g is None else 2 * g for g in below))
## full backward hook that only looks
after: $f.register_full_backward_hook(lambda m, below, above: None)
## full backward pre-hook
after: $f.register_full_backward_pre_hook(lambda m, above: tuple(3 * g for g in above))
## hook on parameters
after: for p in $f.parameters(): p.register_hook(lambda g: 2 * g)
## hook on parameters that clips
after: for p in $f.parameters(): p.register_hook(lambda g: g.clamp(-0.01, 0.01))
## post-accumulate hook
after: for p in $f.parameters(): p.register_post_accumulate_grad_hook(lambda p: setattr(p, 'grad', 0.5 * p.grad))
## global forward hook
after: handles.append(nn.modules.module.register_module_forward_hook(lambda m, args, out: 1.1 * out if isinstance(m, nn.Linear) else None))
## global forward pre-hook
after: handles.append(nn.modules.module.register_module_forward_pre_hook(lambda m, args: (0.9 * args[0],) if isinstance(m, nn.Linear) else None))
## global backward hook
after: handles.append(nn.modules.module.register_module_full_backward_hook(lambda m, below, above: (2 * below[0],) if isinstance(m, nn.Linear) and below[0] is not None else None))
## frozen module
after: $f.requires_grad_(False)
## module in evaluation
after: $f.eval()
""")
"""What is done to a module `$f` once the model has been made."""
