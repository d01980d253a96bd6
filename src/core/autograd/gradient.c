/*
** gradient.c -- see gradient.h.
*/
#include "gradient.h"
#include "op/reduce.h"
#include "op/views.h"

/* Nothing else refers to it: a view that had to move data is then like any tensor. */
static bool is_alone(fl_tensor *tensor)
{
    if (tensor->refs != 1 || tensor->storage->refs > 1 + fl_storage_watchers || !tensor->contiguous) return false;
    tensor->moved_view = false;
    return true;
}

bool fl_gradient_is_own(fl_tensor *tensor)
{
    return !fl_storage_is_deferred(tensor->storage) && is_alone(tensor); /* a sum is one step more */
}

fl_status fl_gradient_make_own(fl_tensor **sum)
{
    fl_tensor *copy;
    if (is_alone(*sum)) return FL_OK;
    FL_TRY(FL_CALL(&copy, clone, fl_of(*sum)));
    fl_tensor_unref(*sum);
    *sum = copy;
    return FL_OK;
}

/* *sum += g, taking over g's reference. A gradient that is not computed yet becomes a step of the sum: to be added in
** place it would be stored first. */
fl_status fl_gradient_add(fl_tensor **sum, fl_tensor *g, bool create_graph)
{
    if (!*sum) {
        *sum = g;
        return FL_OK;
    }
    fl_tensor *total = NULL;
    bool own = !create_graph && (*sum)->meta == g->meta && fl_gradient_is_own(*sum)
        && !fl_storage_is_deferred(g->storage);
    const fl_operand in[2] = {fl_of(*sum), fl_of(g)};
    fl_status status = own ? fl_dispatch_inplace(&total, FL_OP_REF(add), in, 2, NULL)
                           : fl_dispatch(&total, FL_OP_REF(add), in, 2, NULL);
    fl_tensor_unref(g);
    FL_TRY(status);
    fl_tensor_unref(*sum);
    *sum = total;
    return FL_OK;
}

/* Replaces *g by the sum over the axes that broadcasting added or stretched. */
static fl_status sum_to_shape(fl_tensor **g, const fl_shape *want)
{
    const fl_shape *have = &(*g)->meta->shape;
    int lead = have->ndim - want->ndim, count = 0;
    int64_t axes[FL_MAX_NDIM];
    for (int i = 0; i < have->ndim; i++)
        if (i < lead || (want->dims[i - lead] == 1 && have->dims[i] != 1)) axes[count++] = i;
    fl_tensor *t = fl_tensor_ref(*g), *next;
    fl_status status = FL_OK;
    if (count) {
        fl_attrs a;
        fl_attrs_init(&a, FL_OP_REF(sum));
        fl_attr_set_list(&a, FL_REDUCE_AXIS, axes, count);
        fl_attr_set(&a, FL_REDUCE_KEEPDIM, true);
        status = FL_CALL_WITH(&next, &a, sum, fl_of(t));
        fl_tensor_unref(t);
        FL_TRY(status);
        t = next;
    }
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(reshape));
    fl_attr_set_list(&a, FL_VIEW_SIZE, want->dims, want->ndim);
    if (!fl_shape_equal(&t->meta->shape, want)) {
        status = FL_CALL_WITH(&next, &a, reshape, fl_of(t));
        fl_tensor_unref(t);
        FL_TRY(status);
        t = next;
    }
    fl_tensor_unref(*g);
    *g = t;
    return FL_OK;
}

fl_status fl_gradient_reshape(fl_tensor **g, const fl_meta *meta)
{
    if (!fl_shape_equal(&(*g)->meta->shape, &meta->shape)) FL_TRY(sum_to_shape(g, &meta->shape));
    if ((*g)->meta->dtype == meta->dtype) return FL_OK;
    fl_tensor *cast;
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(cast));
    fl_attr_set(&a, FL_CAST_DTYPE, meta->dtype);
    FL_TRY(FL_CALL_WITH(&cast, &a, cast, fl_of(*g)));
    fl_tensor_unref(*g);
    *g = cast;
    return FL_OK;
}

/* A hook may change the values of a gradient and its SBP, nothing else. */
static fl_status check_replaced(const fl_meta *new, const fl_meta *old)
{
    char is[FL_META_TEXT], was[FL_META_TEXT];
    if (new->dtype == old->dtype &&new->is_local == old->is_local && fl_shape_equal(&new->shape, &old->shape))
        return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "backward: a hook returned %s (%s) for a gradient that is %s (%s)",
                   fl_meta_text(is, new), new->is_local ? "local" : "global", fl_meta_text(was, old),
                   old->is_local ? "local" : "global");
}

fl_status fl_gradient_call(fl_tensor **g, const tape_hook *hook, int slot)
{
    for (; hook; hook = hook->next) {
        if (hook->slot != slot) continue;
        fl_tensor *replaced = NULL;
        FL_TRY(hook->call(&replaced, *g, hook->context));
        if (!replaced) continue;
        fl_status status = check_replaced(replaced->meta, (*g)->meta);
        if (status != FL_OK) {
            fl_tensor_unref(replaced);
            return status;
        }
        fl_tensor_unref(*g);
        *g = replaced;
    }
    return FL_OK;
}
