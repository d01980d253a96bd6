"""cases_func.py -- functions of functions, fractional pooling and the adaptive softmax beside PyTorch."""
import torch
from peer import Case
from torch import func

cases = []


def general(*shapes):
    return lambda random, dtype: [torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes]


def add(name, lua, function, *inputs, **options):
    for number, make in enumerate(inputs):
        cases.append(Case(f"{name}:{number}", lua, function, make, **options))


three = general((3,), (3,))
add("grad", "return flow.func.grad(function(x) return (x:sin() * x):sum() end)(a)",
    func.grad(lambda x: (x.sin() * x).sum()), general((4,)), general((2, 3)), order=1)
add("grad of grad", "return flow.func.grad(function(x) return flow.func.grad(function(y) return (y ^ 3):sum() end)(x):sum() end)(a)",
    func.grad(lambda x: func.grad(lambda y: (y ** 3).sum())(x).sum()), general((4,)), order=1)
add("grad by two", "return table.unpack(flow.func.grad(function(x, y) return (x * y:exp()):sum() end, {argnums = {0, 1}})(a, b))",
    func.grad(lambda x, y: (x * y.exp()).sum(), argnums=(0, 1)), three)
add("grad_and_value", "return flow.func.grad_and_value(function(x, y) return (x * y):sum() end, {argnums = 1})(a, b)",
    func.grad_and_value(lambda x, y: (x * y).sum(), argnums=1), three)
add("has_aux", "return flow.func.grad(function(x) return x:sum(), x * 2 end, {has_aux = true})(a)",
    func.grad(lambda x: (x.sum(), x * 2), has_aux=True), general((3,)), order=0)
add("perturbation", "return flow.func.grad(function(x) return (x * flow.func.grad(function(y) return (y * y * x):sum() end)(x)):sum() end)(a)",
    func.grad(lambda x: (x * func.grad(lambda y: (y * y * x).sum())(x)).sum()), general((3,)), order=1)
add("jacrev", "return flow.func.jacrev(function(x, y) return (x * y):tanh() end)(a, b), flow.func.jacfwd(function(x, y) return (x * y):tanh() end, {argnums = 1})(a, b)",
    lambda a, b: (func.jacrev(lambda x, y: (x * y).tanh())(a, b), func.jacfwd(lambda x, y: (x * y).tanh(), argnums=1)(a, b)),
    three, general((2, 3), (3,)), order=1)
add("hessian", "return flow.func.hessian(function(x) return (x:sin() * x ^ 2):sum() end)(a)",
    func.hessian(lambda x: (x.sin() * x ** 2).sum()), general((3,)), general((2, 2)), order=0)
add("jvp", "return flow.func.jvp(function(x, y) return x:sin() * y end, {a, b}, {b, a})",
    lambda a, b: func.jvp(lambda x, y: x.sin() * y, (a, b), (b, a)), three, order=0)
add("vjp", "local y, pull = flow.func.vjp(function(x, y) return x:sin() * y end, a, b) return y, pull(a)",
    lambda a, b: (lambda y, pull: (y, *pull(a)))(*func.vjp(lambda x, y: x.sin() * y, a, b)), three, order=0)
add("hvp", "return flow.func.hvp(function(x) return (x ^ 4):sum() end, a, b)",
    lambda a, b: torch.autograd.functional.hvp(lambda x: (x ** 4).sum(), a, b), three, order=0)
add("functional_call", "return flow.func.functional_call(flow.nn.Linear(3, 2):to(a.dtype), {weight = b, bias = c}, a)",
    lambda a, b, c: func.functional_call(torch.nn.Linear(3, 2).to(a.dtype), {"weight": b, "bias": c}, (a,)),
    general((4, 3), (2, 3), (2,)))

# orthogonal parametrizations, and layers with the normalisation behind them
O = torch.nn.utils.parametrizations.orthogonal


def orthogonal(a, map_, trivial):
    net = torch.nn.Linear(a.shape[1], a.shape[0], bias=False).to(a.dtype)
    with torch.no_grad():
        net.weight.copy_(a)
    return O(net, "weight", map_, use_trivialization=trivial)


for map_ in ("matrix_exp", "cayley", "householder"):
    begin = (f"local net = flow.nn.Linear(a:size(1), a:size(0), false):to(a.dtype) flow.no_grad(function() net.weight:copy_(a) end) "
             f"flow.nn.utils.parametrizations.orthogonal(net, 'weight', '{map_}', {{use_trivialization = %s}}) ")
    add(f"orthogonal {map_}", begin % "true" + "return net.weight:detach(), net.parametrizations.weight.original:detach()",
        lambda a, m=map_: (lambda net: (net.weight.detach(), net.parametrizations.weight.original.detach()))(orthogonal(a, m, True)),
        general((3, 3)), general((4, 3)), general((2, 4)), order=0)
    add(f"orthogonal {map_} without base", begin % "false" + "return net.weight:detach(), net.parametrizations.weight[1](b:tril(-1) - flow.eye(a:size(0), a:size(1), {dtype = a.dtype}))",
        lambda a, b, m=map_: (lambda net: (net.weight.detach(), net.parametrizations.weight[0](
            b.tril(-1) - torch.eye(*a.shape, dtype=a.dtype))))(orthogonal(a, m, False)),
        general((3, 3), (3, 3)), general((4, 3), (4, 3)), general((2, 4), (2, 4)), tolerance=10)
U = torch.nn.utils
add("fuse_conv_bn_weights", "local s = flow.tensor({0.5, 1, 2}, {dtype = a.dtype}) local w, v = flow.nn.utils.fuse_conv_bn_weights(a:detach(), b:detach(), s - 1, s, 1e-5, s * 2, b:detach() + 1) return w:detach(), v:detach()",
    lambda a, b: (lambda s: tuple(x.detach() for x in U.fuse_conv_bn_weights(a, b, s - 1, s, 1e-5, s * 2, b + 1)))(
        torch.tensor([0.5, 1, 2], dtype=a.dtype)), general((3, 2, 3, 3), (3,)), order=0)
add("get_total_norm", "return flow.nn.utils.get_total_norm({a, b}), flow.nn.utils.get_total_norm({a, b}, math.huge), flow.nn.utils.get_total_norm({a, b}, 1)",
    lambda a, b: (U.get_total_norm([a, b]), U.get_total_norm([a, b], float("inf")), U.get_total_norm([a, b], 1.0)), three, order=0)

# of a batch
add("vmap", "return flow.vmap(function(x, y) return x * y:sum(), x:sin() end)(a, b)",
    torch.vmap(lambda x, y: (x * y.sum(), x.sin())), general((4, 3), (4, 2)), general((2, 3, 2), (2, 1)))
add("vmap in_dims", "return flow.vmap(function(x, y) return x:dot(y) end, {in_dims = {1, false}})(a, b)",
    torch.vmap(lambda x, y: x.dot(y), in_dims=(1, None)), general((3, 4), (3,)))
add("vmap out_dims", "return flow.vmap(function(x) return x:sin(), x:cos() end, {out_dims = {1, -1}})(a)",
    torch.vmap(lambda x: (x.sin(), x.cos()), out_dims=(1, -1)), general((4, 3, 2)))
add("vmap of grad", "return flow.vmap(flow.func.grad(function(w, x) return (w * x):tanh():sum() end), {in_dims = {false, 0}})(a, b)",
    torch.vmap(func.grad(lambda w, x: (w * x).tanh().sum()), in_dims=(None, 0)), general((3,), (5, 3)))
add("vmap of tables", "return flow.vmap(function(p) return p.w * p.b end, {in_dims = {{w = 0, b = false}}})({w = a, b = b})",
    lambda a, b: torch.vmap(lambda p: p["w"] * p["b"], in_dims=({"w": 0, "b": None},))({"w": a, "b": b}), general((4, 3), (3,)))
add("grad of what is around", "return flow.func.grad(function(x) return (x:sin() * a):sum() end)(b)",
    lambda a, b: func.grad(lambda x: (x.sin() * a).sum())(b), three)
add("linearize", "local y, f = flow.func.linearize(function(x) return x:sin() * x end, a) return y, f(b), f(a)",
    lambda a, b: (lambda y, f: (y, f(b), f(a)))(*func.linearize(lambda x: x.sin() * x, a)), three, order=0)
F = torch.autograd.functional
add("autograd.functional.jacobian", "local F = flow.autograd.functional return F.jacobian(function(x) return x:sin():outer(x) end, a), "
    "table.unpack(F.jacobian(function(x, y) return x * y end, {a, b}))",
    lambda a, b: (F.jacobian(lambda x: x.sin().outer(x), a), *F.jacobian(lambda x, y: x * y, (a, b))), three, order=1)
add("autograd.functional.jacobian create_graph", "return flow.autograd.functional.jacobian(function(x) return x ^ 3 * b end, a, {create_graph = true})",
    lambda a, b: F.jacobian(lambda x: x ** 3 * b, a, create_graph=True), three)
add("autograd.functional.hessian", "local F = flow.autograd.functional local h = F.hessian(function(x, y) return (x ^ 3 * y):sum() end, {a, b}) "
    "return F.hessian(function(x) return (x ^ 3):sum() end, a), h[1][1], h[1][2], h[2][1], h[2][2]",
    lambda a, b: (lambda h: (F.hessian(lambda x: (x ** 3).sum(), a), *h[0], *h[1]))(
        F.hessian(lambda x, y: (x ** 3 * y).sum(), (a, b))), three, order=1)
for name in ("vjp", "jvp"):
    add("autograd.functional." + name, f"local F = flow.autograd.functional return F.{name}(function(x) return x:sin() * x end, a, b)",
        lambda a, b, f=getattr(F, name): f(lambda x: x.sin() * x, a, b), three, order=1)
for name in ("hvp", "vhp"):
    add("autograd.functional." + name, f"local F = flow.autograd.functional return F.{name}(function(x) return (x ^ 4):sum() end, a, b)",
        lambda a, b, f=getattr(F, name): f(lambda x: (x ** 4).sum(), a, b), three, order=1)
add("autograd.backward", "local x = a:detach():requires_grad_() flow.autograd.backward({x:sin(), (x * x):sum()}, {b, flow.ones({}, {dtype = a.dtype})}) return x.grad",
    lambda a, b: (lambda x: (torch.autograd.backward([x.sin(), (x * x).sum()], [b, torch.ones((), dtype=a.dtype)]), x.grad)[1])(
        a.detach().requires_grad_()), three, order=0)


def samples(n, c, axes):
    return [[[((7 * i + 3 * j + 5 * k) % 10) / 10 for k in range(axes)] for j in range(c)] for i in range(n)]


def table(value):
    return "{" + ", ".join(table(v) for v in value) + "}" if isinstance(value, list) else str(value)


for axes, shape, kernel, out in ((2, (2, 3, 9, 8), 2, [4, 5]), (2, (2, 3, 7, 7), 3, [1, 5]), (3, (2, 2, 6, 7, 8), 2, [3, 4, 5])):
    u, name = samples(shape[0], shape[1], axes), f"fractional_max_pool{axes}d"
    lua = (f"return flow.nn.functional.{name}(a, {kernel}, {{output_size = {table(out)}, return_indices = true, "
           f"_random_samples = flow.tensor({table(u)}, {{dtype = a.dtype}})}})")
    add(name, lua, lambda a, n=name, k=kernel, o=out, u=u: getattr(torch.nn.functional, n)(
        a, k, output_size=o, return_indices=True, _random_samples=torch.tensor(u, dtype=a.dtype)), general(shape), order=1)


def adaptive(a, b, c):
    net = torch.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], div_value=2.0).to(a.dtype)
    weights = {"head.weight": b, "tail.0.0.weight": c, "tail.0.1.weight": c[:, :3].t(),
               "tail.1.0.weight": c[:1], "tail.1.1.weight": c[:1, :3].t()}
    out, loss = func.functional_call(net, weights, (a, torch.tensor([1, 8, 4, 3, 0])))
    return out, loss


add("AdaptiveLogSoftmaxWithLoss", """
local net = flow.nn.AdaptiveLogSoftmaxWithLoss(4, 9, {3, 6}, {div_value = 2}):to(a.dtype)
local d = c:narrow(1, 0, 3):t()
local names, given = {}, {b, c, d, c:narrow(0, 0, 1), d:narrow(1, 0, 1)}
for name in net:named_parameters() do names[#names + 1] = name end
local weights = {}
for i, name in ipairs(names) do weights[name] = given[i] end
return flow.func.functional_call(net, weights, a, flow.tensor{1, 8, 4, 3, 0})""", adaptive,
    general((5, 4), (5, 4), (2, 4)))
