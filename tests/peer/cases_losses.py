"""cases_losses.py -- losses and distances beside torch.nn.functional."""
import torch
import torch.nn.functional as F
from peer import Case

cases = []


def drawn(*makers):
    """Each of the makers is a function of (random, dtype) or a shape of normal numbers."""
    def make(random, dtype):
        list_ = []
        for maker in makers:
            if callable(maker):
                list_.append(maker(random, dtype))
            else:
                list_.append(torch.randn(maker, generator=random, dtype=torch.float64).to(dtype))
        return list_
    return make


def unit(*shape):
    return lambda random, dtype: (torch.rand(shape, generator=random, dtype=torch.float64) * 0.9 + 0.05).to(dtype)


def signs(*shape):
    return lambda random, dtype: (torch.randint(0, 2, shape, generator=random) * 2 - 1).to(dtype)


def labels(count, *shape):
    return lambda random, dtype: torch.randint(0, count, shape, generator=random)


def fixed(value, kind=None):
    return lambda random, dtype: torch.tensor(value).to(kind or dtype)


def shares(*shape):
    """Probabilities along axis 1, or 0 of a vector."""
    return lambda random, dtype: torch.randn(shape, generator=random, dtype=torch.float64).softmax(min(1, len(shape) - 1)).to(dtype)


def add(name, lua, function, *inputs, reductions=("mean", "sum", "none"), **options):
    """RED in lua stands for the reduction, `red` of the function, too."""
    for red in reductions:
        for number, make in enumerate(inputs):
            cases.append(Case(f"{name} {red}:{number}", "return " + lua.replace("RED", f"'{red}'"),
                              lambda *args, red=red: function(*args, red), make, **options))


pairs = [drawn((3, 4), (3, 4)), drawn((), ()), drawn((0, 3), (0, 3)), drawn((2, 3, 2), (2, 3, 2)), drawn((1,), (1,))]
weighted = [drawn((3, 4), (3, 4), unit(3, 4))]
equal = [lambda random, dtype: [torch.tensor([1.0, 2.0, -1.5, 0.5]).to(dtype), torch.tensor([1.0, 1.0, -0.5, 1.0]).to(dtype)]]

add("l1_loss", "flow.l1_loss(a, b, RED)", lambda a, b, r: F.l1_loss(a, b, reduction=r), *pairs, *equal)
add("l1_loss weighted", "flow.l1_loss(a, b, RED, c)", lambda a, b, c, r: F.l1_loss(a, b, reduction=r, weight=c), *weighted)
add("mse_loss", "flow.mse_loss(a, b, RED)", lambda a, b, r: F.mse_loss(a, b, reduction=r), *pairs, *equal)
add("mse_loss weighted", "flow.mse_loss(a, b, RED, c)", lambda a, b, c, r: F.mse_loss(a, b, reduction=r, weight=c), *weighted)
for beta in (1, 0.5, 0):
    add(f"smooth_l1_loss {beta}", f"flow.smooth_l1_loss(a, b, RED, {beta})",
        lambda a, b, r, beta=beta: F.smooth_l1_loss(a, b, reduction=r, beta=float(beta)), *pairs, *equal)
for delta in (1, 0.5):
    add(f"huber_loss {delta}", f"flow.huber_loss(a, b, RED, {delta})",
        lambda a, b, r, delta=delta: F.huber_loss(a, b, reduction=r, delta=float(delta)), *pairs, *equal)
add("huber_loss weighted", "flow.huber_loss(a, b, RED, 1, c)", lambda a, b, c, r: F.huber_loss(a, b, reduction=r, weight=c), *weighted)
add("huber_loss of 16 bits", "flow.huber_loss(a, b, RED)", lambda a, b, r: F.huber_loss(a, b, reduction=r),
    drawn((6, 40), (6, 40)), dtypes=(torch.float16, torch.bfloat16), order=1)

add("binary_cross_entropy", "flow.binary_cross_entropy(a, b, nil, RED)", lambda a, b, r: F.binary_cross_entropy(a, b, reduction=r),
    drawn(unit(3, 4), unit(3, 4)), drawn(unit(), unit()), drawn(unit(0, 2), unit(0, 2)), drawn(unit(3, 4), unit(4)))
add("binary_cross_entropy weighted", "flow.binary_cross_entropy(a, b, c:detach(), RED)",
    lambda a, b, c, r: F.binary_cross_entropy(a, b, c.detach(), reduction=r), drawn(unit(3, 4), unit(3, 4), unit(3, 4)),
    drawn(unit(3, 4), unit(3, 4), unit(4)), order=1)
add("binary_cross_entropy at the ends", "flow.binary_cross_entropy(a, b, nil, RED)",
    lambda a, b, r: F.binary_cross_entropy(a, b.detach(), reduction=r),
    drawn(fixed([0.0, 1.0, 0.0, 1.0]), fixed([0.0, 1.0, 1.0, 0.0])), order=0)
logits = [drawn((3, 4), unit(3, 4)), drawn((), unit()), drawn((0, 3), unit(0, 3))]
add("bce_with_logits", "flow.binary_cross_entropy_with_logits(a, b, nil, RED)",
    lambda a, b, r: F.binary_cross_entropy_with_logits(a, b, reduction=r), *logits,
    drawn(fixed([100.0, -100.0, 0.0]), fixed([0.0, 1.0, 0.5])))
add("bce_with_logits weighted", "flow.binary_cross_entropy_with_logits(a, b, c:detach(), RED)",
    lambda a, b, c, r: F.binary_cross_entropy_with_logits(a, b, c.detach(), reduction=r), drawn((3, 4), unit(3, 4), unit(4)), order=1)
add("bce_with_logits pos_weight", "flow.binary_cross_entropy_with_logits(a, b, nil, RED, c:detach())",
    lambda a, b, c, r: F.binary_cross_entropy_with_logits(a, b, reduction=r, pos_weight=c.detach()), drawn((3, 4), unit(3, 4), unit(4)),
    drawn((2, 4, 3), unit(2, 4, 3), unit(3)))

add("kl_div", "flow.kl_div(a, b, RED)", lambda a, b, r: F.kl_div(a, b, reduction=r), drawn((3, 4), unit(3, 4)), drawn((4,), unit(4)),
    drawn((0, 4), unit(0, 4)), drawn((3, 4), unit(4)), reductions=("mean", "sum", "none", "batchmean"))
add("kl_div at 0", "flow.kl_div(a, b, RED)", lambda a, b, r: F.kl_div(a, b, reduction=r), drawn((3,), fixed([0.0, 1.0, 0.5])), order=0)
add("kl_div of logs", "flow.kl_div(a, b, RED, true)", lambda a, b, r: F.kl_div(a, b, reduction=r, log_target=True),
    drawn((3, 4), (3, 4)), reductions=("mean", "sum", "none", "batchmean"))
add("gaussian_nll_loss", "flow.gaussian_nll_loss(a, b, c, false, 1e-6, RED)",
    lambda a, b, c, r: F.gaussian_nll_loss(a, b, c, reduction=r), drawn((3, 4), (3, 4), unit(3, 4)),
    drawn((3, 4), (3, 4), unit(3)), drawn((3, 4), (3, 4), unit(3, 1)), drawn((3, 4), (3, 4), unit(4)),
    drawn((3,), (3,), fixed([1e-9, 0.5, 1.0])))
add("gaussian_nll_loss full", "flow.gaussian_nll_loss(a, b, c, true, 1e-2, RED)",
    lambda a, b, c, r: F.gaussian_nll_loss(a, b, c, full=True, eps=1e-2, reduction=r), drawn((3, 4), (3, 4), unit(3, 4)))
add("gaussian_nll_loss of a number", "flow.gaussian_nll_loss(a, b, 0.5, true, 1e-2, RED)",
    lambda a, b, r: F.gaussian_nll_loss(a, b, 0.5, full=True, eps=1e-2, reduction=r), drawn((3, 4), (3, 4)))
counts = fixed([0.0, 1.0, 3.0, 7.0])
add("poisson_nll_loss", "flow.poisson_nll_loss(a, b, true, false, 1e-8, RED)",
    lambda a, b, r: F.poisson_nll_loss(a, b, reduction=r), drawn((3, 4), unit(3, 4)), drawn((4,), counts))
add("poisson_nll_loss full", "flow.poisson_nll_loss(a, b, false, true, 1e-8, RED)",
    lambda a, b, r: F.poisson_nll_loss(a, b.detach(), log_input=False, full=True, reduction=r), drawn(unit(4), counts), order=0)
add("soft_margin_loss", "flow.soft_margin_loss(a, b, RED)", lambda a, b, r: F.soft_margin_loss(a, b.detach(), reduction=r),
    drawn((3, 4), signs(3, 4)), drawn((), signs()), drawn((0, 4), signs(0, 4)), order=0)
add("soft_margin_loss gradient", "flow.soft_margin_loss(a, b:detach():sign(), RED)",
    lambda a, b, r: F.soft_margin_loss(a, b.detach().sign(), reduction=r), drawn((3, 4), (3, 4)))
add("multilabel_soft_margin_loss", "flow.multilabel_soft_margin_loss(a, b, nil, RED)",
    lambda a, b, r: F.multilabel_soft_margin_loss(a, b, reduction=r), drawn((3, 4), unit(3, 4)), drawn((4,), unit(4)))
add("multilabel_soft_margin_loss weighted", "flow.multilabel_soft_margin_loss(a, b, c, RED)",
    lambda a, b, c, r: F.multilabel_soft_margin_loss(a, b, c, reduction=r), drawn((3, 4), unit(3, 4), unit(4)))

integer_signs = lambda *shape: lambda random, dtype: torch.randint(0, 2, shape, generator=random) * 2 - 1
add("hinge_embedding_loss", "flow.hinge_embedding_loss(a, b, 0.5, RED)",
    lambda a, b, r: F.hinge_embedding_loss(a, b, 0.5, reduction=r), drawn((3, 4), integer_signs(3, 4)), drawn((), integer_signs()),
    drawn(fixed([0.5, 0.5, 0.0, 0.0]), fixed([1, -1, 1, -1], torch.int64)))
add("margin_ranking_loss", "flow.margin_ranking_loss(a, b, c, 0.3, RED)",
    lambda a, b, c, r: F.margin_ranking_loss(a, b, c, 0.3, reduction=r), drawn((4,), (4,), integer_signs(4)),
    drawn((3, 4), (3, 4), integer_signs(3, 4)), drawn((), (), integer_signs()))
add("margin_ranking_loss of equals", "flow.margin_ranking_loss(a, a * 1, b, 0, RED)",
    lambda a, b, r: F.margin_ranking_loss(a, a * 1, b, 0.0, reduction=r), drawn((4,), integer_signs(4)), order=1)
triples = [drawn((3, 4), (3, 4), (3, 4)), drawn((4,), (4,), (4,)), drawn((2, 3, 4), (2, 3, 4), (2, 3, 4))]
add("triplet_margin_loss", "flow.triplet_margin_loss(a, b, c, 1, 2, 1e-6, false, RED)",
    lambda a, b, c, r: F.triplet_margin_loss(a, b, c, reduction=r), *triples)
add("triplet_margin_loss swapped", "flow.triplet_margin_loss(a, b, c, 0.5, 3, 1e-3, true, RED)",
    lambda a, b, c, r: F.triplet_margin_loss(a, b, c, 0.5, 3, 1e-3, True, reduction=r), *triples, tolerance=10)
add("cosine_embedding_loss", "flow.cosine_embedding_loss(a, b, c, 0.2, RED)",
    lambda a, b, c, r: F.cosine_embedding_loss(a, b, c, 0.2, reduction=r), drawn((3, 4), (3, 4), integer_signs(3)),
    drawn((4,), (4,), integer_signs()))
add("multi_margin_loss", "flow.multi_margin_loss(a, b, 1, 0.7, nil, RED)",
    lambda a, b, r: F.multi_margin_loss(a, b, 1, 0.7, reduction=r), drawn((3, 5), labels(5, 3)), drawn((5,), labels(5)),
    drawn((3, 1), labels(1, 3)), order=1)
add("multi_margin_loss squared", "flow.multi_margin_loss(a, b, 2, 1, c, RED)",
    lambda a, b, c, r: F.multi_margin_loss(a, b, 2, 1, c.detach(), reduction=r), drawn((3, 5), labels(5, 3), unit(5)), order=0)
add("multilabel_margin_loss", "flow.multilabel_margin_loss(a, b, RED)",
    lambda a, b, r: F.multilabel_margin_loss(a, b, reduction=r),
    drawn((2, 4), fixed([[3, 0, -1, 1], [1, -1, 0, 2]], torch.int64)), drawn((4,), fixed([2, -1, 3, 0], torch.int64)),
    drawn((2, 3), fixed([[0, 1, 2], [-1, 0, 0]], torch.int64)), order=1)

add("cross_entropy of shares", "flow.cross_entropy(a, b, nil, RED)", lambda a, b, r: F.cross_entropy(a, b, reduction=r),
    drawn((3, 5), shares(3, 5)), drawn((5,), shares(5)), drawn((2, 4, 3), shares(2, 4, 3)), drawn((2, 4, 3, 2), shares(2, 4, 3, 2)))
add("cross_entropy of shares smoothed", "flow.cross_entropy(a, b, c, RED, -100, 0.1)",
    lambda a, b, c, r: F.cross_entropy(a, b, c.detach(), reduction=r, label_smoothing=0.1),
    drawn((3, 5), shares(3, 5), unit(5)), drawn((2, 4, 3), shares(2, 4, 3), unit(4)), order=0)
add("cross_entropy", "flow.cross_entropy(a, b, nil, RED, 1, 0.1)",
    lambda a, b, r: F.cross_entropy(a, b, reduction=r, ignore_index=1, label_smoothing=0.1), drawn((6, 5), labels(5, 6)),
    drawn((5,), labels(5)), drawn((2, 5, 3), labels(5, 2, 3)), drawn((2, 5, 3, 2), labels(5, 2, 3, 2)))
add("cross_entropy weighted", "flow.cross_entropy(a, b, c:detach(), RED, -100, 0.1)",
    lambda a, b, c, r: F.cross_entropy(a, b, c.detach(), reduction=r, label_smoothing=0.1), drawn((6, 5), labels(5, 6), unit(5)),
    drawn((2, 5, 3), labels(5, 2, 3), unit(5)))
add("nll_loss", "flow.nll_loss(a, b, c:detach(), RED)", lambda a, b, c, r: F.nll_loss(a, b, c.detach(), reduction=r),
    drawn((6, 5), labels(5, 6), unit(5)), drawn((2, 5, 3, 4), labels(5, 2, 3, 4), unit(5)))

one = {"reductions": ("none",)}
add("pairwise_distance", "flow.pairwise_distance(a, b)", lambda a, b, r: F.pairwise_distance(a, b), drawn((3, 4), (3, 4)),
    drawn((4,), (4,)), drawn((2, 3, 4), (2, 3, 4)), drawn((3, 4), (1, 4)), **one)
add("pairwise_distance p", "flow.pairwise_distance(a, b, 3, 1e-3, true)", lambda a, b, r: F.pairwise_distance(a, b, 3, 1e-3, True),
    drawn((3, 4), (3, 4)), drawn((4,), (4,)), tolerance=10, **one)
add("cosine_similarity", "flow.cosine_similarity(a, b)", lambda a, b, r: F.cosine_similarity(a, b), drawn((3, 4), (3, 4)),
    drawn((2, 3, 4), (2, 3, 4)), drawn((3, 4), (1, 4)), drawn((4,), (4,)), **one)
add("cosine_similarity axis", "flow.cosine_similarity(a, b, -1, 1e-2)", lambda a, b, r: F.cosine_similarity(a, b, -1, 1e-2),
    drawn((3, 4), (3, 4)), drawn((4,), (4,)), drawn((3, 4), fixed([[0.0] * 4, [1e-4] * 4, [1.0] * 4])), order=1, **one)
for p in (2, 1, 3):
    add(f"normalize {p}", f"flow.normalize(a, {p})", lambda a, r, p=p: F.normalize(a, p), drawn((3, 4)), drawn((2, 3, 4)), drawn((4,)),
        tolerance=10, **one)
add("normalize axis", "flow.normalize(a, 2, 0)", lambda a, r: F.normalize(a, 2, 0), drawn((3, 4)), drawn((4,)), drawn((2, 0)), **one)

# rows of tables, bilinear forms
FN = "flow.nn.functional"
for mode in ("sum", "mean", "max"):
    bag = dict(reductions=("none",), order=2 if mode != "max" else 1)
    add(f"embedding_bag {mode} of a matrix", f"{FN}.embedding_bag(a, b, nil, nil, 2, '{mode}')",
        lambda a, b, r, mode=mode: F.embedding_bag(a, b, mode=mode), drawn(labels(5, 3, 4), (5, 2)), drawn(labels(5, 1, 1), (5, 2)), **bag)
    add(f"embedding_bag {mode} of offsets", f"{FN}.embedding_bag(a, b, c, nil, 2, '{mode}')",
        lambda a, b, c, r, mode=mode: F.embedding_bag(a, b, c, mode=mode),
        drawn(labels(5, 7), (5, 2), fixed([0, 2, 2, 5, 7], torch.int64)), drawn(labels(5, 3), (5, 2), fixed([0], torch.int64)), **bag)
    add(f"embedding_bag {mode} with padding", f"{FN}.embedding_bag(a, b, c, nil, 2, '{mode}', nil, true, 1)",
        lambda a, b, c, r, mode=mode: F.embedding_bag(a, b, c, mode=mode, include_last_offset=True, padding_idx=1),
        drawn(fixed([1, 2, 3, 1, 4, 1], torch.int64), (5, 2), fixed([0, 1, 3, 6], torch.int64)), **bag)
add("embedding_bag weighted", f"{FN}.embedding_bag(a, b, nil, nil, 2, 'sum', c)",
    lambda a, b, c, r: F.embedding_bag(a, b, mode="sum", per_sample_weights=c), drawn(labels(5, 3, 4), (5, 2), (3, 4)), **one)
add("embedding", f"{FN}.embedding(a, b, 1)", lambda a, b, r: F.embedding(a, b, padding_idx=1), drawn(labels(5, 3, 4), (5, 2)),
    drawn(labels(5), (5, 2)), **one)
add("embedding short", f"{FN}.embedding(a, b:detach() * 2, nil, 1)", lambda a, b, r: F.embedding(a, b.detach() * 2, max_norm=1.0),
    drawn(labels(5, 3, 4), (5, 2)), order=0, reductions=("none",))
add("bilinear", "flow.bilinear(a, b, c)", lambda a, b, c, r: F.bilinear(a, b, c), drawn((3, 4), (3, 5), (2, 4, 5)),
    drawn((4,), (5,), (2, 4, 5)), drawn((2, 3, 4), (2, 3, 2), (3, 4, 2)), drawn((0, 4), (0, 5), (2, 4, 5)), drawn((3, 4), (2, 5), (2, 4, 5)), **one)

# sequences: PyTorch's gradient is that of what log_softmax gives, and it has one order
whole = lambda *values: fixed(list(values), torch.int64)
LSM = "flow.log_softmax(a, -1)"
for zero in ("false", "true"):
    add(f"ctc_loss zero_infinity {zero}",
        f"flow.ctc_loss({LSM}, b, flow.tensor{{6, 5, 2}}, flow.tensor{{3, 2, 2}}, 0, RED, {zero})",
        lambda a, b, r, zero=zero: F.ctc_loss(a.log_softmax(-1), b, torch.tensor([6, 5, 2]), torch.tensor([3, 2, 2]), 0, r, zero == "true"),
        drawn((6, 3, 4), fixed([[1, 2, 3], [3, 1, 0], [2, 2, 0]], torch.int64)), order=1)
add("ctc_loss", "flow.ctc_loss(flow.log_softmax(a, -1), b, flow.tensor{7, 6}, c, 2, RED)",
    lambda a, b, c, r: F.ctc_loss(a.log_softmax(-1), b, torch.tensor([7, 6]), c, 2, r),
    drawn((7, 2, 4), whole(1, 1, 3, 0), whole(3, 1)), drawn((7, 2, 4), fixed([[1, 1, 3], [0, 1, 1]], torch.int64), whole(3, 0)), order=1)
add("ctc_loss of one", "flow.ctc_loss(flow.log_softmax(a, -1), b, flow.tensor(7), c, 0, RED)",
    lambda a, b, c, r: F.ctc_loss(a.log_softmax(-1), b, torch.tensor(7), c, 0, r), drawn((7, 4), whole(1, 2, 3), fixed(3, torch.int64)), order=1)

# projection and loss; PyTorch's own chunks have no gradients of a second order
for smoothing in (0, 0.3):
    add(f"linear_cross_entropy {smoothing}",
        f"flow.linear_cross_entropy(a, b, c, nil, nil, RED, 2, {smoothing}, 3)",
        lambda a, b, c, r, s=smoothing: F.linear_cross_entropy(a, b, c, reduction=r, ignore_index=2, label_smoothing=float(s)),
        drawn((7, 4), (5, 4), labels(5, 7)), drawn((6, 3), (4, 3), labels(4, 6)))
add("linear_cross_entropy in chunks", "flow.linear_cross_entropy(a, b, c, nil, nil, RED)",
    lambda a, b, c, r: F.linear_cross_entropy(a, b, c, reduction=r, options=torch.nn.LinearCrossEntropyOptions()),
    drawn((300, 4), (40, 4), labels(40, 300)), reductions=("mean", "sum"), order=1)
add("linear_cross_entropy of probabilities", "flow.linear_cross_entropy(a, b, c:detach(), nil, nil, RED)",
    lambda a, b, c, r: F.linear_cross_entropy(a, b, c.detach(), reduction=r), drawn((3, 4), (5, 2, 4), shares(3, 5, 2)),
    drawn((3, 4), (5, 4), shares(3, 5)), order=1)
