/*
** tape.c -- recording: nodes, what they save, and views.
*/
#include "tape.h"
#include "dispatch/answer.h"
#include "dispatch/chain.h"

#include <stdlib.h>

static uint64_t next_seq = 1;
static fl_autograd *pool; /* free records, linked through `base` */

fl_status fl_tape_out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "autograd: out of memory for the tape"); }

/* ---- links ---- */

static size_t attrs_size(const fl_attrs *attrs)
{
    return offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)attrs->count;
}

/* Every view has a link. Those of few attributes, as most have, are kept when they are freed. */
enum { POOLED_ATTRS = 2 };
static tape_link *free_links; /* through `before`; each has room for POOLED_ATTRS attributes */

static tape_link *link_take(const fl_attrs *attrs)
{
    tape_link *l = free_links;
    if (FL_UNLIKELY(attrs->count > POOLED_ATTRS)) return malloc(sizeof *l + attrs_size(attrs));
    if (!l) return malloc(sizeof *l + offsetof(fl_attrs, at) + sizeof(fl_attr) * POOLED_ATTRS);
    free_links = l->before;
    return l;
}

static void link_give_back(tape_link *link)
{
    if (FL_UNLIKELY(link->attrs->count > POOLED_ATTRS)) {
        free(link);
        return;
    }
    link->before = free_links;
    free_links = link;
}

static tape_link *link_new(tape_link *before, const fl_op *op, const fl_attrs *attrs)
{
    tape_link *l = link_take(attrs);
    if (!l) return NULL;
    l->refs = 1;
    l->op = op;
    l->attrs = (fl_attrs *)(l + 1);
    memcpy(l->attrs, attrs, attrs_size(attrs));
    l->before = before;
    if (before) before->refs++;
    return l;
}

void fl_view_link_unref(tape_link *link)
{
    while (link && --link->refs == 0) {
        tape_link *before = link->before;
        link_give_back(link);
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

fl_node *fl_tape_node_new(const fl_op *op, int nin, int nout, const fl_attrs *attrs)
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
            fl_view_link_unref(node->region->link);
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

void fl_tape_release_record(fl_autograd *record)
{
    if (!record || --record->refs > 0) return;
    leave_node(record);
    fl_node_unref(record->node);
    fl_tensor_unref(record->grad);
    fl_grad_unsynced -= record->unsynced != NULL;
    fl_tensor_unref(record->unsynced);
    fl_tensor_unref(record->base);
    fl_tensor_unref(record->pending);
    fl_view_link_unref(record->link);
    hooks_free(record->hooks);
    hooks_free(record->after);
    record->base = (fl_tensor *)pool;
    pool = record;
}

bool fl_tape_view_wants(const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    return a->base && a->base->requires_grad && a->base->autograd && a->base->autograd->history != a->base_history;
}

/* ---- recording an op ---- */

/* The version that the op read. */
static uint32_t version_read(const fl_tensor *tensor, const tape_write *place)
{
    uint32_t version = tensor->storage->var.version;
    return place && tensor->storage == place->target->storage ? version - 1 : version;
}

static void save_value(tape_saved *saved, const fl_operand *operand, const tape_write *place)
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

bool fl_tape_target_wants_grad(const fl_tensor *tensor)
{
    return fl_requires_grad(tensor)
        || (tensor->autograd && tensor->autograd->base && tensor->autograd->base->requires_grad);
}

tape_saves fl_tape_what_to_save(const fl_op *op, const fl_operand *in, int nin, bool target)
{
    tape_saves saves = {op->saves_in, op->saves_out};
    if (!op->vjp) return saves;
    uint32_t wanted = 0;
    for (int i = 0; i < nin && i < FL_MAX_PARAMS; i++)
        if (in[i].kind == FL_TENSOR
            && (target && i == 0 ? fl_tape_target_wants_grad(in[i].tensor) : fl_requires_grad(in[i].tensor)))
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
static void save_watched(fl_node *node, int i, const fl_operand *operand, bool saved, const tape_write *place)
{
    const bool region = place && i == 0 && place->target->autograd && place->target->autograd->base;
    node->in[i].omitted = saved && !region && fl_recompute_omits(&node->edges[i], operand->tensor);
    if (saved && !node->in[i].omitted) save_value(&node->in[i], operand, place);
    node->in[i].version =
        version_read(saved && node->in[i].value.kind == FL_TENSOR ? node->in[i].value.tensor : operand->tensor, place);
}

/* A node for a call that saves `saves`; place: NULL unless it was in place. */
static fl_status node_saving(fl_node **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                             fl_tensor *const *results, int nout, const tape_write *place, tape_saves saves)
{
    fl_node *n = fl_tape_node_new(op, nin, nout, attrs);
    if (!n) return fl_tape_out_of_memory();
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

fl_status fl_tape_node_for(fl_node **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                           fl_tensor *const *results, int nout, const tape_write *place)
{
    tape_saves saves = fl_tape_what_to_save(op, in, nin, place != NULL);
    return node_saving(out, op, in, nin, attrs, results, nout, place, saves);
}

fl_status fl_tape_lead_to(fl_node *node, fl_tensor *base)
{
    tape_edge *edge = &node->edges[0];
    fl_node_unref(edge->node);
    fl_tensor_unref(edge->leaf);
    if (edge->meta) fl_meta_unref(edge->meta);
    memset(edge, 0, sizeof *edge);
    FL_TRY(edge_to(edge, base));
    fl_meta_unref(node->out_meta[0]);
    node->out_meta[0] = fl_meta_ref(base->meta);
    if (node->out[0].value.kind != FL_TENSOR) return FL_OK;
    fl_tape_release_saved(&node->out[0]);
    return save_output(&node->out[0], base);
}

fl_status fl_tape_attach(fl_tensor *tensor, fl_node *node, int slot)
{
    fl_autograd *a = fl_tape_record_of(tensor);
    if (!a) return fl_tape_out_of_memory();
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
    fl_view_link_unref(a->link);
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
    FL_TRY(fl_tape_node_for(&n, op, in, nin, attrs, out, nout, NULL));
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

/* If a second run needs only the operands of this op, they are taken from a node without results. */
static fl_status ahead(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_node *n;
    if (!fl_recompute_needs_operands(op)) return FL_OK;
    FL_TRY(fl_tape_node_for(&n, op, in, nin, attrs, NULL, 0, NULL));
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
    if (!a) return fl_tape_out_of_memory();
    a->link = link_new(before, op, attrs);
    if (!a->link) return fl_tape_out_of_memory();
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

fl_status fl_tape_catch_up(fl_tensor *view)
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
    if (a->base && a->base->autograd && a->base->autograd->history != a->base_history) FL_TRY(fl_tape_catch_up(tensor));
    *node = a->node;
    *slot = a->slot;
    return FL_OK;
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
                       "use {retain_graph = true} in the earlier one (FLOW_RETAIN_GRAPH in C)",
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

/* ---- dispatch ---- */

static const fl_recorder tape = {
    fl_tape_view_wants,    record, ahead, note_view, fl_tape_check_inplace, fl_tape_rewrite, fl_autograd_is_leaf,
    fl_tape_release_record};

__attribute__((constructor)) static void begin_recording(void) { fl_recorder_set(&tape); }
