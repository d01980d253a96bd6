/*
** tape_tensor.c -- a tensor's place on the tape as the host program sees it: flags, leaves, .grad, hooks, and what a
** replayed program gives its results.
*/
#include "tape.h"
#include "dispatch/answer.h"

#include <stdlib.h>

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
        spent = fl_tape_node_new(FL_OP_REF(clone), 0, 1, &none);
        if (!spent) return fl_tape_out_of_memory();
        spent->out_meta[0] = fl_meta_ref(tensor->meta);
        spent->freed = true;
    }
    fl_autograd *a = fl_tape_record_of(tensor);
    if (!a) return fl_tape_out_of_memory();
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
    if (!a) return fl_tape_out_of_memory();
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

void fl_autograd_move(fl_tensor *to, fl_tensor *from)
{
    if (to->autograd) fl_tape_release_record(to->autograd);
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
    return !tensor->autograd || (!tensor->autograd->node && !fl_tape_view_wants(tensor));
}

const char *fl_autograd_node_name(const fl_tensor *tensor)
{
    const fl_autograd *a = tensor->autograd;
    if (a && fl_tape_view_wants(tensor)) return a->link->op->name;
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
    if (!a) return fl_tape_out_of_memory();
    fl_tensor *old = a->grad;
    fl_grad_unsynced -= a->unsynced != NULL;
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

fl_status fl_autograd_forget(fl_tensor *tensor)
{
    FL_TRY(fl_answer_stop());
    if (fl_autograd_is_leaf(tensor)) return fl_autograd_set_requires_grad(tensor, false);
    if (tensor->autograd->base)
        return fl_fail(FL_ERR_STATE, "detach_: this is a view, which stays what its base is; write x = x:detach()");
    fl_tape_release_record(tensor->autograd);
    tensor->autograd = NULL;
    tensor->requires_grad = false;
    return FL_OK;
}

/* Hooks are called in the order in which they came. */
static void append(tape_hook **list, tape_hook *hook)
{
    while (*list) list = &(*list)->next;
    *list = hook;
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
        return fl_tape_out_of_memory();
    }
    *h = (tape_hook){NULL, hook, context, release, slot};
    append(node ? &node->hooks : &tensor->autograd->hooks, h);
    return FL_OK;
}

fl_status fl_autograd_add_after(fl_tensor *leaf, fl_hook hook, void *context, void (*release)(void *))
{
    static const char name[] = "register_post_accumulate_grad_hook";
    FL_TRY(fl_answer_stop());
    if (!fl_requires_grad(leaf)) return fl_fail(FL_ERR_STATE, "%s: this tensor does not require grad", name);
    if (!fl_autograd_is_leaf(leaf))
        return fl_fail(FL_ERR_STATE,
                       "%s: only leaves accumulate gradients, and this tensor was computed by %s; "
                       "x:register_hook(f) sees its gradient",
                       name, fl_autograd_node_name(leaf));
    tape_hook *h = malloc(sizeof *h);
    if (!h || !fl_tape_record_of(leaf)) {
        free(h);
        return fl_tape_out_of_memory();
    }
    *h = (tape_hook){NULL, hook, context, release, 0};
    append(&leaf->autograd->after, h);
    return FL_OK;
}
