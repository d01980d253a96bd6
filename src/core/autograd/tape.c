/*
** tape.c -- recording: nodes, views and in-place rewrites.
*/
#include "tape.h"
#include "dispatch/answer.h"
#include "dispatch/chain.h"

#include <stdlib.h>

static uint64_t next_seq = 1;
static fl_autograd *pool; /* free records, linked through `base` */

static fl_status out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "autograd: out of memory for the tape"); }

/* ---- links ---- */

static size_t attrs_size(const fl_attrs *attrs)
{
    return offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)attrs->count;
}

static tape_link *link_new(tape_link *before, const fl_op *op, const fl_attrs *attrs)
{
    tape_link *l = malloc(sizeof *l + attrs_size(attrs));
    if (!l) return NULL;
    l->refs = 1;
    l->op = op;
    l->attrs = (fl_attrs *)(l + 1);
    memcpy(l->attrs, attrs, attrs_size(attrs));
    l->before = before;
    if (before) before->refs++;
    return l;
}

static void link_unref(tape_link *link)
{
    while (link && --link->refs == 0) {
        tape_link *before = link->before;
        free(link);
        link = before;
    }
}

/* ---- hooks ---- */

static void hooks_free(tape_hook *hook)
{
    while (hook) {
        tape_hook *next = hook->next;
        if (hook->release) hook->release(hook->context);
        free(hook);
        hook = next;
    }
}

/* ---- nodes ---- */

static fl_node *node_new(const fl_op *op, int nin, int nout, const fl_attrs *attrs)
{
    size_t lists = (sizeof(tape_edge) + sizeof(tape_saved)) * (size_t)nin;
    lists += (sizeof(tape_saved) + 3 * sizeof(void *)) * (size_t)nout;
    fl_node *n = malloc(sizeof *n + lists + attrs_size(attrs));
    if (!n) return NULL;
    memset(n, 0, sizeof *n + lists);
    n->refs = 1;
    n->op = op;
    n->nin = nin;
    n->nout = nout;
    n->edges = (tape_edge *)(n + 1);
    n->in = (tape_saved *)(n->edges + nin);
    n->out = n->in + nin;
    n->out_meta = (const fl_meta **)(n->out + nout);
    n->pending = (fl_tensor **)(n->out_meta + nout);
    n->retain = (fl_autograd **)(n->pending + nout);
    n->attrs = (fl_attrs *)(n->retain + nout);
    memcpy(n->attrs, attrs, attrs_size(attrs));
    return n;
}

uint64_t fl_tape_next_seq(void) { return next_seq; }

void fl_tape_release_saved(tape_saved *saved)
{
    if (saved->value.kind == FL_TENSOR) fl_tensor_unref(saved->value.tensor);
    saved->value.kind = FL_NONE;
}

/* Drops what the node saved for its gradient. */
void fl_tape_forget(fl_node *node)
{
    for (int i = 0; i < node->nin; i++) fl_tape_release_saved(&node->in[i]);
    for (int i = 0; i < node->nout; i++) fl_tape_release_saved(&node->out[i]);
    hooks_free(node->hooks); /* they cannot run again, and may hold the tensors they hang on */
    node->hooks = NULL;
    if (FL_UNLIKELY(node->function != NULL)) fl_tape_function_free(node->function);
    node->function = NULL;
    node->freed = true;
    if (FL_UNLIKELY(node->member != NULL)) fl_recompute_leave(node);
}

/* Frees a node whose count is 0; chains of any length are freed without recursion. */
void fl_node_unref(fl_node *node)
{
    static fl_node *dead; /* nodes waiting to be freed by the outermost call */
    static bool freeing;
    if (!node || --node->refs > 0) return;
    node->next_dead = dead;
    dead = node;
    if (freeing) return;
    freeing = true;
    while ((node = dead) != NULL) {
        dead = node->next_dead;
        fl_tape_forget(node);
        for (int i = 0; i < node->nin; i++) {
            fl_node_unref(node->edges[i].node);
            fl_tensor_unref(node->edges[i].leaf);
            if (node->edges[i].meta) fl_meta_unref(node->edges[i].meta);
        }
        for (int i = 0; i < node->nout; i++) {
            fl_meta_unref(node->out_meta[i]);
            fl_tensor_unref(node->pending[i]);
        }
        hooks_free(node->hooks);
        if (node->region) {
            link_unref(node->region->link);
            free(node->region);
        }
        if (FL_UNLIKELY(node->member != NULL)) free(node->member);
        if (FL_UNLIKELY(node->line != NULL)) free(node->line);
        free(node);
    }
    freeing = false;
}

/* ---- records ---- */

fl_autograd *fl_tape_record_of(fl_tensor *tensor)
{
    if (tensor->autograd) return tensor->autograd;
    fl_autograd *a = pool;
    if (a) pool = (fl_autograd *)a->base;
    else if (!(a = malloc(sizeof *a))) return NULL;
    *a = (fl_autograd){.refs = 1};
    tensor->autograd = a;
    return a;
}

/* The node forgets that this record wanted its gradient. */
static void leave_node(fl_autograd *record)
{
    if (record->retain && record->node && record->node->retain[record->slot] == record)
        record->node->retain[record->slot] = NULL;
}

static void release_record(fl_autograd *record)
{
    if (!record || --record->refs > 0) return;
    leave_node(record);
    fl_node_unref(record->node);
    fl_tensor_unref(record->grad);
    fl_tensor_unref(record->unsynced);
    fl_tensor_unref(record->base);
    fl_tensor_unref(record->pending);
    link_unref(record->link);
    hooks_free(record->hooks);
    record->base = (fl_tensor *)pool;
    pool = record;
}

static bool view_wants(const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    return a->base && a->base->requires_grad && a->base->autograd && a->base->autograd->history != a->base_history;
}

/* ---- recording an op ---- */

/* What an in-place op wrote: its version has been bumped already. */
struct in_place {
    fl_tensor *target;
    fl_tensor *before; /* a copy of its old value; NULL when no gradient needs that */
};

/* The version that the op read. */
static uint32_t version_read(const fl_tensor *tensor, const struct in_place *place)
{
    uint32_t version = tensor->storage->var.version;
    return place && tensor->storage == place->target->storage ? version - 1 : version;
}

static void save_value(tape_saved *saved, const fl_operand *operand, const struct in_place *place)
{
    saved->value = *operand;
    if (operand->kind != FL_TENSOR) return;
    if (place && place->before && operand->tensor == place->target) saved->value = fl_of(place->before);
    fl_tensor *t = fl_tensor_ref(saved->value.tensor);
    fl_chain_keep(t);
    saved->version = version_read(t, place);
}

static fl_status save_output(tape_saved *saved, fl_tensor *tensor)
{
    saved->omitted = FL_UNLIKELY(fl_recompute_active) && fl_recompute_omits(NULL, NULL);
    if (saved->omitted) return FL_OK;
    fl_tensor *plain;
    FL_TRY(fl_tensor_detach(&plain, tensor));
    fl_chain_keep(plain);
    saved->value = fl_of(plain);
    saved->version = tensor->storage->var.version;
    return FL_OK;
}

/* A target takes the gradient of its base, also as a view made under no_grad. */
static bool target_wants_grad(const fl_tensor *tensor)
{
    return fl_requires_grad(tensor)
        || (tensor->autograd && tensor->autograd->base && tensor->autograd->base->requires_grad);
}

/* Which inputs and outputs the gradients of the inputs that want one need. target: in[0] is written in place. */
static tape_saves what_to_save(const fl_op *op, const fl_operand *in, int nin, bool target)
{
    tape_saves saves = {op->saves_in, op->saves_out};
    if (!op->vjp) return saves;
    uint32_t wanted = 0;
    for (int i = 0; i < nin && i < FL_MAX_PARAMS; i++)
        if (in[i].kind == FL_TENSOR && (target && i == 0 ? target_wants_grad : fl_requires_grad)(in[i].tensor))
            wanted |= 1u << i;
    fl_vjp_saves(op, wanted, &saves.in, &saves.out);
    return saves;
}

static fl_status edge_to(tape_edge *edge, fl_tensor *tensor)
{
    edge->meta = fl_meta_ref(tensor->meta);
    if (!fl_requires_grad(tensor) || !fl_dtype_is_float(tensor->meta->dtype)) return FL_OK;
    fl_node *node;
    FL_TRY(fl_tape_node_of(&node, &edge->slot, tensor));
    if (node) edge->node = fl_node_ref(node);
    else edge->leaf = fl_tensor_ref(tensor);
    return FL_OK;
}

/* Operand i, while a function runs that may run again (recompute.h). Of what an in-place op on a view saves the edge
** does not tell where it comes from. */
static void save_watched(fl_node *node, int i, const fl_operand *operand, bool saved, const struct in_place *place)
{
    const bool region = place && i == 0 && place->target->autograd && place->target->autograd->base;
    node->in[i].omitted = saved && !region && fl_recompute_omits(&node->edges[i], operand->tensor);
    if (saved && !node->in[i].omitted) save_value(&node->in[i], operand, place);
    node->in[i].version =
        version_read(saved && node->in[i].value.kind == FL_TENSOR ? node->in[i].value.tensor : operand->tensor, place);
}

/* A node for a call that saves `saves`; place: NULL unless it was in place. */
static fl_status node_saving(fl_node **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                             fl_tensor *const *results, int nout, const struct in_place *place, tape_saves saves)
{
    fl_node *n = node_new(op, nin, nout, attrs);
    if (!n) return out_of_memory();
    for (int i = 0; i < nout; i++) n->out_meta[i] = fl_meta_ref(results[i]->meta);
    const bool watched = fl_recompute_active;
    fl_status status = FL_OK;
    for (int i = 0; i < nin && status == FL_OK; i++) {
        bool saved = saves.in >> (i < 31 ? i : 31) & 1u;
        if (in[i].kind == FL_TENSOR) status = edge_to(&n->edges[i], in[i].tensor);
        if (FL_UNLIKELY(watched) && in[i].kind == FL_TENSOR) save_watched(n, i, &in[i], saved, place);
        else if (saved || in[i].kind != FL_TENSOR) save_value(&n->in[i], &in[i], place);
    }
    for (int i = 0; i < nout && status == FL_OK; i++)
        if (saves.out >> i & 1u) status = save_output(&n->out[i], results[i]);
    if (status != FL_OK) {
        fl_node_unref(n);
        return status;
    }
    n->seq = next_seq++; /* only now: a stale view among the inputs made nodes of its own */
    if (FL_UNLIKELY(fl_anomaly_watched)) fl_anomaly_note(n);
    *out = n;
    return FL_OK;
}

static fl_status node_for(fl_node **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                          fl_tensor *const *results, int nout, const struct in_place *place)
{
    tape_saves saves = what_to_save(op, in, nin, place != NULL);
    return node_saving(out, op, in, nin, attrs, results, nout, place, saves);
}

fl_status fl_tape_attach(fl_tensor *tensor, fl_node *node, int slot)
{
    fl_autograd *a = fl_tape_record_of(tensor);
    if (!a) return out_of_memory();
    fl_node *old = a->node;
    leave_node(a);
    a->node = fl_node_ref(node);
    a->slot = slot;
    if (a->retain) node->retain[slot] = a;
    tensor->requires_grad = true;
    fl_node_unref(old);
    return FL_OK;
}

/* A body may end in a view of a tensor of its own, which off the tape means nothing. */
static void forget_base(fl_tensor *tensor)
{
    fl_autograd *a = tensor->autograd;
    if (!a || !a->base) return;
    fl_tensor_unref(a->base);
    link_unref(a->link);
    a->base = NULL;
    a->link = NULL;
}

/* Connects the results with their node, whose reference is taken over. */
static fl_status connect(fl_node *node, fl_tensor *const *out, int nout)
{
    fl_status status = FL_OK;
    for (int i = 0; i < nout && status == FL_OK; i++) {
        if (!fl_dtype_is_float(out[i]->meta->dtype)) continue;
        forget_base(out[i]);
        status = fl_tape_attach(out[i], node, i);
    }
    if (FL_UNLIKELY(fl_recompute_active) && status == FL_OK) status = fl_recompute_note(node);
    fl_node_unref(node);
    return status;
}

static fl_status record(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs, fl_tensor **out,
                        int nout)
{
    fl_node *n;
    FL_TRY(node_for(&n, op, in, nin, attrs, out, nout, NULL));
    return connect(n, out, nout);
}

fl_status fl_tape_record_function(const fl_op *op, fl_tape_function *function, const fl_operand *in, int nin,
                                  fl_tensor *const *out, int nout, tape_saves saves)
{
    fl_node *n;
    const fl_attrs none = {0};
    fl_status status = node_saving(&n, op, in, nin, &none, out, nout, NULL, saves);
    if (status != FL_OK) {
        fl_tape_function_free(function);
        return status;
    }
    n->function = function;
    return connect(n, out, nout);
}

/* Where a second run needs no more than the operands of this op, these are taken from a node without results. */
static fl_status ahead(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_node *n;
    if (!fl_recompute_needs_operands(op)) return FL_OK;
    FL_TRY(node_for(&n, op, in, nin, attrs, NULL, 0, NULL));
    fl_status status = fl_recompute_note(n);
    fl_node_unref(n);
    return status;
}

/* ---- views ---- */

static fl_status note_view(fl_tensor *view, fl_tensor *base, const fl_op *op, const fl_attrs *attrs)
{
    tape_link *before = base->autograd ? base->autograd->link : NULL;
    fl_tensor *root = base->autograd && base->autograd->base ? base->autograd->base : base;
    fl_autograd *a = fl_tape_record_of(view);
    if (!a) return out_of_memory();
    a->link = link_new(before, op, attrs);
    if (!a->link) return out_of_memory();
    a->base = fl_tensor_ref(root);
    a->base_history = root->autograd ? root->autograd->history : 0;
    return FL_OK;
}

fl_status fl_tape_replay(fl_tensor **out, fl_tensor *base, const tape_link *link)
{
    fl_tensor *start = NULL, *result = NULL;
    if (link->before) FL_TRY(fl_tape_replay(&start, base, link->before));
    const fl_operand from = fl_of(start ? start : base);
    fl_status status = link->op->replay ? link->op->replay(&result, from.tensor, link->attrs)
                                        : fl_dispatch(&result, link->op, &from, 1, link->attrs);
    fl_tensor_unref(start);
    FL_TRY(status);
    *out = result;
    return FL_OK;
}

/* A view whose base was rewritten since gets the node of a view taken from the base as it is now. */
static fl_status catch_up(fl_tensor *view)
{
    fl_autograd *a = view->autograd;
    fl_tensor *fresh;
    bool enabled = fl_grad_enabled;
    fl_grad_enabled = true;
    struct run *paused = fl_recompute_pause();
    fl_status status = fl_tape_replay(&fresh, a->base, a->link);
    fl_recompute_resume(paused);
    fl_grad_enabled = enabled;
    FL_TRY(status);
    if (fresh->autograd && fresh->autograd->node)
        status = fl_tape_attach(view, fresh->autograd->node, fresh->autograd->slot);
    fl_tensor_unref(fresh);
    a->base_history = a->base->autograd->history;
    return status;
}

fl_status fl_tape_node_of(fl_node **node, int *slot, fl_tensor *tensor)
{
    fl_autograd *a = tensor->autograd;
    *node = NULL;
    *slot = 0;
    if (!a) return FL_OK;
    if (a->base && a->base->autograd && a->base->autograd->history != a->base_history) FL_TRY(catch_up(tensor));
    *node = a->node;
    *slot = a->slot;
    return FL_OK;
}

/* ---- in place ---- */

/* True if an in-place op leaves a node. */
static bool rewrites(const fl_operand *in, int nin)
{
    if (target_wants_grad(in[0].tensor)) return true;
    for (int i = 1; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor)) return true;
    return false;
}

/* A copy of the target, in its place on the tape, when a saved operand is the target itself. */
static fl_status keep_value(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin)
{
    bool needed = false;
    tape_saves saves = what_to_save(op, in, nin, true);
    for (int i = 0; i < nin && i < FL_MAX_PARAMS; i++)
        needed |= (saves.in >> i & 1u) && in[i].kind == FL_TENSOR && in[i].tensor == target;
    if (!needed) return FL_OK;
    fl_node *node;
    int slot;
    FL_TRY(fl_tape_node_of(&node, &slot, target));
    fl_grad_enabled = false;
    fl_status status = FL_CALL(before, clone, fl_of(target));
    fl_grad_enabled = true;
    FL_TRY(status);
    if (node) status = fl_tape_attach(*before, node, slot);
    if (status == FL_OK) return FL_OK;
    fl_tensor_unref(*before);
    *before = NULL;
    return status;
}

static fl_status check_inplace(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin)
{
    *before = NULL;
    if (!fl_grad_enabled) return FL_OK;
    fl_tensor *base = target->autograd && target->autograd->base ? target->autograd->base : target;
    if (target->requires_grad && fl_autograd_is_leaf(target)) base = target;
    if (base->requires_grad && fl_autograd_is_leaf(base))
        return fl_fail(
            FL_ERR_STATE,
            "%s%s: %s a leaf that requires grad, and cannot be changed in place; do it inside flow.no_grad()", op->name,
            op->mutates ? "" : "_", base == target ? "this tensor is" : "this tensor is a view of");
    for (int i = 1; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_requires_grad(in[i].tensor) && !fl_dtype_is_float(target->meta->dtype))
            return fl_fail(FL_ERR_DTYPE, "%s%s: a gradient cannot flow through %s; write into a float tensor", op->name,
                           op->mutates ? "" : "_", fl_dtype_name(target->meta->dtype));
    return rewrites(in, nin) ? keep_value(before, op, target, in, nin) : FL_OK;
}

/* A saved result is kept as the whole base: the gradient takes its region, connected to the tape where that records. */
static fl_status save_base_instead(fl_node *node, fl_tensor *base)
{
    if (node->out[0].value.kind != FL_TENSOR) return FL_OK;
    fl_tape_release_saved(&node->out[0]);
    return save_output(&node->out[0], base);
}

/* The base's history becomes: what it was, with the region that `view` names replaced by the op's result. */
static fl_status rewrite_base(fl_node *node, fl_tensor *view)
{
    fl_autograd *a = view->autograd;
    fl_tensor *base = a->base;
    node->region = malloc(sizeof *node->region);
    if (!node->region) return out_of_memory();
    node->region->link = a->link;
    node->region->link->refs++;
    /* edge 0 leads to the base as it was, not to the view */
    fl_node_unref(node->edges[0].node);
    fl_tensor_unref(node->edges[0].leaf);
    if (node->edges[0].meta) fl_meta_unref(node->edges[0].meta);
    memset(&node->edges[0], 0, sizeof node->edges[0]);
    FL_TRY(edge_to(&node->edges[0], base));
    fl_meta_unref(node->out_meta[0]);
    node->out_meta[0] = fl_meta_ref(base->meta);
    FL_TRY(save_base_instead(node, base));
    FL_TRY(fl_tape_attach(base, node, 0));
    base->autograd->history++;
    return catch_up(view);
}

static fl_status rewrite(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin,
                         const fl_attrs *attrs)
{
    if (!fl_grad_enabled || !rewrites(in, nin)) return FL_OK;
    fl_node *n;
    FL_TRY(node_for(&n, op, in, nin, attrs, &target, 1, &(struct in_place){target, before}));
    fl_status status;
    if (target->autograd && target->autograd->base) status = rewrite_base(n, target);
    else {
        status = fl_tape_attach(target, n, 0);
        if (status == FL_OK) target->autograd->history++;
    }
    if (FL_UNLIKELY(fl_recompute_active) && status == FL_OK) status = fl_recompute_note(n);
    fl_node_unref(n);
    return status;
}

/* ---- unpacking for the gradient ---- */

static fl_status check_version(const fl_node *node, const tape_saved *saved, const char *what, int index)
{
    if (saved->value.kind != FL_TENSOR || saved->value.tensor->storage->var.version == saved->version) return FL_OK;
    char text[FL_META_TEXT];
    return fl_fail(FL_ERR_STATE,
                   "backward: %s %d of %s (%s), needed for its gradient, was changed in place after it was used; "
                   "change a clone() of it instead",
                   what, index, fl_tape_node_name(node), fl_meta_text(text, saved->value.tensor->meta));
}

/* A saved output, connected to its node again when the tape records. */
static fl_status unpack_output(fl_tensor **out, fl_node *node, int i)
{
    fl_tensor *t;
    FL_TRY(fl_tensor_detach(&t, node->out[i].value.tensor));
    fl_status status = fl_grad_enabled ? fl_tape_attach(t, node, i) : FL_OK;
    if (status == FL_OK && node->region) status = fl_tape_replay(out, t, node->region->link);
    else if (status == FL_OK) *out = fl_tensor_ref(t);
    fl_tensor_unref(t);
    return status;
}

fl_status fl_tape_unpack(fl_grad *g, fl_node *node)
{
    if (node->freed)
        return fl_fail(FL_ERR_STATE,
                       "backward: the graph of %s has been freed by an earlier backward; "
                       "use {retain_graph = true} in the earlier one",
                       fl_tape_node_name(node));
    if (FL_UNLIKELY(node->member != NULL)) FL_TRY(fl_recompute_fill(node));
    for (int i = 0; i < node->nin; i++) FL_TRY(check_version(node, &node->in[i], "input", i));
    for (int i = 0; i < node->nout; i++) FL_TRY(check_version(node, &node->out[i], "output", i));
    for (int i = 0; i < node->nin; i++) g->in[i] = node->in[i].value;
    for (int i = 0; i < node->nout; i++)
        if (node->out[i].value.kind == FL_TENSOR) FL_TRY(unpack_output(&g->out[i], node, i));
    return FL_OK;
}

void fl_tape_release_grad(fl_grad *g)
{
    for (int i = 0; i < g->nout; i++) fl_tensor_unref(g->out[i]);
}

/* ---- tensors that a replay gives ---- */

bool fl_autograd_has_graph(const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    return a && a->node && !a->node->freed;
}

fl_status fl_autograd_set_spent(fl_tensor *tensor)
{
    static fl_node *spent; /* for all */
    fl_attrs none = {.count = 0};
    if (!spent) {
        spent = node_new(FL_OP_REF(clone), 0, 1, &none);
        if (!spent) return out_of_memory();
        spent->out_meta[0] = fl_meta_ref(tensor->meta);
        spent->freed = true;
    }
    fl_autograd *a = fl_tape_record_of(tensor);
    if (!a) return out_of_memory();
    fl_node_unref(a->node);
    a->node = fl_node_ref(spent);
    tensor->requires_grad = true;
    return FL_OK;
}

fl_tensor *fl_autograd_base_of(fl_view_link **link, const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    if (a && a->base) *link = a->link;
    return a ? a->base : NULL;
}

fl_status fl_autograd_set_view(fl_tensor *view, fl_tensor *base, fl_view_link *link)
{
    fl_autograd *a = fl_tape_record_of(view);
    if (!a) return out_of_memory();
    a->link = fl_view_link_ref(link);
    a->base = fl_tensor_ref(base);
    a->base_history = base->autograd ? base->autograd->history : 0;
    return FL_OK;
}

fl_view_link *fl_view_link_ref(fl_view_link *link)
{
    link->refs++;
    return link;
}

void fl_view_link_unref(fl_view_link *link) { link_unref(link); }

void fl_autograd_move(fl_tensor *to, fl_tensor *from)
{
    if (to->autograd) release_record(to->autograd);
    to->autograd = from->autograd;
    from->autograd = NULL;
    to->requires_grad = from->requires_grad;
}

/* ---- leaves ---- */

uint64_t fl_autograd_flag_changes;

fl_status fl_autograd_set_requires_grad(fl_tensor *tensor, bool value)
{
    FL_TRY(fl_answer_stop());
    if (value && !fl_dtype_is_float(tensor->meta->dtype))
        return fl_fail(FL_ERR_DTYPE, "requires_grad: only float tensors have gradients, this is %s",
                       fl_dtype_name(tensor->meta->dtype));
    if (!fl_autograd_is_leaf(tensor)) {
        if (value) return FL_OK;
        return fl_fail(FL_ERR_STATE,
                       "requires_grad: this tensor was computed by %s from tensors that require grad; "
                       "use x:detach() for one that does not",
                       fl_autograd_node_name(tensor));
    }
    fl_autograd_flag_changes += tensor->requires_grad != value;
    tensor->requires_grad = value;
    return FL_OK;
}

bool fl_autograd_is_leaf(const fl_tensor *tensor)
{
    return !tensor->autograd || (!tensor->autograd->node && !view_wants(tensor));
}

const char *fl_autograd_node_name(const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    if (a && view_wants(tensor)) return a->link->op->name;
    return a && a->node ? fl_tape_node_name(a->node) : NULL;
}

void (*fl_autograd_grad_watch)(const fl_tensor *tensor, fl_grad_access access);

fl_tensor *fl_autograd_grad_of(const fl_tensor *tensor)
{
    if (FL_UNLIKELY(fl_autograd_grad_watch != NULL)) fl_autograd_grad_watch(tensor, FL_GRAD_READ);
    return tensor->autograd ? tensor->autograd->grad : NULL;
}

fl_status fl_autograd_set_grad(fl_tensor *tensor, fl_tensor *grad)
{
    char have[FL_META_TEXT], want[FL_META_TEXT];
    if (FL_UNLIKELY(fl_autograd_grad_watch != NULL))
        fl_autograd_grad_watch(tensor, grad ? FL_GRAD_SET : FL_GRAD_CLEARED);
    if (grad && grad->meta != tensor->meta)
        return fl_fail(FL_ERR_SHAPE, "grad: the gradient of %s must be of the same kind, this is %s",
                       fl_meta_placed_text(want, tensor->meta), fl_meta_placed_text(have, grad->meta));
    for (const fl_tensor *g = grad; g; g = g->autograd ? g->autograd->grad : NULL)
        if (g == tensor || (g->storage == tensor->storage && tensor->storage))
            return fl_fail(
                FL_ERR_VALUE,
                "grad: a tensor and its gradient must not share memory; write x.grad = x:clone() for a copy of it");
    if (!grad && !tensor->autograd) return FL_OK;
    fl_autograd *a = fl_tape_record_of(tensor);
    if (!a) return out_of_memory();
    fl_tensor *old = a->grad;
    fl_tensor_unref(a->unsynced);
    a->unsynced = NULL;
    a->grad = grad ? fl_tensor_ref(grad) : NULL;
    fl_tensor_unref(old);
    return FL_OK;
}

fl_status fl_autograd_retain(fl_tensor *tensor)
{
    FL_TRY(fl_answer_stop());
    if (!fl_requires_grad(tensor)) return fl_fail(FL_ERR_STATE, "retain_grad: this tensor does not require grad");
    fl_node *node;
    int slot;
    FL_TRY(fl_tape_node_of(&node, &slot, tensor));
    if (!node) return FL_OK; /* leaves keep theirs anyway */
    tensor->autograd->retain = true;
    node->retain[slot] = tensor->autograd;
    return FL_OK;
}

fl_status fl_autograd_add_hook(fl_tensor *tensor, fl_hook hook, void *context, void (*release)(void *))
{
    FL_TRY(fl_answer_stop());
    if (!fl_requires_grad(tensor)) return fl_fail(FL_ERR_STATE, "register_hook: this tensor does not require grad");
    fl_node *node;
    int slot;
    FL_TRY(fl_tape_node_of(&node, &slot, tensor));
    tape_hook *h = malloc(sizeof *h);
    if (!h || (!node && !fl_tape_record_of(tensor))) {
        free(h);
        return out_of_memory();
    }
    *h = (tape_hook){NULL, hook, context, release, slot};
    tape_hook **last = node ? &node->hooks : &tensor->autograd->hooks;
    while (*last) last = &(*last)->next;
    *last = h;
    return FL_OK;
}

/* ---- dispatch ---- */

static const fl_recorder tape = {view_wants, record, ahead, note_view, check_inplace, rewrite, release_record};

__attribute__((constructor)) static void begin_recording(void) { fl_recorder_set(&tape); }
