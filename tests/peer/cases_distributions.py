"""cases_distributions.py -- flow.distributions beside torch.distributions: densities, entropies, moments, divergences.

A case has the parameters as a, b, c and the value as a constant; D is flow.distributions.
"""
import torch
from peer import Case

P = torch.distributions
cases = []


def numbers(*rows):
    return lambda random, dtype: [torch.tensor(row, dtype=torch.float64).to(dtype) for row in rows]


def lua(value):
    if isinstance(value, (list, tuple)):
        return "{" + ", ".join(map(lua, value)) + "}"
    return repr(float(value))


def one(name, parameters, value, torch_of, lua_of=None, fields=("mean", "variance", "stddev", "mode"),
        methods=("entropy",), inverse=True, order=2, dtypes=(torch.float64, torch.float32)):
    """A distribution: its log_prob, and what else it has."""
    letters = "abc"[:len(parameters)]
    make = lua_of or f"D.{name}({', '.join(letters)})"
    begin = f"local D = flow.distributions local d = {make} local v = flow.tensor({lua(value)}, {{dtype = a.dtype}}) "

    def add(what, text, f, order=order, **options):
        def call(*args):
            return f(torch_of(*args), torch.tensor(value, dtype=torch.float64).to(args[0].dtype))
        cases.append(Case(f"{name} {what}", begin + text, call, numbers(*parameters), order=order, dtypes=dtypes, **options))
    add("log_prob", "return d:log_prob(v)", lambda d, v: d.log_prob(v))
    for method in methods:
        add(method, f"return d:{method}()", lambda d, v, m=method: getattr(d, m)())
    for field in fields:
        add(field, f"return d.{field}", lambda d, v, f=field: getattr(d, f), order=0 if field == "mode" else order)
    add("shapes", "return flow.tensor(d:sample({2, 3}).shape)", lambda d, v: torch.tensor(d.sample((2, 3)).shape), order=0)
    if inverse:
        add("cdf", "return d:cdf(v)", lambda d, v: d.cdf(v))
        add("icdf", "return d:icdf((v * 0 + 0.3))", lambda d, v: d.icdf(v * 0 + 0.3))


two = ([0.5, -1.0, 3.0], [2.0, 0.7, 1.0])
up = ([0.5, 3.0, 1.5], [2.0, 0.7, 4.0])
at = [0.3, 1.5, 2.0]
part = [0.3, 0.8, 0.5001]
inside = [0.2, 0.9, 0.4]
rows = [[0.5, 3.0, 1.0], [2.0, 0.7, 4.0]]

for name in ("Normal", "Laplace", "Gumbel", "LogNormal", "Cauchy"):
    one(name, two, at, getattr(P, name), inverse=name != "LogNormal" or True)
for name in ("HalfNormal", "HalfCauchy"):
    one(name, ([0.5, 3.0, 1.5],), at, getattr(P, name))
one("StudentT", ([7.0, 9.0, 2.5],) + two, at, P.StudentT, inverse=False)
one("StudentT", ([1.0, 0.5, 2.0],) + two, at, P.StudentT, inverse=False, fields=("mean", "variance"), methods=())
one("Uniform", ([0.1, -1.0, 1.5], [2.0, 1.7, 4.0]), at, P.Uniform, fields=("mean", "variance", "stddev"))
one("Gamma", up, at, P.Gamma, inverse=False)
one("Chi2", ([0.5, 3.0, 1.5],), at, P.Chi2, inverse=False)
one("Exponential", ([0.5, 3.0, 1.5],), at, P.Exponential)
one("Beta", ([1.5, 3.0, 1.5], [2.0, 1.7, 4.0]), inside, P.Beta, inverse=False)
one("Dirichlet", (rows,), [[0.3, 0.2, 0.5], [0.1, 0.1, 0.8]], P.Dirichlet, inverse=False)
one("Weibull", up, at, P.Weibull, fields=("mean", "variance", "stddev"))
one("Pareto", ([0.1, 1.0, 1.5], [6.0, 2.7, 1.0]), at, P.Pareto, fields=("mean", "mode"))
one("Kumaraswamy", up, inside, P.Kumaraswamy, fields=("mean", "variance"))
one("VonMises", ([0.5, -1.0, 3.0], [2.0, 0.7, 9.0]), at, P.VonMises, fields=("mean", "variance"), methods=(), inverse=False)
one("Bernoulli", (part,), [0.0, 1.0, 1.0], P.Bernoulli, inverse=False)
one("Bernoulli logits", ([0.5, -3.0, 1.5],), [0.0, 1.0, 1.0], lambda a: P.Bernoulli(logits=a), "D.Bernoulli {logits = a}",
    inverse=False, fields=("mean", "variance", "probs"))
one("Geometric", (part,), [0.0, 3.0, 1.0], P.Geometric, inverse=False)
one("Poisson", ([0.5, 3.2, 100.0],), [0.0, 3.0, 90.0], P.Poisson, inverse=False, methods=())
one("Binomial", (part,), [0.0, 7.0, 4.0], lambda a: P.Binomial(7, a), "D.Binomial(7, a)", inverse=False)
one("Binomial logits", ([0.5, -3.0, 1.5],), [0.0, 7.0, 4.0], lambda a: P.Binomial(7, logits=a),
    "D.Binomial(7, {logits = a})", inverse=False)
one("NegativeBinomial", ([3.0, 5.0, 0.5], part), [0.0, 7.0, 4.0], P.NegativeBinomial, inverse=False, methods=())
one("ContinuousBernoulli", (part,), inside, P.ContinuousBernoulli, fields=("mean", "variance", "stddev"))
one("Categorical", (rows,), [0.0, 2.0], P.Categorical, inverse=False, fields=("mode",))
one("Categorical logits", (rows,), [0.0, 2.0], lambda a: P.Categorical(logits=a), "D.Categorical {logits = a}",
    inverse=False, fields=("probs",))
one("OneHotCategorical", (rows,), [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], P.OneHotCategorical, inverse=False)
one("Multinomial", (rows,), [[1.0, 2.0, 2.0], [0.0, 0.0, 5.0]], lambda a: P.Multinomial(5, a), "D.Multinomial(5, {probs = a})",
    inverse=False, fields=("mean", "variance"))
one("RelaxedBernoulli", (part, [0.6, 0.6, 0.6]), inside, lambda a, b: P.RelaxedBernoulli(b[0], a),
    "D.RelaxedBernoulli(b[0], {probs = a})", inverse=False, fields=(), methods=())
one("RelaxedOneHotCategorical", (rows, [0.6]), [[0.3, 0.2, 0.5], [0.1, 0.1, 0.8]],
    lambda a, b: P.RelaxedOneHotCategorical(b[0], a), "D.RelaxedOneHotCategorical(b[0], {probs = a})", inverse=False,
    fields=(), methods=())
matrix = [[2.0, 0.3], [0.3, 1.0]]
many = [[0.5, -1.0], [0.3, 1.0], [2.0, 2.0]]
one("MultivariateNormal", ([0.5, -1.0], matrix), many, P.MultivariateNormal, inverse=False,
    fields=("mean", "variance", "covariance_matrix", "precision_matrix", "scale_tril"))
one("MultivariateNormal precision", ([0.5, -1.0], matrix), many, lambda a, b: P.MultivariateNormal(a, precision_matrix=b),
    "D.MultivariateNormal(a, {precision_matrix = b})", inverse=False, fields=("variance", "covariance_matrix", "scale_tril"))
one("MultivariateNormal tril", ([0.5, -1.0], [[2.0, 0.0], [0.3, 1.0]]), many,
    lambda a, b: P.MultivariateNormal(a, scale_tril=b), "D.MultivariateNormal(a, {scale_tril = b})", inverse=False,
    fields=("variance", "covariance_matrix"))
one("LowRankMultivariateNormal", ([0.5, -1.0, 2.0], [[1.0], [0.5], [-2.0]], [1.0, 0.4, 2.0]),
    [[0.5, -1.0, 0.0], [0.3, 1.0, 1.0]], P.LowRankMultivariateNormal, inverse=False,
    fields=("mean", "variance", "covariance_matrix", "scale_tril", "precision_matrix"))
one("Independent", ([[0.5, -1.0], [3.0, 1.0]], [[2.0, 0.7], [1.0, 1.0]]), [[0.3, 1.5], [0.1, 0.2]],
    lambda a, b: P.Independent(P.Normal(a, b), 1), "D.Independent(D.Normal(a, b), 1)", inverse=False)
one("MixtureSameFamily", ([0.4, 0.2, 0.4],) + two, [0.3, 1.0], lambda p, a, b: P.MixtureSameFamily(P.Categorical(p), P.Normal(a, b)),
    "D.MixtureSameFamily(D.Categorical(a), D.Normal(b, c))", fields=("mean", "variance"), methods=(), inverse=False)
one("MixtureSameFamily vectors", ([0.4, 0.6], [[0.5, -1.0], [3.0, 1.0]]), [[0.3, 1.5], [0.1, 0.2]],
    lambda p, a: P.MixtureSameFamily(P.Categorical(p), P.Independent(P.Normal(a, torch.ones_like(a)), 1)),
    "D.MixtureSameFamily(D.Categorical(a), D.Independent(D.Normal(b, 1), 1))", fields=("mean", "variance"), methods=(),
    inverse=False)

one("FisherSnedecor", ([5.0, 3.0, 1.5], [12.0, 9.0, 4.5]), at, P.FisherSnedecor, inverse=False, methods=())
one("InverseGamma", ([0.5, 3.0, 2.5], [2.0, 0.7, 4.0]), at, P.InverseGamma, inverse=False)
one("LogisticNormal", two, [0.2, 0.1, 0.3, 0.4], lambda a, b: P.LogisticNormal(a, b), inverse=False, fields=(), methods=())
one("GeneralizedPareto", ([0.1, 0.2, 1.5], [2.0, 0.7, 1.0], [0.2, -0.1, 0.0]), at, P.GeneralizedPareto,
    fields=("mean", "variance", "mode"), dtypes=(torch.float32,))  # of float64 PyTorch compares with a float32 0
positive = [[9.0, 1.0], [1.0, 6.0]]
one("Wishart", ([7.0, 5.5], matrix), positive, P.Wishart, inverse=False,
    fields=("mean", "variance", "mode", "covariance_matrix", "precision_matrix"))
one("Wishart precision", ([7.0], matrix), positive, lambda a, b: P.Wishart(a, precision_matrix=b),
    "D.Wishart(a, {precision_matrix = b})", inverse=False, fields=("mean", "scale_tril"))
one("LKJCholesky", ([0.6, 3.0],), [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]], lambda a: P.LKJCholesky(3, a),
    "D.LKJCholesky(3, a)", inverse=False, fields=(), methods=())

# transforms: of a value, and as a distribution
T = P.transforms
points = [[0.3, -1.5, 0.9], [1.1, 0.2, -0.4]]
for text, make in {
    "ExpTransform()": T.ExpTransform, "SigmoidTransform()": T.SigmoidTransform, "TanhTransform()": T.TanhTransform,
    "SoftplusTransform()": T.SoftplusTransform, "AffineTransform(0.5, -2)": lambda: T.AffineTransform(0.5, -2.0),
    "AffineTransform(0.5, 3, 1)": lambda: T.AffineTransform(0.5, 3.0, 1), "StickBreakingTransform()": T.StickBreakingTransform,
    "ComposeTransform {T.TanhTransform(), T.ExpTransform(), T.PowerTransform(1.5)}":
        lambda: T.ComposeTransform([T.TanhTransform(), T.ExpTransform(), T.PowerTransform(torch.tensor(1.5))]),
    "ComposeTransform {T.ExpTransform(), T.AffineTransform(1, 2, 1)}":
        lambda: T.ComposeTransform([T.ExpTransform(), T.AffineTransform(1.0, 2.0, 1)]),
    "IndependentTransform(T.ExpTransform(), 1)": lambda: T.IndependentTransform(T.ExpTransform(), 1),
    "ReshapeTransform({3}, {3, 1})": lambda: T.ReshapeTransform((3,), (3, 1)),
    "AffineTransform(1, 2).inv": lambda: T.AffineTransform(1.0, 2.0).inv, "CorrCholeskyTransform()": T.CorrCholeskyTransform,
    "CatTransform({T.ExpTransform(), T.TanhTransform()}, -1, {2, 1})":
        lambda: T.CatTransform([T.ExpTransform(), T.TanhTransform()], -1, [2, 1]),
    "StackTransform({T.ExpTransform(), T.TanhTransform()}, 0)": lambda: T.StackTransform([T.ExpTransform(), T.TanhTransform()], 0),
}.items():
    def call(a, make=make):
        t = make()
        y = t(a)
        return y, t.inv(y), t.log_abs_det_jacobian(a, y)
    cases.append(Case("transform " + text, f"local T = flow.distributions.transforms local t = T.{text} "
                      "local y = t(a) return y, t.inv(y), t:log_abs_det_jacobian(a, y)", call, numbers(points), tolerance=10))

    def density(a, make=make):
        t = make()
        d = P.TransformedDistribution(P.Normal(a, 1.0), [t], validate_args=False)
        return d.log_prob(t(torch.full_like(a, 0.2))), torch.tensor(list(d.batch_shape) + [-1] + list(d.event_shape))
    cases.append(Case("transformed by " + text, "local D = flow.distributions local T = D.transforms local t = T." + text +
                      " local d = D.TransformedDistribution(D.Normal(a, 1), {t}, false) local s = {} "
                      "for _, n in ipairs(d.batch_shape) do s[#s + 1] = n end s[#s + 1] = -1 "
                      "for _, n in ipairs(d.event_shape) do s[#s + 1] = n end "
                      "return d:log_prob(t(flow.full_like(a, 0.2))), flow.tensor(s)", density, numbers(points), tolerance=10))
for name in ("AbsTransform", "SoftmaxTransform"):
    cases.append(Case("transform " + name, f"return flow.distributions.transforms.{name}()(a)",
                      lambda a, n=name: getattr(T, n)()(a), numbers(points)))
cases.append(Case("transform LowerCholeskyTransform", "local t = flow.distributions.transforms.LowerCholeskyTransform() "
                  "return t(a), t.inv(t(a))", lambda a: (T.LowerCholeskyTransform()(a), T.LowerCholeskyTransform().inv(
                      T.LowerCholeskyTransform()(a))), numbers([[0.3, 2.0], [1.0, -0.5]])))

cases.append(Case("transform PositiveDefiniteTransform", "local t = flow.distributions.transforms.PositiveDefiniteTransform() "
                  "return t(a), t.inv(t(a))", lambda a: (T.PositiveDefiniteTransform()(a), T.PositiveDefiniteTransform().inv(
                      T.PositiveDefiniteTransform()(a))), numbers([[0.3, 2.0], [1.0, -0.5]])))
C = P.constraints
for text, constraint in {
    "positive": C.positive, "unit_interval": C.unit_interval, "simplex": C.simplex, "greater_than(1)": C.greater_than(1.0),
    "less_than(1)": C.less_than(1.0), "interval(-1, 3)": C.interval(-1.0, 3.0),
    "independent(flow.distributions.constraints.positive, 1)": C.independent(C.positive, 1),
    "half_open_interval(0, 2)": C.half_open_interval(0.0, 2.0), "real": C.real, "corr_cholesky": C.corr_cholesky,
}.items():
    for name in ("biject_to", "transform_to"):
        cases.append(Case(f"{name} {text}", f"local t = flow.distributions.{name}(flow.distributions.constraints.{text}) return t(a)",
                          lambda a, f=getattr(P, name), c=constraint: f(c)(a), numbers(points)))

# divergences
for p, q, parameters in (
        ("Normal", "Normal", two + ([0.3, 0.6, 0.9],)), ("LogNormal", "LogNormal", two + ([0.3, 0.6, 0.9],)),
        ("Laplace", "Laplace", two + ([0.3, 0.6, 0.9],)), ("Cauchy", "Cauchy", two + ([0.3, 0.6, 0.9],)),
        ("Gumbel", "Gumbel", two + ([0.3, 0.6, 0.9],)), ("Normal", "Laplace", two + ([0.3, 0.6, 0.9],)),
        ("Laplace", "Normal", two + ([0.3, 0.6, 0.9],)), ("Normal", "Gumbel", two + ([0.3, 0.6, 0.9],)),
        ("Gamma", "Gamma", up + ([0.3, 0.6, 0.9],)), ("Beta", "Beta", up + ([0.3, 0.6, 0.9],)),
        ("Pareto", "Pareto", up + ([0.3, 0.6, 0.9],)), ("Normal", "Gamma", up + ([0.3, 0.6, 0.9],))):
    cases.append(Case(f"kl {p} {q}", f"local D = flow.distributions return D.kl_divergence(D.{p}(a, b), D.{q}(b, c))",
                      lambda a, b, c, p=p, q=q: P.kl_divergence(getattr(P, p)(a, b), getattr(P, q)(b, c)),
                      numbers(*parameters)))
for p, q, low in (("Uniform", "Uniform", 0.0), ("Uniform", "Normal", 0.0)):
    cases.append(Case(f"kl {p} {q}", f"local D = flow.distributions return D.kl_divergence(D.{p}(a, b), D.{q}(c, b + 1))",
                      lambda a, b, c, p=p, q=q: P.kl_divergence(getattr(P, p)(a, b), getattr(P, q)(c, b + 1)),
                      numbers([0.1, 0.2, 0.3], [2.0, 3.0, 4.0], [0.0, 0.3, -1.0])))
for p, q, parameters in (
        ("HalfNormal", "HalfNormal", up), ("Exponential", "Exponential", up), ("Poisson", "Poisson", up),
        ("Bernoulli", "Bernoulli", (part, inside)), ("Geometric", "Geometric", (part, inside)),
        ("Bernoulli", "Poisson", (part, inside)), ("ContinuousBernoulli", "ContinuousBernoulli", (part, inside)),
        ("Categorical", "Categorical", (rows, rows[::-1])), ("OneHotCategorical", "OneHotCategorical", (rows, rows[::-1])),
        ("Dirichlet", "Dirichlet", (rows, rows[::-1])), ("Poisson", "Bernoulli", (part, inside))):
    cases.append(Case(f"kl {p} {q}", f"local D = flow.distributions return D.kl_divergence(D.{p}(a), D.{q}(b))",
                      lambda a, b, p=p, q=q: P.kl_divergence(getattr(P, p)(a), getattr(P, q)(b)), numbers(*parameters)))
cases.append(Case("kl Exponential Gamma", "local D = flow.distributions return D.kl_divergence(D.Exponential(a), D.Gamma(a, b)), "
                  "D.kl_divergence(D.Gamma(a, b), D.Exponential(b))",
                  lambda a, b: (P.kl_divergence(P.Exponential(a), P.Gamma(a, b)), P.kl_divergence(P.Gamma(a, b), P.Exponential(b))),
                  numbers(*up)))
cases.append(Case("kl Binomial Binomial", "local D = flow.distributions return D.kl_divergence(D.Binomial(5, a), D.Binomial(5, b))",
                  lambda a, b: P.kl_divergence(P.Binomial(5, a), P.Binomial(5, b)), numbers(part, inside)))
cases.append(Case("kl MultivariateNormal", "local D = flow.distributions return D.kl_divergence("
                  "D.MultivariateNormal(a, b), D.MultivariateNormal(a * 2, {scale_tril = c}))",
                  lambda a, b, c: P.kl_divergence(P.MultivariateNormal(a, b), P.MultivariateNormal(a * 2, scale_tril=c)),
                  numbers([0.5, -1.0], matrix, [[2.0, 0.0], [0.3, 1.0]])))
cases.append(Case("kl Independent", "local D = flow.distributions local function i(d) return D.Independent(d, 1) end "
                  "return D.kl_divergence(i(D.Normal(a, b)), i(D.Normal(b, b)))",
                  lambda a, b: P.kl_divergence(P.Independent(P.Normal(a, b), 1), P.Independent(P.Normal(b, b), 1)),
                  numbers(*two)))
