-- builtins.lua -- help texts of the functions that are written in C by hand (those of ops are in their descriptors).
-- A name that begins with "x:" is a method, one with a dot lies in a table of flow's.

---@type {[1]: string, [2]: string, [3]: string?}[] signature, sentence, subject (in help(flow); nil: "system")
return {
    {"tensor(data, options)", "A tensor of a number, a boolean or nested lists; int64 when every number is a Lua " ..
        "integer, else float32. Options: dtype, device, placement and sbp, requires_grad.",
        "creation"},
    {"placement(type, ranks)", "Which ranks hold a tensor: type \"cpu\" or \"cuda\"; a nested list is a hierarchy."},
    {"placement.all(type)", "The placement on every rank of the world."},
    {"sbp.split(axis)", "S(axis): every rank holds a part of that axis."},
    {"max(x)", "The largest element (equal ones share its gradient); with an axis (and keepdim) the largest along " ..
        "it and their positions, which get its gradient; with a tensor, elementwise, as maximum.", "reductions"},
    {"min(x)", "The smallest element (equal ones share its gradient); with an axis (and keepdim) the smallest along " ..
        "it and their positions, which get its gradient; with a tensor, elementwise, as minimum.", "reductions"},
    {"chunk(x, count, axis)", "Views that cut an axis into so many parts; the last may be smaller or missing.",
        "views"},
    {"split(x, size, axis)", "Views of that size along an axis (the last may be smaller), or of the sizes in a list.",
        "views"},
    {"is_tensor(x)", "Is x a tensor?"},

    {"grad(y, xs, options)", "Gradients of y with respect to a tensor or a list of them. Options: grad_outputs, " ..
        "create_graph, retain_graph, allow_unused."},
    {"no_grad(f, ...)", "Calls f without recording gradients; without f: `local _ <close> = flow.no_grad()`. " ..
        "Inside a coroutine it holds for that coroutine alone."},
    {"no_sync(f, ...)", "Calls f; backward inside keeps this rank's gradients aside (not in .grad), and the next " ..
        "one outside adds them up over all ranks."},
    {"enable_grad(f, ...)", "Calls f with gradients recorded, inside no_grad too; without f a value for `<close>`."},
    {"is_grad_enabled()", "Are gradients recorded here?"},

    {"manual_seed(seed)", "Restarts the default generator of random numbers."},
    {"generator(seed)", "A generator of its own, with state() and load_state(s)."},
    {"default_generator()", "The generator that random functions draw from."},
    {"with_generator(g, f, ...)", "Calls f with random numbers from g; without f: `local _ <close> = " ..
        "flow.with_generator(g)`."},

    {"rank()", "The rank of this process, from 0."},
    {"world_size()", "The number of ranks."},
    {"barrier()", "Waits until every rank has come here."},
    {"on_rank(r, f, ...)", "Calls f on rank r alone and returns what it returns; nothing on the others."},
    {"print(...)", "print, on rank 0 alone (inside on_rank: on that rank)."},
    {"sync()", "Waits for all queued ops and raises what failed among them."},
    {"memory(options)", "Bytes of tensors: live, cached, peak ({reset_peak = true} begins the peak anew); " ..
        "{device = \"cuda\"}: of that device."},
    {"device_count(type)", "How many devices of a type (\"cuda\", \"cpu\") the script can use; \"cuda\": 0 where " ..
        "there is no GPU, no driver or no plug-in."},
    {"set_num_threads(n)", "The size of the thread team."},
    {"get_num_threads()", "The size of the thread team."},
    {"set_float32_matmul_precision(name)", "How products of float32 are computed: \"highest\" (at first) in " ..
        "float32; \"high\" and \"medium\": a GPU may round their operands to TF32, about 3 digits. It makes no " ..
        "difference on the CPU. A setting of this rank alone."},
    {"get_float32_matmul_precision()", "\"highest\", \"high\" or \"medium\"."},
    {"engine.stats()", "Counters of the engine: ops run inline and queued, waits of the script and of a device's " ..
        "queues (follows), failures, lanes, threads; collectives of tensors on GPUs that these moved themselves " ..
        "(device_collectives) and that went by way of the CPUs (staged_collectives)."},
    {"infer_cache.stats()", "{hits, misses, size} of the cache of inferred plans."},
    {"infer_cache.clear()", "Empties the cache of inferred plans."},

    {"x:backward(grad, options)", "Adds the gradients of x to the .grad of the leaves it was computed from. grad " ..
        "may be left out when x has one element. Options: retain_graph, create_graph."},
    {"x:detach()", "The same elements outside the graph, a view."},
    {"x:requires_grad_(flag)", "Sets requires_grad (true when left out) and returns x."},
    {"x:retain_grad()", "Keeps .grad of a tensor that is no leaf."},
    {"x:register_hook(f)", "f(gradient) runs when x's gradient is known; what it returns replaces it. " ..
        "handle:remove() ends it."},
    {"x:dim()", "The number of axes."},
    {"x:size(axis)", "The size of an axis; all of them, a list, without one."},
    {"x:stride(axis)", "How many elements apart neighbours along an axis lie; of all axes, a list, without one."},
    {"x:numel()", "The number of elements."},
    {"x:nelement()", "The number of elements."},
    {"x:is_contiguous()", "Do the elements lie in order, without gaps?"},
    {"x:item()", "The only element as a Lua number or boolean."},
    {"x:totable()", "Nested lists of the elements; a number for a tensor without axes."},
    {"x:to(target)", "x with another dtype or on another device: \"float64\", \"cuda\", a tensor to be like, or " ..
        "{dtype =, device =}."},
    {"x:to_global(options)", "A global tensor: placement, sbp, grad_sbp; of a local one, check = true compares the " ..
        "ranks' data."},
    {"x:to_local(options)", "This rank's part of a global tensor, a view. Options: grad_sbp."},
}
