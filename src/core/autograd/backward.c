/*
** backward.c -- gradients flow back through the tape.
**
** Nodes are visited from the newest to the oldest: every consumer of a value is newer than its producer,
** so a node's gradient is complete when it is reached. A leaf's gradient is final when its last
** contribution has come (`expected`); only then it is boxed and added to .grad. Small ones wait for others, so that
** their all-reduces travel together.
*/
#include "dispatch/autocast.h"
#include "bucket.h"
#include "dispatch/answer.h"
#include "dispatch/to_global.h"
#include "gradient.h"
#include "op/outside.h"
#include "pass.h"

#include <assert.h>
#include <stdlib.h>

enum { SMALL_BYTES = 64 << 10, WAITING_BYTES = 256 << 10 };

/* ---- leaves ---- */

/* Adds a final gradient to .grad, taking over its reference. */
static fl_status add_to_grad(fl_autograd *record, fl_tensor *g, bool create_graph)
{
    fl_status status = FL_OK;
    if (!record->grad && !fl_gradient_is_own(g) && !create_graph) {
        fl_tensor *copy;
        status = FL_CALL(&copy, clone, fl_of(g));
        fl_tensor_unref(g);
        FL_TRY(status);
        g = copy;
    }
    if (!record->grad) {
        record->grad = g;
        return FL_OK;
    }
    fl_tensor *total;
    const fl_operand in[2] = {fl_of(record->grad), fl_of(g)};
    status = create_graph ? fl_dispatch(&total, FL_OP_REF(add), in, 2, NULL)
                          : fl_dispatch_inplace(&total, FL_OP_REF(add), in, 2, NULL);
    fl_tensor_unref(g);
    FL_TRY(status);
    fl_tensor_unref(record->grad);
    record->grad = total;
    return FL_OK;
}

/* Calls the hooks that wait for the leaf's .grad, which may take it away. */
static fl_status call_after(fl_tensor *leaf)
{
    for (const tape_hook *hook = leaf->autograd->after; hook; hook = hook->next) {
        fl_tensor *none = NULL;
        FL_TRY(hook->call(&none, leaf, hook->context));
        assert(!none);
    }
    return FL_OK;
}

/* The gradient of a leaf, in the leaf's own SBP (g: taken over), goes where it is wanted. */
static fl_status hand_over(tape_pass *pass, fl_tensor *leaf, fl_tensor *g)
{
    if (pass->accumulate && leaf->requires_grad) {
        if (FL_UNLIKELY(fl_autograd_grad_watch != NULL)) fl_autograd_grad_watch(leaf, FL_GRAD_READ);
        FL_TRY(add_to_grad(leaf->autograd, g, pass->create_graph));
        return FL_UNLIKELY(leaf->autograd->after != NULL) ? call_after(leaf) : FL_OK;
    }
    for (int i = 0; i < pass->xcount; i++)
        if (pass->xs[i] == leaf) pass->found[i] = fl_tensor_ref(g);
    fl_tensor_unref(g);
    return FL_OK;
}

/* Boxes what waits, in the order of the tape. */
static fl_status box_waiting(tape_pass *pass)
{
    tape_waiting *w = &pass->waiting;
    fl_tensor *boxed[FL_PASS_WAITING];
    const fl_meta *metas[FL_PASS_WAITING] = {NULL};
    int count = w->count;
    for (int i = 0; i < count; i++) metas[i] = w->leaves[i]->meta;
    fl_status status = fl_bucket_box(boxed, w->gradients, metas, count);
    w->count = 0;
    w->bytes = 0;
    for (int i = 0; i < count; i++) {
        if (status == FL_OK) status = hand_over(pass, w->leaves[i], boxed[i]);
        else if (boxed[i]) fl_tensor_unref(boxed[i]);
        fl_tensor_unref(w->gradients[i]);
        fl_tensor_unref(w->leaves[i]);
    }
    return status;
}

/* A graph of gradients records every boxing by itself. */
static fl_status box_alone(tape_pass *pass, fl_tensor *leaf, fl_tensor *g, bool records)
{
    fl_tensor *boxed;
    fl_status status = records ? fl_to_global(&boxed, g, leaf->meta->placement, leaf->meta->nd_sbp, NULL)
                               : fl_bucket_box(&boxed, &g, &leaf->meta, 1);
    fl_tensor_unref(g);
    return status == FL_OK ? hand_over(pass, leaf, boxed) : status;
}

/* Boxes a final gradient (taken over) to the leaf's own SBP: at once, or soon with others. A large one goes alone, so
** that it is not copied to lie beside others. */
static fl_status box_to_leaf(tape_pass *pass, fl_tensor *leaf, fl_tensor *g)
{
    tape_waiting *w = &pass->waiting;
    if (g->meta == leaf->meta) return hand_over(pass, leaf, g);
    const bool records = pass->create_graph || leaf->meta->is_local;
    int64_t bytes = leaf->meta->numel * (int64_t)fl_dtype_size(leaf->meta->dtype);
    if (records || bytes > SMALL_BYTES) return box_alone(pass, leaf, g, records);
    w->leaves[w->count] = fl_tensor_ref(leaf);
    w->gradients[w->count++] = g;
    w->bytes += bytes;
    return w->bytes > WAITING_BYTES || w->count == FL_PASS_WAITING ? box_waiting(pass) : FL_OK;
}

bool fl_grad_sync = true;
int64_t fl_grad_unsynced;

/* A contribution to a leaf has come (g: owned, or NULL when this path gives none). */
static fl_status contribute(tape_pass *pass, fl_tensor *leaf, fl_tensor *g)
{
    fl_autograd *a = leaf->autograd;
    if (g) FL_TRY(fl_gradient_add(&a->pending, g, pass->create_graph));
    if (--a->expected > 0 || !a->pending) return FL_OK;
    fl_tensor *final = a->pending;
    a->pending = NULL;
    fl_status status = fl_gradient_hook(&final, a->hooks, 0);
    bool kept = pass->accumulate && final->meta != leaf->meta && !fl_grad_sync; /* for a later pass to box */
    if (status == FL_OK && pass->accumulate && a->unsynced && (kept || fl_grad_sync)) {
        status = fl_gradient_add(&a->unsynced, final, pass->create_graph);
        final = a->unsynced;
        a->unsynced = NULL;
        fl_grad_unsynced--;
    }
    if (status == FL_OK && kept) {
        a->unsynced = final;
        fl_grad_unsynced++;
        return FL_OK;
    }
    if (status == FL_OK) return box_to_leaf(pass, leaf, final);
    fl_tensor_unref(final);
    return status;
}

/* ---- nodes ---- */

/* A copy of the base's gradient in the base's SBP, in which the view that was written is a view again. */
static fl_status copy_for_views(fl_tensor **out, fl_tensor *g, const fl_meta *base)
{
    if (base->is_local) return FL_CALL(out, clone, fl_of(g));
    fl_tensor *boxed;
    FL_TRY(fl_to_global(&boxed, g, base->placement, fl_nd_sbp_reduced(base->nd_sbp), NULL));
    fl_status status = FL_CALL(out, clone, fl_of(boxed));
    fl_tensor_unref(boxed);
    return status;
}

/* A local part taken of the base stands for the whole only in the base's own SBP; its gradient is never partial. */
static fl_status box_to_base(fl_tensor **g, const fl_meta *base, const tape_link *link)
{
    while (link && !link->op->replay) link = link->before;
    if (!link || base->is_local) return FL_OK;
    fl_tensor *boxed;
    FL_TRY(fl_to_global(&boxed, *g, base->placement, fl_nd_sbp_reduced(base->nd_sbp), NULL));
    fl_tensor_unref(*g);
    *g = boxed;
    return FL_OK;
}

/* Gradient of an in-place op on a view: the base's gradient with the written region taken out. */
static fl_status region_gradient(fl_grad *g, fl_node *node, fl_status (*inner)(fl_grad *))
{
    fl_tensor *whole = NULL, *part = NULL, *copy = NULL, *done = NULL, *base_grad = g->gout[0];
    fl_status status = copy_for_views(&whole, base_grad, g->out_meta[0]);
    if (status == FL_OK) status = box_to_base(&whole, g->out_meta[0], node->region->link);
    if (status == FL_OK) status = fl_tape_replay(&part, whole, node->region->link);
    if (status == FL_OK) status = FL_CALL(&copy, clone, fl_of(part));
    const fl_meta *metas[FL_MAX_PARAMS] = {NULL};
    for (int i = 0; i < node->nin && i < FL_MAX_PARAMS; i++) metas[i] = i == 0 && part ? part->meta : g->in_meta[i];
    if (status == FL_OK) {
        fl_grad sub = *g;
        sub.gout = &copy;
        sub.sum_of = NULL;
        sub.in_meta = metas;
        sub.out_meta = &metas[0];
        status = inner(&sub);
        if (status == FL_OK && g->gin[0]) status = fl_gradient_fit(&g->gin[0], part->meta);
        if (status == FL_OK && g->need[0]) {
            if (g->gin[0]) status = FL_CALL(&done, copy_, fl_of(part), fl_of(g->gin[0]));
            else status = FL_CALL(&done, zero_, fl_of(part));
        }
    }
    fl_tensor_unref(done);
    fl_tensor_unref(copy);
    fl_tensor_unref(part);
    fl_tensor_unref(g->gin[0]);
    g->gin[0] = whole; /* without a use where the base as it was needs no gradient: its operands were not saved */
    return status;
}

static fl_status node_gradient(fl_grad *g, fl_node *node)
{
    if (FL_UNLIKELY(node->function != NULL)) return fl_tape_function_gradient(g, node->function);
    fl_status (*inner)(fl_grad *) = node->op->grad ? node->op->grad : node->op->vjp ? fl_vjp_eval : NULL;
    if (!inner) return fl_fail(FL_ERR_STATE, "backward: %s has no gradient", node->op->name);
    uint64_t before = fl_hook_begin();
    return fl_hook_end(node->region ? region_gradient(g, node, inner) : inner(g), before, node->op, "its grad");
}

/* Hands gin[i] (owned or NULL) to where edge i leads. */
static fl_status deliver(tape_pass *pass, fl_node *node, int i, fl_tensor *g)
{
    tape_edge *e = &node->edges[i];
    if (g && (e->node || e->leaf)) {
        fl_status status = fl_gradient_fit(&g, e->meta);
        if (status != FL_OK) {
            fl_tensor_unref(g);
            return status;
        }
    }
    if (e->leaf) return contribute(pass, e->leaf, g);
    if (!g) return FL_OK;
    if (e->node && e->node->wanted) return fl_gradient_add(&e->node->pending[e->slot], g, pass->create_graph);
    fl_tensor_unref(g);
    return FL_OK;
}

/* Keeps or returns the requested gradient of an output. */
static fl_status deliver_outputs(tape_pass *pass, fl_node *node)
{
    for (int s = 0; s < node->nout; s++) {
        if (!node->pending[s]) continue;
        FL_TRY(fl_gradient_hook(&node->pending[s], node->hooks, s));
        if (pass->accumulate && node->retain[s])
            FL_TRY(add_to_grad(node->retain[s], fl_tensor_ref(node->pending[s]), pass->create_graph));
        for (int i = 0; i < pass->xcount; i++) {
            fl_autograd *a = pass->xs[i]->autograd;
            if (a && a->node == node && a->slot == s && !pass->found[i])
                pass->found[i] = fl_tensor_ref(node->pending[s]);
        }
    }
    return FL_OK;
}

enum { STACK_INPUTS = 16 };

struct visited {
    tape_pass *pass;
    fl_node *node;
};

/* Parts of a global sum may lie differently on the ranks, wait to be computed or be views on some of them: all ranks
** run the same ops, so none of this decides. A local sum that waits takes one step more. */
static fl_tensor *usable(fl_tensor *sum, const fl_tensor *leaf)
{
    if (sum->requires_grad || sum->meta->dtype != leaf->meta->dtype) return NULL;
    if (!leaf->meta->is_local) return sum;
    if (sum->autograd || sum->meta != leaf->meta || !sum->contiguous || sum->moved_view) return NULL;
    return fl_storage_is_deferred(sum->storage) ? NULL : sum;
}

/* The same of a sum that autograd alone should hold. */
static fl_tensor *usable_own(fl_tensor **sum, const fl_tensor *leaf)
{
    if (leaf->meta->is_local) return fl_gradient_is_own(*sum) ? usable(*sum, leaf) : NULL;
    return fl_gradient_make_own(sum) == FL_OK ? usable(*sum, leaf) : NULL;
}

/* The sum that the gradient of a leaf may be added into, so that products need no memory of their own; NULL: none. It
** is the sum of this pass, or that of passes under no_sync, or .grad; for the first two of a global leaf partial sums
** are added to partial sums, and boxed once. */
static fl_tensor *leaf_sum(const fl_grad *g, int i)
{
    const struct visited *v = g->sums;
    fl_tensor *leaf = v->node->edges[i].leaf;
    if (!leaf || v->pass->create_graph || fl_anomaly_watched) return NULL;
    fl_autograd *a = leaf->autograd;
    if (a->pending) return usable_own(&a->pending, leaf);
    if (a->expected != 1 || !v->pass->accumulate || !leaf->requires_grad || a->hooks) return NULL;
    if (a->unsynced) return usable_own(&a->unsynced, leaf);
    if (!a->grad || a->after) return NULL;
    if (FL_UNLIKELY(fl_autograd_grad_watch != NULL)) fl_autograd_grad_watch(leaf, FL_GRAD_READ);
    return usable(a->grad, leaf);
}

/* Products (a bit for each operand) were added to sums of leaves: one that passes under no_sync have left is the sum of
** this pass now. */
static void take_unsynced(fl_node *node, uint32_t added)
{
    for (int i = 0; added; i++, added >>= 1) {
        fl_autograd *a = added & 1 ? node->edges[i].leaf->autograd : NULL;
        if (!a || a->pending || !a->unsynced) continue;
        a->pending = a->unsynced;
        a->unsynced = NULL;
        fl_grad_unsynced--;
    }
}

/* Runs one node's gradient and hands out the results. */
static fl_status visit(tape_pass *pass, fl_node *node)
{
    bool any = false, useful = false;
    for (int s = 0; s < node->nout; s++) any |= node->pending[s] != NULL;
    FL_TRY(deliver_outputs(pass, node));
    size_t nin = (size_t)node->nin, size = nin * (sizeof(fl_operand) + 2 * sizeof(void *) + sizeof(bool));
    char local[STACK_INPUTS * (sizeof(fl_operand) + 2 * sizeof(void *) + sizeof(bool))] __attribute__((aligned(16))),
        *block = local;
    if (nin > STACK_INPUTS && !(block = malloc(size))) return fl_pass_out_of_memory();
    memset(block, 0, size);
    fl_tensor *outs[FL_MAX_OUT] = {NULL};
    fl_operand *in = (fl_operand *)block;
    const fl_meta **metas = (const fl_meta **)(in + nin);
    fl_tensor **gin = (fl_tensor **)(metas + nin);
    bool *need = (bool *)(gin + nin);
    struct visited visited = {pass, node};
    fl_status status = FL_OK;
    for (size_t i = 0; i < nin && any; i++) {
        useful |= need[i] = fl_pass_wants(pass, &node->edges[i]);
        metas[i] = node->edges[i].meta;
    }
    if (useful) {
        fl_grad g = {node->op,       node->attrs,   node->nin, node->nout, in,       outs,     metas,
                     node->out_meta, node->pending, need,      gin,        leaf_sum, &visited, 0};
        status = fl_tape_unpack(&g, node);
        if (status == FL_OK) status = node_gradient(&g, node);
        if (status == FL_OK && g.added) take_unsynced(node, g.added);
        if (FL_UNLIKELY(fl_anomaly_watched) && status == FL_OK) status = fl_anomaly_check(node, &g);
        fl_tape_release_grad(&g);
        if (status == FL_OK && !pass->retain) fl_tape_forget(node);
        else if (node->member) fl_recompute_drop(node);
    }
    for (int s = 0; s < node->nout; s++) {
        fl_tensor_unref(node->pending[s]);
        node->pending[s] = NULL;
    }
    for (size_t i = 0; i < nin; i++) {
        if (status == FL_OK) status = deliver(pass, node, (int)i, gin[i]);
        else fl_tensor_unref(gin[i]);
    }
    if (block != local) free(block);
    return status;
}

/* ---- the whole pass ---- */

static void pass_end(tape_pass *pass)
{
    for (int i = 0; i < pass->waiting.count; i++) { /* left by an error */
        fl_tensor_unref(pass->waiting.gradients[i]);
        fl_tensor_unref(pass->waiting.leaves[i]);
    }
    for (int64_t i = 0; i < pass->count; i++) {
        fl_node *n = pass->nodes[i];
        n->run = NULL;
        if (n->member) fl_recompute_drop(n);
        for (int s = 0; s < n->nout; s++) {
            fl_tensor_unref(n->pending[s]);
            n->pending[s] = NULL;
        }
    }
    for (int64_t i = 0; i < pass->count; i++) fl_node_unref(pass->nodes[i]);
    for (int64_t i = 0; i < pass->leaf_count; i++) {
        tape_reached *r = &pass->leaves[i];
        fl_autograd *a = r->leaf->autograd;
        fl_tensor_unref(a->pending);
        a->pending = r->outer_pending;
        a->expected = r->outer_expected;
        a->run = r->outer_run;
        fl_tensor_unref(r->leaf);
    }
    free(pass->nodes);
    free(pass->leaves);
}

/* The name of the function that the script called. */
static const char *pass_name(const tape_pass *pass) { return pass->accumulate ? "backward" : "grad"; }

/* The gradient backward starts with: given, or ones for a 0-d y. */
static fl_status seed(const tape_pass *pass, fl_tensor **out, fl_tensor *y, fl_tensor *grad)
{
    char have[FL_META_TEXT], want[FL_META_TEXT];
    if (grad) {
        if (!fl_shape_equal(&grad->meta->shape, &y->meta->shape))
            return fl_fail(FL_ERR_SHAPE, "%s: the gradient given is %s, the tensor is %s", pass_name(pass),
                           fl_meta_text(have, grad->meta), fl_meta_text(want, y->meta));
        if (grad->meta->is_local != y->meta->is_local)
            return fl_fail(FL_ERR_SBP, "%s: the gradient given is %s (%s), the tensor is %s (%s)", pass_name(pass),
                           grad->meta->is_local ? "local" : "global", fl_meta_text(have, grad->meta),
                           y->meta->is_local ? "local" : "global", fl_meta_text(want, y->meta));
        *out = fl_tensor_ref(grad);
        fl_status status = fl_gradient_fit(out, y->meta);
        if (status != FL_OK) fl_tensor_unref(*out);
        return status;
    }
    if (y->meta->numel != 1)
        return fl_fail(FL_ERR_SHAPE, "%s: %s needs a gradient; only a tensor of one element has the default 1",
                       pass_name(pass), fl_meta_text(want, y->meta));
    return FL_CALL(out, ones_like, fl_of(y));
}

static fl_status start(tape_pass *pass, fl_tensor *y, fl_tensor *grad, fl_node **node, int *slot)
{
    FL_TRY(fl_tape_node_of(node, slot, y));
    if (!y->requires_grad && !*node)
        return fl_fail(FL_ERR_STATE,
                       "%s: this tensor does not require grad: nothing it was computed from has requires_grad = true",
                       pass_name(pass));
    if (*node) return fl_pass_reach(pass, *node);
    return fl_pass_reach_leaf(pass, y);
}

static fl_status run(tape_pass *pass, fl_tensor *const *ys, fl_tensor *const *grads, int ycount)
{
    fl_status status = FL_OK;
    fl_node *nodes[FL_MAX_PARAMS];
    int slots[FL_MAX_PARAMS];
    if (ycount > FL_MAX_PARAMS) return fl_fail(FL_ERR_VALUE, "backward: at most %d tensors at once", FL_MAX_PARAMS);
    for (int i = 0; i < ycount && status == FL_OK; i++)
        status = start(pass, ys[i], grads ? grads[i] : NULL, &nodes[i], &slots[i]);
    if (status == FL_OK) status = fl_pass_reach_all(pass);
    if (status == FL_OK) status = fl_pass_mark_wanted(pass);
    for (int i = 0; i < ycount && status == FL_OK; i++) {
        fl_tensor *g;
        status = seed(pass, &g, ys[i], grads ? grads[i] : NULL);
        if (status != FL_OK) break;
        status = nodes[i] ? fl_gradient_add(&nodes[i]->pending[slots[i]], g, pass->create_graph)
                          : contribute(pass, ys[i], g);
    }
    for (int64_t i = 0; i < pass->count && status == FL_OK; i++) status = visit(pass, pass->nodes[i]);
    return status == FL_OK ? box_waiting(pass) : status;
}

static fl_status run_pass(tape_pass *pass, fl_tensor *const *ys, fl_tensor *const *grads, int ycount)
{
    bool enabled = fl_grad_enabled;
    uintptr_t autocast = fl_autocast_pause();
    fl_autocast_forget();
    fl_grad_enabled = pass->create_graph;
    fl_status status = run(pass, ys, grads, ycount);
    fl_grad_enabled = enabled;
    fl_autocast_resume(autocast);
    pass_end(pass);
    return status;
}

fl_status fl_autograd_backward(fl_tensor *const *ys, fl_tensor *const *grads, int count, bool retain, bool create_graph)
{
    tape_pass p = {.retain = retain || create_graph, .create_graph = create_graph, .accumulate = true};
    if (FL_UNLIKELY(fl_answerer_now != NULL)) {
        if (count == 1 && !create_graph) return fl_answerer_now->backward(ys[0], grads ? grads[0] : NULL, retain);
        FL_TRY(fl_answerer_now->stop());
    }
    return run_pass(&p, ys, grads, count);
}

fl_status fl_autograd_grad(fl_tensor **out, fl_tensor *const *ys, fl_tensor *const *grads, int ycount,
                           fl_tensor *const *xs, int xcount, bool retain, bool create_graph, bool allow_unused)
{
    tape_pass p = {
        .retain = retain || create_graph, .create_graph = create_graph, .xs = xs, .found = out, .xcount = xcount};
    for (int i = 0; i < xcount; i++) out[i] = NULL;
    FL_TRY(fl_answer_stop());
    fl_status status = run_pass(&p, ys, grads, ycount);
    for (int i = 0; i < xcount && status == FL_OK && !allow_unused; i++)
        if (!out[i])
            status = fl_fail(FL_ERR_STATE,
                             "grad: tensor %d of xs was not used to compute y (allow it with {allow_unused = true})",
                             i + 1);
    for (int i = 0; i < xcount && status != FL_OK; i++) {
        fl_tensor_unref(out[i]);
        out[i] = NULL;
    }
    return status;
}
