/*
** grad.c -- gradients, and global tensors, for hosts.
*/
#include "api.h"

#include <stdlib.h>

/* ---- gradients ---- */

flow_status flow_require_grad(flow_tensor *leaf, bool value)
{
    FL_API_ENTER("flow_require_grad");
    FL_API_TRY(fl_api_need(leaf, "flow_require_grad", "leaf"));
    return fl_api_leave(fl_autograd_set_requires_grad(fl_api_in(leaf), value));
}

static fl_status check_options(int options, int known, const char *who, const char *names)
{
    if ((options & ~known) == 0) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: options are %s, got %d", who, names, options);
}

flow_status flow_backward(flow_tensor *loss)
{
    FL_API_ENTER("flow_backward");
    FL_API_TRY(fl_api_need(loss, "flow_backward", "loss"));
    fl_tensor *ys[] = {fl_api_in(loss)};
    return fl_api_leave(fl_autograd_backward(ys, NULL, 1, false, false));
}

flow_status flow_backward_with(flow_tensor *tensor, flow_tensor *grad, int options)
{
    FL_API_ENTER("flow_backward_with");
    FL_API_TRY(fl_api_need(tensor, "flow_backward_with", "tensor"));
    FL_API_TRY(check_options(options, FLOW_RETAIN_GRAPH | FLOW_CREATE_GRAPH, "flow_backward_with",
                             "FLOW_RETAIN_GRAPH and FLOW_CREATE_GRAPH"));
    fl_tensor *ys[] = {fl_api_in(tensor)}, *grads[] = {fl_api_in(grad)};
    return fl_api_leave(fl_autograd_backward(ys, grads, 1, options & FLOW_RETAIN_GRAPH, options & FLOW_CREATE_GRAPH));
}

flow_status flow_gradients(flow_tensor **out, flow_tensor *tensor, flow_tensor *grad, flow_tensor *const *xs, int count,
                           int options)
{
    FL_API_ENTER("flow_gradients");
    FL_API_TRY(fl_api_need(out, "flow_gradients", "out"));
    FL_API_TRY(fl_api_need(tensor, "flow_gradients", "tensor"));
    FL_API_TRY(fl_api_need(xs, "flow_gradients", "xs"));
    FL_API_TRY(check_options(options, FLOW_RETAIN_GRAPH | FLOW_CREATE_GRAPH | FLOW_ALLOW_UNUSED, "flow_gradients",
                             "FLOW_RETAIN_GRAPH, FLOW_CREATE_GRAPH and FLOW_ALLOW_UNUSED"));
    if (count < 1)
        return (flow_status)fl_fail(FL_ERR_VALUE, "flow_gradients: xs must hold tensors, count is %d", count);
    for (int i = 0; i < count; i++)
        if (!xs[i]) return (flow_status)fl_fail(FL_ERR_VALUE, "flow_gradients: tensor %d of xs is NULL", i);
    fl_tensor **found = malloc((size_t)count * sizeof *found);
    if (!found) return (flow_status)fl_fail(FL_ERR_MEMORY, "flow_gradients: out of memory");
    fl_tensor *ys[] = {fl_api_in(tensor)}, *grads[] = {fl_api_in(grad)};
    fl_status status = fl_autograd_grad(found, ys, grads, 1, (fl_tensor *const *)xs, count, options & FLOW_RETAIN_GRAPH,
                                        options & FLOW_CREATE_GRAPH, options & FLOW_ALLOW_UNUSED);
    for (int i = 0; i < count && status == FL_OK; i++) out[i] = fl_api_out(found[i]);
    free(found);
    return fl_api_leave(status);
}

flow_status flow_grad(flow_tensor **out, flow_tensor *leaf)
{
    FL_API_ENTER("flow_grad");
    FL_API_TRY(fl_api_need(out, "flow_grad", "out"));
    FL_API_TRY(fl_api_need(leaf, "flow_grad", "leaf"));
    fl_tensor *grad = fl_autograd_grad_of(fl_api_in(leaf));
    *out = grad ? fl_api_out(fl_tensor_ref(grad)) : NULL;
    return FLOW_OK;
}

flow_status flow_set_grad(flow_tensor *leaf, flow_tensor *grad)
{
    FL_API_ENTER("flow_set_grad");
    FL_API_TRY(fl_api_need(leaf, "flow_set_grad", "leaf"));
    return fl_api_leave(fl_autograd_set_grad(fl_api_in(leaf), fl_api_in(grad)));
}

/* Pairs that are open, and what was on before the first. */
static int paused;
static bool recorded_before;

flow_status flow_no_grad_begin(void)
{
    FL_API_ENTER("flow_no_grad_begin");
    if (paused++ == 0) recorded_before = fl_record_pause();
    return FLOW_OK;
}

flow_status flow_no_grad_end(void)
{
    FL_API_ENTER("flow_no_grad_end");
    if (paused == 0) return (flow_status)fl_fail(FL_ERR_STATE, "flow_no_grad_end: no flow_no_grad_begin before it");
    if (--paused == 0) fl_record_resume(recorded_before);
    return FLOW_OK;
}

/* ---- global tensors ---- */

flow_status flow_from_local(flow_tensor **out, flow_tensor *local, const char *placement, const char *sbp)
{
    fl_api_place place;
    fl_tensor *whole;
    FL_API_ENTER("flow_from_local");
    FL_API_TRY(fl_api_need(out, "flow_from_local", "out"));
    FL_API_TRY(fl_api_need(local, "flow_from_local", "local"));
    FL_API_TRY(fl_api_need(placement, "flow_from_local", "placement"));
    fl_tensor *t = fl_api_in(local);
    FL_API_TRY(fl_api_place_of(&place, "flow_from_local", NULL, placement, sbp, t->meta->shape.ndim));
    FL_API_TRY(fl_local_to_global(&whole, t, place.placement, place.nd_sbp, false));
    *out = fl_api_out(whole);
    return FLOW_OK;
}

flow_status flow_to_global(flow_tensor **out, flow_tensor *tensor, const char *placement, const char *sbp)
{
    fl_tensor *moved;
    FL_API_ENTER("flow_to_global");
    FL_API_TRY(fl_api_need(out, "flow_to_global", "out"));
    FL_API_TRY(fl_api_need(tensor, "flow_to_global", "tensor"));
    const fl_meta *meta = fl_api_in(tensor)->meta;
    if (meta->is_local)
        return (flow_status)fl_fail(FL_ERR_SBP, "flow_to_global: the tensor is local; flow_from_local takes one");
    const fl_placement *where = meta->placement;
    fl_nd_sbp nd_sbp = meta->nd_sbp;
    if (placement) FL_API_TRY(fl_api_placement(&where, "flow_to_global", placement));
    if (sbp) FL_API_TRY(fl_api_sbp(&nd_sbp, "flow_to_global", sbp, where, meta->shape.ndim));
    FL_API_TRY(fl_to_global(&moved, fl_api_in(tensor), where, nd_sbp, NULL));
    *out = fl_api_out(moved);
    return FLOW_OK;
}

flow_status flow_to_local(flow_tensor **out, flow_tensor *tensor)
{
    fl_tensor *part;
    FL_API_ENTER("flow_to_local");
    FL_API_TRY(fl_api_need(out, "flow_to_local", "out"));
    FL_API_TRY(fl_api_need(tensor, "flow_to_local", "tensor"));
    FL_API_TRY(fl_to_local(&part, fl_api_in(tensor), NULL));
    *out = fl_api_out(part);
    return FLOW_OK;
}
