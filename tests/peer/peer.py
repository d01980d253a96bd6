#!/usr/bin/env python3
"""peer.py -- flow's ops beside PyTorch's: results, gradients and gradients of gradients on random inputs.

    python3 tests/peer/peer.py FLOWLUA [FAMILY ...]

A family is a file cases_FAMILY.py with a list `cases` of Case: see cases_linalg.py. All cases of a family are written to
a folder, one flowlua computes them (answer.lua), and what it answers is compared. A case on which PyTorch fails must fail.
Without PyTorch nothing is compared, and that is said.
"""
import ctypes
import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("test-peer: skipped, there is no PyTorch in", sys.executable)
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class Case:
    """lua: a chunk over flow, a, b, c that returns results; torch: a function of the same tensors.
    inputs: a function of (random, dtype) that gives the tensors. order: how many derivatives (0, 1, 2).
    same: compares after this, a function of a PyTorch tensor and its key "y1", "g1", "h1". tolerance: a factor."""

    def __init__(self, name, lua, function, inputs, order=2, dtypes=(torch.float64, torch.float32), same=None,
                 tolerance=1.0):
        self.name, self.lua, self.function, self.inputs = name, lua, function, inputs
        self.order, self.dtypes, self.same, self.tolerance = order, dtypes, same, tolerance


def save(path, tensors):
    """A safetensors file."""
    header, blobs, at = {}, [], 0
    for name, x in tensors.items():
        x = x.detach().contiguous()
        data = ctypes.string_at(x.data_ptr(), x.numel() * x.element_size()) if x.numel() else b""
        header[name] = {"dtype": DTYPES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load(path):
    names = {name: dtype for dtype, name in DTYPES.items()}
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=names[entry["dtype"]]) if end > begin else \
            torch.empty(0, dtype=names[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def weighted(results):
    """Each element has a weight of its own, as in answer.lua."""
    total = None
    for j, y in enumerate(results, 1):
        if torch.is_tensor(y) and y.is_floating_point() and y.requires_grad:
            weight = (torch.arange(y.numel(), dtype=torch.float64) * 0.37 + 0.5 + j).cos().reshape(y.shape).to(y.dtype)
            total = (y * weight).sum() if total is None else total + (y * weight).sum()
    return total


def expected(case, inputs):
    """PyTorch's results by key, or None where it fails."""
    try:
        args = [x.detach().clone().requires_grad_(case.order > 0 and x.is_floating_point()) for x in inputs]
        leaves = [x for x in args if x.requires_grad]
        results = case.function(*args)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        found = {f"y{j}": y for j, y in enumerate(results, 1)}
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError) as problem:
        return None, str(problem).split("\n")[0]
    slopes = results
    try:
        for order in range(1, case.order + 1):
            total = weighted(slopes)
            if total is None:
                break
            slopes = torch.autograd.grad(total, leaves, create_graph=order < case.order, allow_unused=True)
            found.update({f"{'gh'[order - 1]}{i}": g for i, g in enumerate(slopes, 1) if g is not None})
    except (RuntimeError, NotImplementedError, IndexError) as problem:
        return found, str(problem).split("\n")[0]
    return found, None


def difference(want, got, tolerance):
    """What keeps `got` from passing as `want`, or None."""
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{got.dtype}{list(got.shape)}, PyTorch {want.dtype}{list(want.shape)}"
    if not want.numel():
        return None
    if not want.is_floating_point():
        return None if bool((want == got).all()) else f"{got.flatten()[:4].tolist()}, PyTorch {want.flatten()[:4].tolist()}"
    want, got = want.double(), got.double()
    scale = want[want.isfinite()].abs().max().item() if bool(want.isfinite().any()) else 1.0
    good = (want - got).abs() <= tolerance * max(1.0, scale)
    good |= (want == got) | (want.isnan() & got.isnan())
    if bool(good.all()):
        return None
    at = int((~good).flatten().nonzero()[0])
    return f"element {at} is {got.flatten()[at].item():.9g}, PyTorch {want.flatten()[at].item():.9g}"


def write_down(cases, folder):
    """The files that answer.lua reads. Gives the list of (entry, case, inputs)."""
    tensors, entries, runs = {}, [], []
    for number, case in enumerate(cases):
        for dtype in case.dtypes:
            for strided in (False, True):
                random = torch.Generator().manual_seed(number * 7 + strided)
                inputs = [x.clone() for x in case.inputs(random, dtype)]
                key = str(len(entries))
                names = [f"{key}.{i}" for i in range(len(inputs))]
                tensors.update(zip(names, inputs))
                entry = {"id": key, "name": f"{case.name} in {str(dtype)[6:]}{', strided' if strided else ''}",
                         "lua": case.lua, "inputs": names, "order": case.order, "strided": strided}
                entries.append(entry)
                runs.append((entry, case, inputs, dtype))
    save(os.path.join(folder, "inputs.safetensors"), tensors)
    with open(os.path.join(folder, "cases.json"), "w") as file:
        json.dump(entries, file)
    return runs


def judge(entry, case, inputs, dtype, answer, tensors):
    """The differences of one run."""
    want, problem = expected(case, inputs)
    if want is None:
        return [f"is no error; PyTorch: {problem}"] if answer["ok"] else []
    if not answer["ok"] and not problem:
        return [answer["message"]]
    wrong = []
    for key, y in want.items():
        got = tensors.get(f"{entry['id']}.{key}")
        y = y.detach()
        if got is None:
            if answer["ok"] and not (key[0] in "gh" and not bool((y != 0).any())):
                wrong.append(f"{key}: missing")
            continue
        if case.same:
            y, got = case.same(y, key), case.same(got, key)
        looser = {"y": 1, "g": 10, "h": 100}[key[0]]
        text = difference(y, got, (TOLERANCE.get(dtype) or TOLERANCE.get(y.dtype, 0)) * case.tolerance * looser)
        if text:
            wrong.append(f"{key}: {text}")
    return wrong


def compare(flowlua, family):
    """How many runs there were, and how many of them differ."""
    cases = importlib.import_module("cases_" + family).cases
    with tempfile.TemporaryDirectory() as folder:
        runs = write_down(cases, folder)
        subprocess.run([flowlua, os.path.join(HERE, "answer.lua"), folder], check=True)
        with open(os.path.join(folder, "answers.json")) as file:
            answers = json.load(file)
        tensors = load(os.path.join(folder, "answers.safetensors"))
    bad, names = 0, {}
    for (entry, case, inputs, dtype), answer in zip(runs, answers):
        wrong = judge(entry, case, inputs, dtype, answer, tensors)
        for text in wrong:
            print(f"  {entry['name']}: {text}")
        bad += bool(wrong)
        names.setdefault(case.name.split(":")[0], []).append(not wrong)
    print(f"{family}: {len(runs) - bad} of {len(runs)} runs agree, {sum(map(all, names.values()))} of {len(names)} ops")
    return bad


def main():
    sys.path.insert(0, HERE)
    sys.modules["peer"] = sys.modules["__main__"]
    torch.set_num_threads(1)
    families = sys.argv[2:] or sorted(name[6:-3] for name in os.listdir(HERE) if name.startswith("cases_"))
    print(f"beside PyTorch {torch.__version__}")
    bad = sum(compare(os.path.abspath(sys.argv[1]), family) for family in families)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
