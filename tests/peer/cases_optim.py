"""cases_optim.py -- flow.optim beside torch.optim: parameters after seven steps with given gradients."""
import torch
from peer import Case

STEPS = 7
MUON = 1.0
cases = []


def lua_of(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "{" + ", ".join(lua_of(x) for x in value) + "}"
    return repr(value) if not isinstance(value, str) else f'"{value}"'


def given(shape):
    """A parameter, and a gradient for each step."""
    def make(random, dtype):
        p = torch.randn(shape, generator=random, dtype=torch.float64)
        g = torch.randn((STEPS,) + shape, generator=random, dtype=torch.float64)
        return [p.to(dtype), g.to(dtype)]
    return make


def steps(name, **options):
    fields = ", ".join(f"{key} = {lua_of(value)}" for key, value in options.items() if value is not None)
    lua = (f"local p = flow.nn.Parameter(a:clone()) local opt = flow.optim.{name}({{p}}, {{{fields}}}) "
           f"for t = 0, {STEPS - 1} do p.grad = b:select(0, t):clone() opt:step() end return p:detach()")

    def function(a, b):
        p = torch.nn.Parameter(a.detach().clone())
        optimizer = getattr(torch.optim, name)([p], **options)
        for t in range(STEPS):
            p.grad = b[t].detach().clone()
            optimizer.step()
        return p.detach()
    return lua, function


def add(name, shapes=((3, 4), (5,), (), (0, 2), (2, 1, 3)), dtypes=(torch.float64, torch.float32), tolerance=1.0,
        **options):
    lua, function = steps(name, **options)
    for shape in shapes:
        text = " ".join(f"{key}={value}" for key, value in options.items())
        cases.append(Case(f"{name} {text} {list(shape)}", lua, function, given(shape), order=0, dtypes=dtypes,
                          tolerance=tolerance))


SOME = ((3, 4), (5,), (), (2, 1, 3))    # PyTorch's Adafactor divides by the number of elements
BOTH = [dict(), dict(maximize=True)]
for way in BOTH:
    add("SGD", lr=0.1, **way)
    add("SGD", lr=0.1, momentum=0.9, weight_decay=0.1, **way)
    add("SGD", lr=0.1, momentum=0.9, dampening=0.5, **way)
    add("SGD", lr=0.1, momentum=0.9, nesterov=True, **way)
    for name in ("Adam", "AdamW"):
        for amsgrad in (False, True):
            add(name, lr=0.1, weight_decay=0.1, amsgrad=amsgrad, **way)
            add(name, lr=0.1, betas=(0.5, 0.7), eps=1e-3, amsgrad=amsgrad, **way)
    for momentum in (0, 0.9):
        for centered in (False, True):
            add("RMSprop", lr=0.1, momentum=momentum, centered=centered, weight_decay=0.1, **way)
            add("RMSprop", lr=0.01, alpha=0.5, eps=1e-3, momentum=momentum, centered=centered, **way)
    add("Adagrad", lr=0.1, **way)
    add("Adagrad", lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-5, **way)
    add("Adadelta", **way)
    add("Adadelta", lr=0.5, rho=0.7, eps=1e-3, weight_decay=0.1, **way)
    add("Adamax", **way)
    add("Adamax", lr=0.1, betas=(0.5, 0.7), eps=1e-3, weight_decay=0.1, **way)
    for decoupled in (False, True):
        add("NAdam", lr=0.1, weight_decay=0.1, decoupled_weight_decay=decoupled, momentum_decay=0.1, **way)
        add("RAdam", lr=0.1, betas=(0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=decoupled, **way)
        add("Adam", lr=0.1, weight_decay=0.1, decoupled_weight_decay=decoupled, **way)
    add("NAdam", **way)
    add("RAdam", **way)
    add("Rprop", **way)
    add("Rprop", lr=0.1, etas=(0.3, 1.5), step_sizes=(0.01, 0.2), **way)
    add("ASGD", **way)
    add("ASGD", lr=0.1, lambd=0.1, alpha=0.5, t0=2, weight_decay=0.1, **way)
    add("Adafactor", shapes=SOME, lr=0.1, **way)
    add("Adafactor", shapes=SOME, lr=0.1, beta2_decay=-0.5, d=2.0, weight_decay=0.1, eps=(1e-4, 1e-2), **way)

# Steps in 16 bits round differently: flow computes in float32 and rounds once.
for name in ("SGD", "AdamW", "RMSprop", "Adagrad", "RAdam"):
    add(name, shapes=((3, 4),), lr=0.1, dtypes=(torch.bfloat16, torch.float16), tolerance=3.0)

# If a sum is at a tie of bfloat16 the order of adding decides: one unit of it moves the next products.
for adjust in (None, "original", "match_rms_adamw", "spectral_unclamped"):
    add("Muon", shapes=((6, 4), (4, 6), (5, 5), (1, 3)), lr=0.1, adjust_lr_fn=adjust, dtypes=(torch.float32,),
        tolerance=MUON)
add("Muon", shapes=((6, 4), (8, 16)), lr=0.1, nesterov=False, momentum=0.5, weight_decay=0.3, ns_steps=3,
    ns_coefficients=(2.9, -4.1, 2.2), dtypes=(torch.float32,), tolerance=MUON)
add("Muon", shapes=((3,), (2, 2, 2)), dtypes=(torch.float32,))


def lbfgs(**options):
    """Rosenbrock's valley from a random point, two steps."""
    fields = ", ".join(f"{key} = {lua_of(value)}" for key, value in options.items())
    lua = (f"local p = flow.nn.Parameter(a:clone()) local opt = flow.optim.LBFGS({{p}}, {{{fields}}}) "
           "local function f() opt:zero_grad() local x, y = p:narrow(0, 0, 3), p:narrow(0, 1, 3) "
           "local loss = ((y - x * x):square() * 4 + (x - 1):square()):sum() loss:backward() return loss end "
           "opt:step(f) opt:step(f) return p:detach()")

    def function(a):
        p = torch.nn.Parameter(a.detach().clone())
        optimizer = torch.optim.LBFGS([p], **options)

        def closure():
            optimizer.zero_grad()
            x, y = p[0:3], p[1:4]
            loss = ((y - x * x).square() * 4 + (x - 1).square()).sum()
            loss.backward()
            return loss
        optimizer.step(closure)
        optimizer.step(closure)
        return p.detach()

    def make(random, dtype):
        return [torch.randn(4, generator=random, dtype=torch.float64).to(dtype)]
    for number in range(3):
        cases.append(Case(f"LBFGS {options} {number}", lua, function, make, order=0, dtypes=(torch.float64,),
                          tolerance=10.0))


lbfgs(lr=0.05)
lbfgs(lr=0.05, max_iter=5, history_size=3)
lbfgs(line_search_fn="strong_wolfe")
lbfgs(line_search_fn="strong_wolfe", max_iter=7, max_eval=9, history_size=2)
