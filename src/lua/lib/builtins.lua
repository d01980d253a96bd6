-- builtins.lua -- help texts of the functions that are written in C by hand (those of ops are in their descriptors).
-- A name that begins with "x:" is a method, one with a dot lies in a table of flow's.

---@type {[1]: string, [2]: string, [3]: string?}[] signature, sentence, subject (in help(flow); nil: "system")
local list = {
    {"tensor(data, options)", "A tensor from a number, a boolean or nested lists; int64 if every number is a Lua " ..
        "integer, else float32. Options: dtype, device, placement and sbp, requires_grad.",
        "creation"},
    {"frombytes(s, dtype, shape, options)", "A tensor of the bytes of a string, as x:tobytes gives them: " ..
        "row-major, little-endian, a bool as 0 or 1. Without a shape: one axis. Options: device, placement and sbp, " ..
        "requires_grad.",
        "creation"},
    {"from_dlpack(array)", "A tensor in memory that another library has: of a capsule of DLPack 1, of a pointer " ..
        "to a DLManagedTensorVersioned (a light userdata), or of what has a method __dlpack. Read-only memory is " ..
        "copied. What ops write there is seen by the other library after flow.sync().",
        "creation"},
    {"spec(shape, options)", "A tensor on the device \"meta\": it has a shape and a dtype, a placement and an sbp, " ..
        "but no values. Options: dtype (also alone, instead of them), placement and sbp, requires_grad.", "creation"},
    {"with_device(device, f, ...)", "Calls f; tensors that f makes without saying where are made on the device. " ..
        "On \"meta\" they take no memory: flow.with_device(\"meta\", nn.Linear, 10, 20). Without f: " ..
        "`local _ <close> = flow.with_device(\"meta\")`.", "creation"},
    {"set_default_dtype(dtype)", "The dtype of new tensors of floats where nothing says another, and of what " ..
        "integers become: \"float32\" at the start.", "creation"},
    {"get_default_dtype()", "What set_default_dtype has set.", "creation"},
    {"set_default_device(device)", "Where new tensors are made where nothing says another; with_device does so for " ..
        "a while.", "creation"},
    {"get_default_device()", "Where new tensors are made: \"cpu\" at the start.", "creation"},
    {"placement(type, ranks)", "The ranks that hold a tensor, and their device type, \"cpu\", \"cuda\" or " ..
        "\"meta\"; a nested list is a hierarchy."},
    {"placement.all(type)", "The placement on all ranks."},
    {"sbp.split(axis)", "S(axis): every rank holds a part of the axis."},
    {"max(x)", "The largest element (equal ones share its gradient); with an axis (and keepdim) the largest along " ..
        "it and their positions, which get its gradient; with a tensor, elementwise, as maximum.", "reductions"},
    {"min(x)", "The smallest element (equal ones share its gradient); with an axis (and keepdim) the smallest along " ..
        "it and their positions, which get its gradient; with a tensor, elementwise, as minimum.", "reductions"},
    {"x:cpu()", "x in the memory of the CPU; x itself if it is there."},
    {"x:cuda(index)", "x on a GPU, the one of that number if there are several; x itself if it is there."},
    {"x:float()", "x as float32; x itself if it is."},
    {"x:double()", "x as float64; x itself if it is."},
    {"x:half()", "x as float16; x itself if it is."},
    {"x:bfloat16()", "x as bfloat16; x itself if it is."},
    {"x:long()", "x as int64; x itself if it is."},
    {"x:int()", "x as int32; x itself if it is."},
    {"x:char()", "x as int8; x itself if it is."},
    {"x:byte()", "x as uint8; x itself if it is."},
    {"x:bool()", "x as bool: true where x is not 0; x itself if it is."},
    {"median(x)", "The middle element in order, of an even number the lower one; with an axis (and keepdim) that " ..
        "along it and its position. NaN where there is one.", "reductions"},
    {"nanmedian(x)", "median without the NaNs.", "reductions"},
    {"where(cond, x, y)", "The elements of x where cond is true, those of y elsewhere; with cond alone the " ..
        "positions of what is true, one result for each axis."},
    {"nonzero(x)", "The positions of what is not 0, a row each; {as_tuple = true}: one result for each axis."},
    {"x:where(cond, y)", "x where cond is true, y elsewhere."},
    {"randint(low, high, size, options)", "Random integers from low to high - 1; randint(high, size) begins at 0.",
        "creation"},
    {"randint_like(x, low, high, options)", "Random integers from low to high - 1 with the shape and dtype of x; " ..
        "randint_like(x, high) begins at 0.", "creation"},
    {"chunk(x, count, axis)", "Views of the count parts of an axis; the last may be smaller or missing.",
        "views"},
    {"split(x, size, axis)", "Views of the given size along an axis (the last may be smaller), or of the sizes in " ..
        "a list.",
        "views"},
    {"is_tensor(x)", "True if x is a tensor."},

    {"grad(y, xs, options)", "Gradients of y with respect to a tensor or a list of them. Options: grad_outputs, " ..
        "create_graph, retain_graph, allow_unused."},
    {"no_grad(f, ...)", "Calls f without recording gradients; without f: `local _ <close> = flow.no_grad()`. " ..
        "Inside a coroutine it applies to that coroutine alone."},
    {"no_sync(f, ...)", "Calls f; backward inside f keeps the gradients of this rank apart from .grad, and the next " ..
        "backward outside sums them over all ranks."},
    {"capture(f, options)", "f as a list of kernels: recorded at the first call for a kind of arguments, replayed " ..
        "by later ones without Lua. Reading a value in f is an error; with {strict = false} Lua runs f each time, " ..
        "and what led to a read is replayed."},
    {"trace(f, specs)", "The program of f, a function or a module: the ops that it calls on tensors like the specs " ..
        "(a list of flow.spec, or the same by f's parameters), without computing anything. print(p) lists it, " ..
        "p(x, y) runs it, p:infer{x = {128, 784}} is the same for other shapes, p:backward() the program of its " ..
        "gradients; p:memory(), p:profile(n), p:dot(), p:svg(path), p:save(path)."},
    {"program(path, options)", "Reads a program with its weights that p:save(path) wrote. Options: device."},
    {"inference_mode(f, ...)", "no_grad by another name of PyTorch's."},
    {"enable_grad(f, ...)", "Calls f with gradients recorded, also inside no_grad; without f: a value for `<close>`."},
    {"checkpoint(f, ...)", "Calls f (a function or a module) with the arguments after it, and keeps none of the " ..
        "values that f computes for backward: this calls f once more, with the same random numbers. Less memory for " ..
        "more time; the gradients are the same. f computes the same both times, changes no argument in place " ..
        "and does not yield."},
    {"autocast(dtype, f, ...)", "Calls f with products, convolutions and attention computed in 'bfloat16' or " ..
        "'float16', and sums, norms, losses and exponentials in float32: operands are cast, parameters once. " ..
        "autocast(false, f) and autocast(dtype, {enabled = false}, f) cast nothing in f. Without f: " ..
        "`local _ <close> = flow.autocast('bfloat16')`."},
    {"autocast_dtype()", "The dtype of flow.autocast here, or nothing."},
    {"set_detect_anomaly(mode, f, ...)", "Switches on or off what detect_anomaly does: for f, or from here on."},
    {"detect_anomaly(f, ...)", "Calls f; backward inside f reads every gradient, and the first NaN or infinity is " ..
        "an error that names the op and the line of the script that called it. Slow. Without f: `local _ <close> = " ..
        "flow.detect_anomaly()`."},
    {"set_grad_enabled(enabled, f, ...)", "Calls f with gradients recorded, or not. Without f they are " ..
        "from here on, or until the value is closed: `local _ <close> = flow.set_grad_enabled(training)`."},
    {"is_grad_enabled()", "True if gradients are recorded here."},

    {"manual_seed(seed)", "Seeds the default generator of random numbers."},
    {"generator(seed)", "A new generator of random numbers, with state() and load_state(s)."},
    {"default_generator()", "The generator that random functions draw from."},
    {"with_generator(g, f, ...)", "Calls f with random numbers from g; without f: `local _ <close> = " ..
        "flow.with_generator(g)`."},

    {"rank()", "The rank of this process, from 0."},
    {"world_size()", "The number of ranks."},
    {"barrier()", "Waits until every rank has called it."},
    {"on_rank(r, f, ...)", "Calls f on rank r alone and returns its results; returns nothing on the others."},
    {"print(...)", "As print, on rank 0 alone (inside on_rank: on that rank)."},
    {"sync()", "Waits for all queued ops and raises the first error among them."},
    {"memory(options)", "Bytes of tensors: live, cached, peak ({reset_peak = true} restarts the peak); " ..
        "{device = \"cuda\"}: of that device; of \"meta\" what its tensors would take."},
    {"device_count(type)", "The number of usable devices of a type (\"cuda\", \"cpu\"); \"cuda\": 0 without " ..
        "a GPU, a driver or the plug-in."},
    {"set_num_threads(n)", "Sets the number of threads."},
    {"get_num_threads()", "The number of threads."},
    {"set_float32_matmul_precision(name)", "The precision of float32 products: \"highest\" (the default): " ..
        "float32; \"high\" and \"medium\": a GPU may round their operands to TF32, about 3 digits. No effect on " ..
        "the CPU. The setting belongs to this rank."},
    {"get_float32_matmul_precision()", "\"highest\", \"high\" or \"medium\"."},
    {"engine.push(options)", "Runs a Lua function beside the ops, on a thread of its own: " ..
        "engine.push{run = f, reads = {x}, writes = {y}, args = {3}} calls f(reads, writes, 3) when x has its value " ..
        "and nothing uses y any more. f gets the tensors as arrays: a[i] from 0, #a, a.dtype, a.shape, a:tobytes(), " ..
        "a:frombytes(s). It is a text or a function without local variables from outside, and cannot call flow. " ..
        "job:wait() gives what f returned, or its error; job:done() says whether it is over. priority = 1 or -1: it " ..
        "begins before, or after, others that could begin."},
    {"engine.stats()", "Counters of the engine: ops run inline and queued, waits of the script and of a device's " ..
        "queues (follows), failures, lanes, threads; collectives of GPU tensors carried out between the GPUs " ..
        "(device_collectives) and through host memory (staged_collectives); what captured functions launched on a " ..
        "device: single steps (replayed_steps), graphs of several, and how often graphs were recorded."},
    {"infer_cache.stats()", "{hits, misses, size} of the cache of plans."},
    {"infer_cache.clear()", "Empties the cache of plans."},

    {"x:backward(grad, options)", "Adds the gradients of x to the .grad of the leaves it was computed from. grad " ..
        "may be omitted if x has one element. Options: retain_graph, create_graph."},
    {"x:detach_()", "x without its history: a tensor that was computed becomes one that requires no grad."},
    {"x:storage_offset()", "Where the first element lies in the memory that x shares with its views, in elements."},
    {"x:detach()", "A view of the same elements, without history: no gradient passes through it."},
    {"x:requires_grad_(flag)", "Sets requires_grad (default true) and returns x."},
    {"x:retain_grad()", "Makes backward keep .grad of a tensor that is no leaf."},
    {"x:register_hook(f)", "Calls f(gradient) when the gradient of x is known; a result of f replaces it. " ..
        "handle:remove() removes the hook."},
    {"x:register_post_accumulate_grad_hook(f)", "Calls f(x) whenever backward has added to x.grad, x being a leaf " ..
        "that requires grad; handle:remove() removes the hook."},
    {"x:dim()", "The number of axes."},
    {"x:size(axis)", "The size of an axis; without an axis, the list of all sizes."},
    {"x:stride(axis)", "The distance of neighbours along an axis, in elements; without an axis, the list of all."},
    {"x:numel()", "The number of elements."},
    {"x:nelement()", "The number of elements."},
    {"x:is_contiguous()", "True if the elements lie in row-major order without gaps."},
    {"x:item()", "The only element as a Lua number or boolean."},
    {"x:totable()", "The elements in nested lists; a number for a tensor without axes."},
    {"x:tobytes()", "The elements as a string of bytes: row-major, little-endian, a bool as 0 or 1. See " ..
        "flow.frombytes."},
    {"x:__dlpack()", "The memory of x, on this rank, for another library: a capsule of DLPack 1. " ..
        "capsule:take() gives the pointer, whose deleter the caller then has to call. See flow.from_dlpack."},
    {"x:to(target)", "x with another dtype or on another device: \"float64\", \"cuda\", \"meta\", a tensor to " ..
        "match, or {dtype =, device =}."},
    {"x:to_global(options)", "x as a global tensor. Options: placement, sbp, grad_sbp; check = true compares the " ..
        "data of the ranks if x is local; priority = 1 or -1: in a captured step this boxing, and that of its " ..
        "gradient, overtakes those of a lower priority, or is overtaken (0 without it; no effect on eager code)."},
    {"x:to_local(options)", "This rank's part of a global tensor, a view. Options: grad_sbp."},
}

for name in ([[addbmm addmm addmv addr baddbmm clamp_max clamp_min cumprod cumsum float_power ldexp mvlgamma polygamma
    tril triu]]):gmatch "%S+" do
    list[#list + 1] = {("x:%s_(...)"):format(name), ("The result of x:%s(...), written into x."):format(name)}
end

return list
