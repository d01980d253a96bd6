"""cases_recurrent.py -- recurrent layers, their cells and packed sequences beside torch.nn: results and gradients by functional_call.

Inputs are the sequence, the states and the weights, of which the Lua side makes a layer.
"""
import torch
from torch.func import functional_call
from torch.nn.utils import rnn
from peer import Case

cases = []
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def randn(random, dtype, *shape):
    return (torch.randn(shape, generator=random, dtype=torch.float64) * 0.7).to(dtype)


# A layer whose weights are the inputs from `first` on.
LAYER = """local args = {...} local layer = %s
local i = %d
for name, p in layer:named_parameters() do
    local parts, owner = {}, layer
    for part in name:gmatch("[^.]+") do parts[#parts + 1] = part end
    for k = 1, #parts - 1 do owner = owner[math.tointeger(parts[k]) and parts[k] + 0 or parts[k]] end
    owner[parts[#parts]] = args[i + 1] i = i + 1
end
"""


def with_weights(module, run, inputs):
    """A function of inputs and weights: run(call, *inputs), where call is the module with those weights."""
    names = [name for name, _ in module.named_parameters()]

    def function(*tensors):
        weights = dict(zip(names, tensors[inputs:]))
        module.to(tensors[0].dtype if tensors[0].is_floating_point() else torch.float64)
        return run(lambda *a, **k: functional_call(module, weights, a, k), *tensors[:inputs])
    return function


def add(name, lua_layer, lua_run, module, run, shapes, **options):
    weights = [tuple(p.shape) for p in module.parameters()]

    def make(random, dtype):
        return [randn(random, dtype, *s) for s in list(shapes) + weights]
    cases.append(Case(name, LAYER % (lua_layer, len(shapes) + 1) + lua_run, with_weights(module, run, len(shapes)), make,
                      **options))


def lua_options(options):
    text = {True: "true", False: "false"}
    return "{" + ", ".join(f"{k} = {text.get(v, repr(v)) if not isinstance(v, int) or isinstance(v, bool) else v}"
                           for k, v in options.items()) + "}"


# layers
for kind in ("LSTM", "GRU", "RNN"):
    variants = [{}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False}, {"batch_first": True},
                {"num_layers": 2, "bidirectional": True, "batch_first": True}]
    if kind == "LSTM":
        variants += [{"proj_size": 2}, {"proj_size": 2, "num_layers": 2, "bidirectional": True}]
    if kind == "RNN":
        variants += [{"nonlinearity": "relu"}, {"nonlinearity": "relu", "bidirectional": True, "num_layers": 2}]
    for o in variants:
        module = getattr(torch.nn, kind)(3, 4, **o)
        made = f"flow.nn.{kind}(3, 4, {lua_options(o)})"
        name = f"{kind} {o}"
        rows = o.get("num_layers", 1) * (2 if o.get("bidirectional") else 1)
        out = o.get("proj_size", 4)
        x = (2, 5, 3) if o.get("batch_first") else (5, 2, 3)
        if kind == "LSTM":
            add(name, made, "local y, s = layer(a) return y, s[1], s[2]", module,
                lambda call, x: (lambda y, s: (y, *s))(*call(x)), [x])
            add(name + " with states", made, "local y, s = layer(a, {b, c}) return y, s[1], s[2]", module,
                lambda call, x, h, c: (lambda y, s: (y, *s))(*call(x, (h, c))), [x, (rows, 2, out), (rows, 2, 4)])
        else:
            add(name, made, "return layer(a)", module, lambda call, x: call(x), [x])
            add(name + " with states", made, "return layer(a, b)", module, lambda call, x, h: call(x, h),
                [x, (rows, 2, out)])
    # unbatched, one step, wide, wrong
    module, made = getattr(torch.nn, kind)(3, 4), f"flow.nn.{kind}(3, 4)"
    add(kind + " unbatched", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(5, 3)])
    add(kind + " of one step", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(1, 2, 3)])
    add(kind + " of an empty batch", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(2, 0, 3)], order=0)
    add(kind + " of other features", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(2, 2, 5)])
    add(kind + " of no steps", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(0, 2, 3)])
    module, made = getattr(torch.nn, kind)(5, 37), f"flow.nn.{kind}(5, 37)"
    add(kind + " of 37 units", made, "return (layer(a))", module, lambda call, x: call(x)[0], [(7, 50, 5)], order=1)
    # packed
    for lengths, sorted_ in (([5, 3, 1], True), ([2, 5, 4], False), ([3, 3, 3], True)):
        for o in ({}, {"bidirectional": True, "num_layers": 2}) + (({"proj_size": 2},) if kind == "LSTM" else ()):
            module, made = getattr(torch.nn, kind)(3, 4, **o), f"flow.nn.{kind}(3, 4, {lua_options(o)})"
            text = "{" + ", ".join(map(str, lengths)) + "}"

            def run(call, x, lengths=lengths, sorted_=sorted_):
                y, h = call(rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=sorted_))
                y, n = rnn.pad_packed_sequence(y)
                return (y, n, *h) if isinstance(h, tuple) else (y, n, h)
            add(f"{kind} packed {lengths} {o}", made,
                f"local r = flow.nn.utils.rnn local y, h = layer(r.pack_padded_sequence(a, {text}, "
                f"{{enforce_sorted = {str(sorted_).lower()}}})) local n y, n = r.pad_packed_sequence(y) "
                "if type(h) == 'table' then return y, n, h[1], h[2] end return y, n, h", module, run, [(5, 3, 3)])
    # cells
    cell = kind + "Cell"
    for o in ({}, {"bias": False}) + (({"nonlinearity": "relu"},) if kind == "RNN" else ()):
        module, made = getattr(torch.nn, cell)(3, 4, **o), f"flow.nn.{cell}(3, 4, {lua_options(o)})"
        for x, h in (((2, 3), (2, 4)), ((3,), (4,))):
            add(f"{cell} {o}", made, "return layer(a)", module, lambda call, x: call(x), [x])
            if kind == "LSTM":
                add(f"{cell} {o} with states", made, "return layer(a, {b, c})", module,
                    lambda call, x, h, c: call(x, (h, c)), [x, h, h])
            else:
                add(f"{cell} {o} with states", made, "return layer(a, b)", module, lambda call, x, h: call(x, h), [x, h])
        add(f"{cell} of other features", made, "return layer(a)", module, lambda call, x: call(x), [(2, 5)])


# sequences
def plain(name, lua, function, *shapes, **options):
    cases.append(Case(name, "local r = flow.nn.utils.rnn " + lua, function,
                      lambda random, dtype: [randn(random, dtype, *s) for s in shapes], **options))


for first in (False, True):
    text = str(first).lower()
    for side in ("right", "left"):
        plain("pad_sequence", f"return r.pad_sequence({{a, b, c}}, {text}, 0.5, '{side}')",
              lambda a, b, c, f=first, s=side: rnn.pad_sequence([a, b, c], f, 0.5, s), (3, 2), (5, 2), (1, 2))
    plain("pad_sequence of no elements", f"return r.pad_sequence({{a, b}}, {text})",
          lambda a, b, f=first: rnn.pad_sequence([a, b], f), (0, 2), (2, 2))
    for sorted_ in (False, True):
        plain("pack_sequence", f"local p = r.pack_sequence({{a, b, c}}, {str(sorted_).lower()}) return p.data, p.batch_sizes",
              lambda a, b, c, s=sorted_: rnn.pack_sequence([a, b, c], s)[:2], (5, 2), (3, 2), (1, 2))
        plain("pack_sequence of falling lengths", f"return r.pack_sequence({{a, b, c}}, {str(sorted_).lower()}).data",
              lambda a, b, c, s=sorted_: rnn.pack_sequence([a, b, c], s).data, (2, 2), (3, 2), (4, 2))
    plain("pad_packed_sequence", f"return r.pad_packed_sequence(r.pack_padded_sequence(a, {{4, 1}}, {text}), {text}, -1, 6)",
          lambda a, f=first: rnn.pad_packed_sequence(rnn.pack_padded_sequence(a, [4, 1], f), f, -1, 6),
          (2, 4, 3) if first else (4, 2, 3))
plain("unpad_sequence", "return table.unpack(r.unpad_sequence(a, flow.tensor{2, 4}))",
      lambda a: rnn.unpad_sequence(a * 1, torch.tensor([2, 4])), (4, 2, 3))
plain("unpack_sequence", "return table.unpack(r.unpack_sequence(r.pack_sequence({a, b, c}, false)))",
      lambda a, b, c: rnn.unpack_sequence(rnn.pack_sequence([a, b, c], False)), (2, 2), (3, 2), (1, 2))
for lengths in ("5, 0", "7, 1", "1, 5"):
    plain("pack_padded_sequence refuses", f"return r.pack_padded_sequence(a, {{{lengths}}}).data",
          lambda a, l=lengths: rnn.pack_padded_sequence(a, [int(n) for n in l.split(",")]).data, (5, 2, 3))
half = (torch.bfloat16,)
add("LSTM of 16 bits", "flow.nn.LSTM(3, 4)", "return (layer(a))", torch.nn.LSTM(3, 4), lambda call, x: call(x)[0], [(5, 2, 3)],
    order=1, dtypes=half)
