"""cases_attention.py -- attention, its layers and the transformer beside torch.nn.

Layers get their weights as inputs, as in cases_recurrent.py, so their gradients are compared too.
"""
import torch
from peer import Case
from cases_recurrent import LAYER, lua_options, randn, with_weights

F = torch.nn.functional
INF = float("inf")
cases = []


# ---- scaled_dot_product_attention ----

def sdpa(name, options, *shapes, mask=None, torch_options=None, **more):
    """mask: a function of (random, dtype) that gives the fourth input."""
    def make(random, dtype):
        list_ = [randn(random, dtype, *s) for s in shapes]
        return list_ + ([mask(random, dtype)] if mask else [])
    o = dict(options) if torch_options is None else torch_options
    lua = "local flow, q, k, v, m = ... return flow.scaled_dot_product_attention(q, k, v, m, %s)" % lua_options(options)

    def function(q, k, v, m=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m, **o)
    cases.append(Case("sdpa " + name, lua, function, make, **more))


def boolean(*shape):
    def make(random, dtype):
        m = torch.rand(shape, generator=random) > 0.3
        m[..., 0] = True
        return m
    return make


def added(*shape):
    return lambda random, dtype: randn(random, dtype, *shape)


four = ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 3))
for name, mask in (("no mask", None), ("bool", boolean(5, 6)), ("bool, batch", boolean(2, 1, 5, 6)), ("bool row", boolean(1, 6)),
                   ("bool of heads", boolean(3, 5, 6)), ("float", added(5, 6)), ("float of all", added(2, 3, 5, 6)),
                   ("float column", added(5, 1))):
    sdpa(name, {}, *four, mask=mask)
    sdpa(name + " scaled", {"scale": 0.3}, *four, mask=mask)
sdpa("causal", {"is_causal": True}, *four)
sdpa("causal square", {"is_causal": True}, (2, 4, 3), (2, 4, 3), (2, 4, 3))
sdpa("causal wide", {"is_causal": True}, (2, 7, 3), (2, 4, 3), (2, 4, 3))
sdpa("three axes", {}, (2, 5, 4), (2, 6, 4), (2, 6, 3))
sdpa("two axes", {}, (5, 4), (6, 4), (6, 3))
sdpa("long", {"is_causal": True}, (1, 2, 130, 16), (1, 2, 130, 16), (1, 2, 130, 16), order=1)
for heads, kv in ((4, 2), (4, 1), (6, 3), (2, 2)):
    sdpa("gqa", {"enable_gqa": True}, (2, heads, 5, 4), (2, kv, 6, 4), (2, kv, 6, 3))
    sdpa("gqa causal", {"enable_gqa": True, "is_causal": True}, (2, heads, 5, 4), (2, kv, 5, 4), (2, kv, 5, 4))
sdpa("gqa of other heads", {"enable_gqa": True}, (2, 4, 5, 4), (2, 3, 6, 4), (2, 3, 6, 3))
sdpa("broadcast", {}, (2, 3, 5, 4), (1, 3, 6, 4), (1, 1, 6, 3))
sdpa("of one key", {}, (2, 3, 5, 4), (2, 3, 1, 4), (2, 3, 1, 3))
sdpa("that does not fit", {}, (2, 3, 5, 4), (2, 3, 6, 5), (2, 3, 6, 3))
sdpa("of 16 bits", {"is_causal": True}, (2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), order=1, dtypes=(torch.bfloat16, torch.float16))
sdpa("all masked", {}, (2, 5, 4), (2, 6, 4), (2, 6, 3), mask=lambda r, d: torch.arange(5)[:, None].expand(5, 6) > 0, order=0)
sdpa("all masked, float", {}, (2, 5, 4), (2, 6, 4), (2, 6, 3), order=0,
     mask=lambda r, d: torch.where(torch.arange(5)[:, None].expand(5, 6) > 0, 0.0, -INF).to(d))


# ---- layers ----

def layer(name, lua_layer, lua_run, module, run, shapes, masks=(), **options):
    """Inputs are the shapes' tensors, then the weights, then the masks: functions of (random, dtype)."""
    module.eval()
    weights = [tuple(p.shape) for p in module.parameters()]
    count = len(shapes)

    def make(random, dtype):
        return [randn(random, dtype, *s) for s in list(shapes) + weights] + [m(random, dtype) for m in masks]

    def function(*tensors):
        last = tensors[count + len(weights):]
        inner = with_weights(module, lambda call, *x: run(call, *x, *last), count)
        return inner(*tensors[:count + len(weights)])
    head = LAYER % (lua_layer, count + 1) + f"layer:eval() local m, n = args[{count + len(weights) + 2}], args[{count + len(weights) + 3}] "
    cases.append(Case(name, head + lua_run, function, make, **options))


def bools(*shape):
    def make(random, dtype):
        m = torch.rand(shape, generator=random) > 0.6
        m[..., 0] = False
        return m
    return make


def causal(size):
    return lambda random, dtype: torch.nn.Transformer.generate_square_subsequent_mask(size).to(dtype)


for o in ({}, {"bias": False}, {"batch_first": True}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 3},
          {"kdim": 5, "vdim": 3, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True}):
    first = o.get("batch_first")
    q = (2, 4, 6) if first else (4, 2, 6)
    k, v = ((2, 3, o.get(n, 6)) if first else (3, 2, o.get(n, 6)) for n in ("kdim", "vdim"))
    made, module = f"flow.nn.MultiheadAttention(6, 2, {lua_options(o)})", torch.nn.MultiheadAttention(6, 2, **o)
    name = f"MultiheadAttention {o}"
    layer(name, made, "return layer(a, b, c)", module, lambda call, q, k, v: call(q, k, v), [q, k, v])
    layer(name + " without weights", made, "return (layer(a, b, c, nil, false))", module,
          lambda call, q, k, v: call(q, k, v, need_weights=False)[0], [q, k, v])
    layer(name + " of heads", made, "return layer(a, b, c, {average_attn_weights = false})", module,
          lambda call, q, k, v: call(q, k, v, average_attn_weights=False), [q, k, v])
    for kind, mask in (("bool", bools(4, 3)), ("float", added(4, 3)), ("of heads", bools(4, 4, 3)), ("of heads, float", added(4, 4, 3))):
        for weights in (True, False):
            text = str(weights).lower()
            layer(f"{name} mask {kind} {weights}", made, f"return layer(a, b, c, nil, {text}, m)", module,
                  lambda call, q, k, v, m, w=weights: call(q, k, v, need_weights=w, attn_mask=m)[:2 if w else 1], [q, k, v],
                  [mask])
            layer(f"{name} masks {kind} {weights}", made, f"return layer(a, b, c, n, {text}, m)", module,
                  lambda call, q, k, v, m, n, w=weights: call(q, k, v, key_padding_mask=n, need_weights=w, attn_mask=m)[:2 if w else 1],
                  [q, k, v], [mask, bools(2, 3)], order=1)
    layer(name + " padding", made, "return layer(a, b, c, m)", module,
          lambda call, q, k, v, m: call(q, k, v, key_padding_mask=m), [q, k, v], [bools(2, 3)])
    layer(name + " unbatched", made, "return layer(a, b, c, m)", module,
          lambda call, q, k, v, m: call(q, k, v, key_padding_mask=m), [q[1:] if first else (4, 6), (3, o.get("kdim", 6)),
                                                                    (3, o.get("vdim", 6))], [bools(3)])
made, module = "flow.nn.MultiheadAttention(6, 2)", torch.nn.MultiheadAttention(6, 2)
layer("MultiheadAttention of itself", made, "return layer(a, a, a)", module, lambda call, x: call(x, x, x), [(4, 2, 6)])
layer("MultiheadAttention of a memory", made, "return layer(a, b, b)", module, lambda call, x, y: call(x, y, y),
      [(4, 2, 6), (3, 2, 6)])
layer("MultiheadAttention causal", made, "return (layer(a, a, a, {need_weights = false, attn_mask = m, is_causal = true}))",
      module, lambda call, x, m: call(x, x, x, need_weights=False, attn_mask=m, is_causal=True)[0], [(4, 2, 6)], [causal(4)])
layer("MultiheadAttention causal without a mask", made, "return layer(a, a, a, {is_causal = true})", module,
      lambda call, x: call(x, x, x, is_causal=True), [(4, 2, 6)])
layer("MultiheadAttention of another width", made, "return layer(a, a, a)", module, lambda call, x: call(x, x, x), [(4, 2, 5)])

small = {"dim_feedforward": 5}
for o in ({}, {"norm_first": True}, {"activation": "gelu"}, {"batch_first": True, "bias": False}, {"layer_norm_eps": 0.1}):
    options = {**small, **o}
    text = lua_options(options)
    x, y = (4, 2, 6), (3, 2, 6)
    if o.get("batch_first"):
        x, y = (2, 4, 6), (2, 3, 6)
    made = f"flow.nn.TransformerEncoderLayer(6, 2, {text})"
    module = torch.nn.TransformerEncoderLayer(6, 2, **options)
    layer(f"TransformerEncoderLayer {o}", made, "return layer(a)", module, lambda call, x: call(x), [x], tolerance=10)
    layer(f"TransformerEncoderLayer {o} masked", made, "return layer(a, m, n)", module,
          lambda call, x, m, n: call(x, m, n), [x], [bools(4, 4), bools(2, 4)], order=1, tolerance=10)
    layer(f"TransformerEncoderLayer {o} causal", made, "return layer(a, m, {is_causal = true})", module,
          lambda call, x, m: call(x, m, is_causal=True), [x], [causal(4)], order=1, tolerance=10)
    layer(f"TransformerEncoder {o}", f"flow.nn.TransformerEncoder({made}, 2, flow.nn.LayerNorm(6))", "return layer(a, m)",
          torch.nn.TransformerEncoder(module, 2, torch.nn.LayerNorm(6), enable_nested_tensor=False),
          lambda call, x, m: call(x, m), [x], [causal(4)], order=1, tolerance=10)
    made = f"flow.nn.TransformerDecoderLayer(6, 2, {text})"
    module = torch.nn.TransformerDecoderLayer(6, 2, **options)
    layer(f"TransformerDecoderLayer {o}", made, "return layer(a, b)", module, lambda call, x, y: call(x, y), [x, y],
          tolerance=10)
    layer(f"TransformerDecoderLayer {o} masked", made, "return layer(a, b, m, n)", module,
          lambda call, x, y, m, n: call(x, y, m, n), [x, y], [causal(4), bools(4, 3)], order=1, tolerance=10)
    layer(f"TransformerDecoderLayer {o} padded", made,
          "return layer(a, b, {tgt_key_padding_mask = m, memory_key_padding_mask = n})", module,
          lambda call, x, y, m, n: call(x, y, tgt_key_padding_mask=m, memory_key_padding_mask=n), [x, y],
          [bools(2, 4), bools(2, 3)], order=1, tolerance=10)
    layer(f"TransformerDecoder {o}", f"flow.nn.TransformerDecoder({made}, 2)", "return layer(a, b, m)",
          torch.nn.TransformerDecoder(module, 2), lambda call, x, y, m: call(x, y, m), [x, y], [causal(4)], order=1,
          tolerance=10)
    layer(f"Transformer {o}", f"flow.nn.Transformer(6, 2, 1, 2, {text})", "return layer(a, b, {tgt_mask = m})",
          torch.nn.Transformer(6, 2, 1, 2, **options), lambda call, x, y, m: call(x, y, tgt_mask=m), [y, x], [causal(4)],
          order=1, tolerance=10)
layer("TransformerEncoderLayer unbatched", "flow.nn.TransformerEncoderLayer(6, 2, {dim_feedforward = 5})", "return layer(a)",
      torch.nn.TransformerEncoderLayer(6, 2, dim_feedforward=5), lambda call, x: call(x), [(4, 6)], tolerance=10)


# ---- flex_attention ----

from torch.nn.attention.flex_attention import (  # noqa: E402
    and_masks, create_block_mask, create_mask, flex_attention, or_masks)


def flex(name, lua, function, **options):
    lua = """local flow, q, k, v = ...
        local A = flow.nn.attention
        local function causal(_, _, i, j) return i:ge(j) end
        local function near(_, _, i, j) return (i - j):abs():le(1) end
        local function head(_, h, i) return h:eq(0):logical_and(i:ge(0)) end
        """ + lua
    cases.append(Case("flex_attention " + name, lua, function,
                      lambda random, dtype: [randn(random, dtype, 2, 4, 6, 8), randn(random, dtype, 2, 4, 6, 8),
                                             randn(random, dtype, 2, 4, 6, 8)],
                      order=0, **options))  # PyTorch's has no backward on the CPU


def causal_mod(b, h, i, j):
    return i >= j


def near_mod(b, h, i, j):
    return (i - j).abs() <= 1


def head_mod(b, h, i, j):
    return h == 0


def on_cpu(mod, heads=None):
    return create_block_mask(mod, None, heads, 6, 6, device="cpu", BLOCK_SIZE=2)


flex("causal", "return A.flex_attention(q, k, v, {block_mask = A.create_block_mask(causal, nil, nil, 6, 6)})",
     lambda q, k, v: flex_attention(q, k, v, block_mask=on_cpu(causal_mod)))
flex("scores", """local slopes = flow.tensor {0.5, 0.25, 0.125, 0}:to(q.dtype)
     return A.flex_attention(q, k, v, {scale = 0.3, score_mod = function(s, b, h, i, j) return s + slopes[h] * (j - i) + b * 0.1 end})""",
     lambda q, k, v: (lambda slopes: flex_attention(
         q, k, v, scale=0.3, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i) + b * 0.1))(
             torch.tensor([0.5, 0.25, 0.125, 0], dtype=q.dtype)))
flex("scores and a mask", """local mask = A.create_block_mask(A.or_masks(A.and_masks(causal, near), head), nil, 4, 6, 6)
     return A.flex_attention(q, k, v, {block_mask = mask, score_mod = function(s) return s:tanh() * 2 end})""",
     lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s.tanh() * 2,
                                    block_mask=on_cpu(or_masks(and_masks(causal_mod, near_mod), head_mod), 4)))
flex("shared heads", """return A.flex_attention(q, k:narrow(1, 0, 2), v:narrow(1, 0, 2), {enable_gqa = true,
     score_mod = function(s, _, _, i, j) return flow.where(i:ge(j), s, -math.huge) end})""",
     lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True,
                                    score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -INF)))
cases.append(Case("flex_attention masks", """local flow, x = ...
    local A = flow.nn.attention
    local function near(_, _, i, j) return (i - j):abs():le(1) end
    local mask = A.create_block_mask(near, nil, nil, 7, 5, {BLOCK_SIZE = 2})
    return mask.mask, flow.tensor {mask:sparsity()}, A.create_mask(near, 2, 3, 4, 4)""",
    lambda x: (create_mask(near_mod, 1, 1, 7, 5, device="cpu"),
               torch.tensor([create_block_mask(near_mod, None, None, 7, 5, device="cpu", BLOCK_SIZE=2).sparsity()]),
               create_mask(near_mod, 2, 3, 4, 4, device="cpu")),
    lambda random, dtype: [randn(random, dtype, 1)], order=0, dtypes=(torch.float32,)))

# ---- positions ----

def turned(x, interleaved, first=0, base=10000.0):
    t, d = x.shape[-2:]
    angle = torch.arange(first, first + t, dtype=torch.float64)[:, None] * base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def sinusoidal(x):
    t, d = x.shape[-2:]
    angle = torch.arange(t, dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    return x + torch.stack((angle.sin(), angle.cos()), -1).flatten(-2).to(x.dtype)


def position(name, lua, function, *shapes, **options):
    cases.append(Case(name, "return " + lua, function, lambda random, dtype: [randn(random, dtype, *s) for s in shapes],
                      **options))


loose = {"tolerance": 10}
for interleaved in (False, True):
    text = str(interleaved).lower()
    position(f"rope {interleaved}", f"flow.nn.RotaryEmbedding(8, {{interleaved = {text}}})(a)",
             lambda x, i=interleaved: turned(x, i), (2, 3, 5, 8), dtypes=(torch.float32,))
    position(f"rope {interleaved} from 7 on", f"flow.nn.RotaryEmbedding(4, {{interleaved = {text}, base = 100}})(a, 7)",
             lambda x, i=interleaved: turned(x, i, 7, 100.0), (5, 4), dtypes=(torch.float32,))
position("sinusoidal", "flow.nn.SinusoidalPositions(6)(a)", sinusoidal, (2, 5, 6), dtypes=(torch.float32,))
