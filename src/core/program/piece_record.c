/*
** piece_record.c -- a piece is recorded: arguments and results of a call become values, its changes are noted.
*/
#include "piece_run.h"

#include "dispatch/listener.h"

#include <stdlib.h>

enum { MAX_FAILURES = 3 };

/* ---- recording a piece ---- */

void fl_piece_drop_recorded(void)
{
    if (!fl_piece_now.recorded) return;
    fl_program_abort();
    fl_piece_free(fl_piece_now.recorded);
    fl_piece_now.recorded = NULL;
    if (!fl_piece_now.failed && ++fl_piece_now.at->failures >= MAX_FAILURES) fl_piece_now.at->is_last = true;
}

static fl_status add_value(fl_tensor *tensor, bool outside, int base)
{
    fl_piece_value v = {.outside = outside ? tensor : NULL,
                        .meta = tensor->meta,
                        .base = base,
                        .device_index = tensor->storage->device_index,
                        .moved_view = tensor->moved_view,
                        .requires_grad = tensor->requires_grad,
                        .has_node = !outside && !fl_autograd_is_leaf(tensor),
                        .offset = tensor->offset};
    memcpy(v.strides, tensor->strides, sizeof v.strides);
    fl_tensor *of = outside ? NULL : fl_autograd_base_of(&v.link, tensor);
    if (of && (v.view_of = fl_value_find(of)) < 0) v.view_base = of;
    FL_TRY(fl_values_add(tensor));
    return fl_piece_add_value(fl_piece_now.recorded, &v);
}

/* The base whose memory the tensor lies in; -1: none that is known. */
static int base_find(const fl_tensor *tensor)
{
    for (int i = fl_piece_now.count - 1; i >= 0; i--)
        if (fl_piece_now.values[i] && fl_piece_now.values[i]->storage == tensor->storage)
            return fl_piece_value_of(fl_piece_now.recorded, i)->base;
    return -1;
}

/* The number of a tensor that a call takes. */
static fl_status number_of_taken(int *out, fl_tensor *tensor)
{
    *out = fl_value_find(tensor);
    if (*out >= 0) return FL_OK;
    const int base = base_find(tensor);
    if (base >= 0 && !fl_piece_value_of(fl_piece_now.recorded, base)->outside)
        fl_piece_now.unfit = true; /* of unknown origin */
    *out = fl_piece_now.count;
    return add_value(tensor, true, base >= 0 ? base : fl_piece_now.count);
}

/* All elements of the tensor's memory, in a row. */
static fl_status whole_memory(fl_tensor **out, fl_tensor *tensor)
{
    const fl_meta *meta, *like = tensor->meta;
    const fl_placement *device = fl_placement_local(like->placement->type, tensor->storage->device_index);
    const fl_shape shape = {1, {(int64_t)(tensor->storage->bytes / fl_dtype_size(like->dtype))}};
    FL_TRY(fl_meta_get(&meta, like->dtype, &shape, device, fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_view(out, tensor, meta, meta->strides, 0);
    fl_meta_unref(meta);
    return status;
}

static bool is_whole(const fl_tensor *tensor)
{
    return tensor->contiguous && !tensor->offset
        && (size_t)tensor->meta->local_numel * fl_dtype_size(tensor->meta->dtype) == tensor->storage->bytes;
}

/* The number of a tensor that a call gave. */
static fl_status number_of_given(int *out, fl_tensor *tensor)
{
    *out = fl_value_find(tensor);
    if (*out >= 0) return FL_OK;
    int base = base_find(tensor);
    if (base < 0 && tensor->meta->local_numel && !fl_program_made(tensor->storage)) fl_piece_now.unfit = true;
    if (base < 0 && !is_whole(tensor)) {
        fl_tensor *whole;
        FL_TRY(whole_memory(&whole, tensor));
        base = fl_piece_now.count;
        fl_status status = add_value(whole, false, base);
        fl_tensor_unref(whole);
        FL_TRY(status);
    }
    *out = fl_piece_now.count;
    return add_value(tensor, false, base >= 0 ? base : fl_piece_now.count);
}

/* Leaves whose gradients a backward changes, as they were before. */
static struct changed {
    fl_tensor *leaf, *before; /* owned */
} * changed;
static int changed_count, changed_room;
static bool changed_failed;

static void note_leaf(const fl_tensor *tensor, fl_grad_access access)
{
    for (int i = 0; i < changed_count; i++)
        if (changed[i].leaf == tensor) return;
    if (fl_program_reserve((void **)&changed, sizeof *changed, &changed_room, changed_count) != FL_OK) {
        changed_failed = true;
        return;
    }
    fl_tensor *before = tensor->autograd ? (fl_autograd_grad_watch = NULL, fl_autograd_grad_of(tensor)) : NULL;
    fl_autograd_grad_watch = note_leaf;
    changed[changed_count++] = (struct changed){fl_tensor_ref((fl_tensor *)tensor),
                                                before ? fl_tensor_ref(before) : NULL};
}

static void changed_drop(void)
{
    for (int i = 0; i < changed_count; i++) {
        fl_tensor_unref(changed[i].leaf);
        fl_tensor_unref(changed[i].before);
    }
    changed_count = 0;
}

fl_status fl_request_run(fl_tensor **out, const fl_request *request)
{
    if (request->kind == FL_PIECE_DETACH) return fl_tensor_detach(out, request->in[0].tensor);
    if (request->kind == FL_PIECE_BACKWARD) {
        fl_tensor *y = request->in[0].tensor,
                  *gradient = request->in[1].kind == FL_TENSOR ? request->in[1].tensor : NULL;
        return fl_autograd_backward(&y, gradient ? &gradient : NULL, 1, request->retain, false);
    }
    return request->in_place ? fl_dispatch_inplace(out, request->op, request->in, request->nin, request->attrs)
                             : fl_dispatch(out, request->op, request->in, request->nin, request->attrs);
}

static fl_status keep_leaves(fl_piece_call *call)
{
    call->leaves = calloc((size_t)changed_count + 1, sizeof *call->leaves);
    if (!call->leaves) return fl_program_out_of_memory();
    for (int i = 0; i < changed_count; i++) {
        fl_piece_leaf *l = &call->leaves[call->leaf_count++];
        l->before = l->after = -1;
        FL_TRY(number_of_taken(&l->leaf, changed[i].leaf));
        if (changed[i].before) FL_TRY(number_of_taken(&l->before, changed[i].before));
    }
    for (int i = 0; i < changed_count; i++) {
        fl_tensor *after = fl_autograd_grad_of(changed[i].leaf);
        if (!after || changed[i].leaf->autograd == NULL) fl_piece_now.unfit = true;
        else FL_TRY(number_of_given(&call->leaves[i].after, after));
    }
    return FL_OK;
}

/* The values that require grad; NULL: the request cannot change that, or there is no memory. */
static bool *flags_of_values(const fl_request *request)
{
    bool writes = request->op && (request->in_place || (request->op->mutates && !request->op->groups));
    bool *flags = writes && fl_grad_enabled ? calloc((size_t)fl_piece_now.count + 1, sizeof *flags) : NULL;
    for (int i = 0; i < fl_piece_now.count && flags; i++)
        flags[i] = fl_piece_now.values[i] && fl_requires_grad(fl_piece_now.values[i]);
    return flags;
}

/* A value written in place has a history, and so have all that share its memory. That of a tensor from outside would
** have to outlive the call. */
static fl_status keep_turned(fl_piece_call *call, const bool *before, int count)
{
    call->turned = calloc((size_t)count + 1, sizeof *call->turned);
    if (!call->turned) return fl_program_out_of_memory();
    for (int i = 0; i < count; i++) {
        if (!fl_piece_now.values[i] || fl_requires_grad(fl_piece_now.values[i]) == before[i]) continue;
        if (before[i]) fl_piece_now.unfit = true;
        call->turned[call->turned_count++] = i;
    }
    return FL_OK;
}

static bool writes_history_outside(const fl_request *request)
{
    const fl_tensor *target = request->in[0].tensor;
    const int id = fl_value_find(target);
    if (!fl_requires_grad(target) || fl_autograd_is_leaf(target)) return false;
    return id < 0
        || fl_piece_value_of(fl_piece_now.recorded, fl_piece_value_of(fl_piece_now.recorded, id)->base)->outside
        || fl_piece_value_of(fl_piece_now.recorded, id)->base < fl_piece_now.of->root->value_count;
}

/* Notes the call in the piece that is recorded. since: steps before it; flags: of values before it, or NULL. */
static fl_status note(const fl_request *request, fl_tensor *const *out, int64_t since, const bool *flags, int count)
{
    fl_piece_call *call;
    FL_TRY(fl_piece_add_call(&call, fl_piece_now.recorded, request->kind, request->nin, request->nout));
    call->op = request->op;
    call->in_place = request->in_place;
    call->retain = request->retain;
    call->grad_enabled = fl_grad_enabled;
    if (request->attrs) FL_TRY(fl_piece_keep_attrs(call, request->attrs));
    for (int i = 0; i < request->nin; i++) {
        int id;
        call->in[i] = request->in[i];
        if (request->in[i].kind != FL_TENSOR) continue;
        FL_TRY(number_of_taken(&id, request->in[i].tensor));
        call->in[i].tensor = NULL;
        call->in[i].integer = id;
    }
    if (request->kind == FL_PIECE_BACKWARD) FL_TRY(keep_leaves(call));
    for (int i = 0; i < request->nout; i++) FL_TRY(number_of_given(&call->out[i], out[i]));
    call->past = fl_piece_now.count;
    if (flags) FL_TRY(keep_turned(call, flags, count));
    if (flags && writes_history_outside(request)) fl_piece_now.unfit = true;
    if (request->op && request->op->groups && fl_program_length() == since + 1) {
        call->live = true;
        FL_TRY(fl_program_mark_live(fl_piece_now.recorded->call_count - 1, since));
    }
    return FL_OK;
}

/* Values that were put off become what the call has given. */
static void take_given(fl_tensor **out, const fl_piece_call *call, fl_tensor *const *values)
{
    for (int i = 0; i < call->nout; i++) {
        fl_tensor *to = values[call->out[i]];
        if (out[i] != to) fl_value_become(to, out[i]);
        fl_tensor_unref(out[i]);
        out[i] = fl_tensor_ref(to);
    }
    for (int i = 0; i < call->leaf_count; i++) {
        const fl_piece_leaf *l = &call->leaves[i];
        fl_tensor *after = values[l->after], *is = fl_autograd_grad_of(values[l->leaf]);
        if (!is || is == after) continue;
        fl_tensor_ref(is);
        fl_value_become(after, is);
        fl_tensor_unref(is);
        fl_autograd_set_grad(values[l->leaf], after);
    }
}

fl_status fl_piece_record(fl_tensor **out, const fl_request *request, const fl_piece_call *redone,
                          fl_tensor *const *values)
{
    const int64_t since = fl_program_length();
    const int count = fl_piece_now.count;
    bool *flags = fl_piece_now.recorded ? flags_of_values(request) : NULL;
    fl_answer_hooked = changed_failed = false;
    if (request->kind == FL_PIECE_BACKWARD) fl_autograd_grad_watch = note_leaf;
    fl_status status = fl_request_run(out, request);
    fl_autograd_grad_watch = NULL;
    if (status == FL_OK && redone) take_given(out, redone, values);
    fl_piece_now.failed |= status != FL_OK;
    fl_piece_now.unfit |= status != FL_OK || changed_failed || fl_answer_hooked || fl_program_has_failed();
    if (!fl_piece_now.unfit && fl_piece_now.recorded && note(request, out, since, flags, count) != FL_OK)
        fl_piece_now.unfit = true;
    free(flags);
    changed_drop();
    return status;
}

bool fl_piece_begin(void)
{
    fl_tensor **args = malloc(sizeof *args * (size_t)(fl_piece_now.count + 1));
    fl_piece_now.unfit = false;
    if (!args || fl_piece_now.at->is_last || fl_piece_now.of->count >= FL_MAX_PIECES
        || !(fl_piece_now.recorded = fl_piece_new(fl_piece_now.at))) {
        free(args);
        return false;
    }
    int count = 0;
    int *inputs = fl_piece_now.recorded->inputs = calloc((size_t)fl_piece_now.count + 1, sizeof *inputs);
    for (int i = 0; i < fl_piece_now.count && inputs; i++) {
        const fl_piece_value *v = fl_piece_value_of(fl_piece_now.at, i);
        if (!fl_piece_now.values[i] || v->outside || v->base != i) continue;
        args[count] = fl_piece_now.values[i];
        inputs[count++] = i;
    }
    fl_piece_now.recorded->input_count = count;
    fl_status status = inputs ? fl_program_begin(args, count, false) : FL_ERR_MEMORY;
    fl_autograd_grad_watch = NULL;
    free(args);
    if (status == FL_OK) return true;
    fl_piece_free(fl_piece_now.recorded);
    fl_piece_now.recorded = NULL;
    return false;
}
