"""cases_random.py -- what does not depend on chance: shapes, dtypes, certain outcomes, errors."""
import torch
from peer import Case

cases = []


def numbers(*rows):
    return lambda random, dtype: [torch.tensor(row, dtype=torch.float64).to(dtype) for row in rows]


def add(name, lua, function, *rows, **options):
    cases.append(Case(name, "return " + lua, function, numbers(*rows), order=0, **options))


add("bernoulli of certain chances", "a:bernoulli()", torch.bernoulli, [[0.0, 1.0], [1.0, 0.0]])
add("bernoulli p", "a:bernoulli(1)", lambda a: torch.bernoulli(a, 1.0), [0.3, 5.0, -1.0])
add("bernoulli wrong", "a:bernoulli()", torch.bernoulli, [0.3, 1.5])
add("bernoulli p wrong", "a:bernoulli(1.5)", lambda a: torch.bernoulli(a, 1.5), [0.3])
add("bernoulli_", "a:clone():bernoulli_(0)", lambda a: a.clone().bernoulli_(0.0), [0.3, 5.0])
add("poisson of 0", "a:poisson()", torch.poisson, [[0.0, 0.0]])
add("poisson wrong", "a:poisson()", torch.poisson, [1.0, -1.0])
add("binomial", "flow.binomial(a, b)", torch.binomial, [[3.0], [7.0]], [0.0, 1.0])
add("gamma shapes", "a:standard_gamma():gt(0)", lambda a: torch._standard_gamma(a) > 0, [[0.5, 1.0], [2.0, 50.0]])
add("multinomial", "a:multinomial(1)", lambda a: torch.multinomial(a, 1), [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
add("multinomial replacement", "a:multinomial(5, true)", lambda a: torch.multinomial(a, 5, True), [0.0, 0.0, 3.0])
add("multinomial of all", "a:multinomial(3):sum(-1)", lambda a: torch.multinomial(a, 3).sum(-1), [[0.1, 1.0, 5.0]])
add("multinomial too many", "a:multinomial(4)", lambda a: torch.multinomial(a, 4), [0.1, 1.0, 5.0])
add("multinomial too few", "a:multinomial(2)", lambda a: torch.multinomial(a, 2), [0.0, 0.0, 0.0])
add("multinomial negative", "a:multinomial(2)", lambda a: torch.multinomial(a, 2), [1.0, -1.0, 3.0])
add("multinomial nan", "a:multinomial(2, true)", lambda a: torch.multinomial(a, 2, True), [1.0, float("nan"), 3.0])
add("multinomial of 3 axes", "a:multinomial(1)", lambda a: torch.multinomial(a, 1), [[[1.0]]])
add("random_", "a:clone():random_(3, 4)", lambda a: a.clone().random_(3, 4), [0.3, 5.0])
add("random_ to", "a:clone():random_(1)", lambda a: a.clone().random_(1), [0.3, 5.0])
add("random_ wrong", "a:clone():random_(4, 4)", lambda a: a.clone().random_(4, 4), [0.3, 5.0])
for name, wrong in (("exponential_", "0"), ("geometric_", "0"), ("geometric_", "1"), ("log_normal_", "0, 0"), ("cauchy_", "0, 0")):
    add(f"{name} wrong", f"a:clone():{name}({wrong})",
        lambda a, n=name, w=wrong: getattr(a.clone(), n)(*map(float, w.split(","))), [0.3, 5.0])
add("exponential_", "a:clone():exponential_():ge(0)", lambda a: a.clone().exponential_() >= 0, [0.3, 5.0])
add("geometric_", "a:clone():geometric_(0.3):ge(1)", lambda a: a.clone().geometric_(0.3) >= 1, [0.3, 5.0])
add("normal", "flow.normal(a, 0)", lambda a: torch.normal(a, 0.0), [0.3, 5.0])
add("normal of tensors", "flow.normal(a, b * 0)", lambda a, b: torch.normal(a, b * 0), [[0.3], [5.0]], [1.0, 2.0])
add("normal std", "flow.normal(2, a * 0)", lambda a: torch.normal(2.0, a * 0), [0.3, 5.0])
add("normal size", "flow.normal(2, 0, {2, 3}, {dtype = a.dtype})", lambda a: torch.normal(2.0, 0.0, (2, 3), dtype=a.dtype), [0.3])
add("normal wrong", "flow.normal(a, -1)", lambda a: torch.normal(a, -1.0), [0.3])
add("like", "flow.rand_like(a):lt(1), flow.randn_like(a):eq(flow.zeros_like(a)), flow.randint_like(a, 3, 4)",
    lambda a: (torch.rand_like(a) < 1, torch.randn_like(a) == 0, torch.randint_like(a, 3, 4)), [[0.3, 5.0]])
add("randperm", "flow.randperm(20):sum()", lambda a: torch.randperm(20).sum(), [0.3])
