/*
** to_global.c -- to_global (boxing as an op), to_local (this rank's part) and to_device.
**
** These ops, and from_local.c's, change where and how a tensor is held, not its value. They have a body: no SBP is
** inferred, their attributes give the placement and the SBP of the result. Dispatch runs and records them like any
** other, with the SBP of the gradient in an attribute.
*/
#include "to_global.h"
#include "record.h"
#include "dispatch.h"
#include "base/priority.h"
#include "boxing/boxing.h"
#include "fault.h"
#include "listener.h"

void fl_to_global_attrs(fl_attrs *attrs, const fl_op *op, const fl_placement *placement, fl_nd_sbp nd_sbp,
                        const fl_nd_sbp *grad_sbp)
{
    fl_attrs_init(attrs, op);
    attrs->placement = placement;
    attrs->nd_sbp = nd_sbp;
    attrs->has_placement = true;
    if (grad_sbp) fl_attr_set(attrs, FL_BOX_GRAD_SBP, (int64_t)fl_nd_sbp_bits(*grad_sbp));
}

bool fl_op_is_placed(const fl_op *op)
{
    return op == FL_OP_REF(to_global) || op == FL_OP_REF(to_device) || op == FL_OP_REF(from_local);
}

fl_status fl_place_check(fl_attrs *attrs, const fl_op *op, const char *who)
{
    bool local = op == FL_OP_REF(to_device);
    if (!attrs->has_placement || attrs->is_local != local || attrs->has_dtype || attrs->requires_grad)
        return fl_fail(FL_ERR_VALUE, "%s: must have %s", who, local ? "a device" : "a placement and an sbp");
    attrs->is_local = false;
    if (op != FL_OP_REF(from_local)) return FL_OK;
    const fl_attr *whole = &attrs->at[FL_FROM_LOCAL_SHAPE];
    fl_shape shape;
    if (!whole->given) return fl_fail(FL_ERR_VALUE, "from_local: the attribute 'shape' is missing");
    return fl_shape_make(&shape, "from_local", whole->list, whole->count);
}

fl_status fl_place_set_grad_sbp(fl_attrs *attrs, const fl_op *op, const fl_meta *x, fl_nd_sbp grad_sbp, const char *who)
{
    if (op == FL_OP_REF(to_device) || op == FL_OP_REF(from_local) || x->is_local || grad_sbp.n != x->nd_sbp.n)
        return fl_fail(FL_ERR_SBP, "%s: grad_sbp does not fit the operand", who);
    fl_attr_set(attrs, FL_BOX_GRAD_SBP, (int64_t)fl_nd_sbp_bits(grad_sbp));
    return FL_OK;
}

/* The SBP asked for the gradient, NULL when none was. */
static const fl_nd_sbp *given_grad_sbp(fl_nd_sbp *nd_sbp, const fl_attrs *attrs)
{
    if (!attrs->at[FL_BOX_GRAD_SBP].given) return NULL;
    memcpy(nd_sbp, &attrs->at[FL_BOX_GRAD_SBP].integer, sizeof *nd_sbp);
    return nd_sbp;
}

static fl_nd_sbp grad_sbp_of(const fl_attrs *attrs, fl_nd_sbp otherwise)
{
    fl_nd_sbp s;
    return given_grad_sbp(&s, attrs) ? s : otherwise;
}

/* ---- global to global ---- */

static int priority_of(const fl_attrs *attrs) { return (int)attrs->at[FL_BOX_PRIORITY].integer; }

static fl_status to_global_grad(fl_grad *g)
{
    const fl_meta *x = g->in_meta[0];
    return fl_to_global_with(&g->gin[0], g->gout[0], x->placement, grad_sbp_of(g->attrs, fl_nd_sbp_reduced(x->nd_sbp)),
                             NULL, priority_of(g->attrs));
}

/* Only where nothing moved is the result a view. The gradient of a partial tensor lies in another SBP, and is as little
** moved. */
static fl_status to_global_again(fl_tensor **out, fl_tensor *x, const fl_attrs *attrs)
{
    fl_nd_sbp s;
    return fl_to_global_with(out, x, x->meta->placement, x->meta->nd_sbp, given_grad_sbp(&s, attrs),
                             priority_of(attrs));
}

/* A slice of a broadcast tensor becomes a copy: written in place, it must not change the other on this rank alone. */
static fl_status own_storage(fl_tensor **tensor)
{
    fl_tensor *copy;
    fl_status status = FL_CALL(&copy, clone, fl_of(*tensor));
    fl_tensor_unref(*tensor);
    if (status == FL_OK) *tensor = copy;
    return status;
}

static fl_status box(fl_tensor **out, fl_tensor *x, const fl_meta *to, int priority)
{
    fl_tensor *result = NULL;
    FL_TRY(fl_boxing_apply_with(&result, x, to, priority));
    if (result->storage == x->storage && to != x->meta) FL_TRY(own_storage(&result));
    *out = result;
    return FL_OK;
}

static fl_status body_to_global(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_tensor *x = in[0].tensor;
    const fl_meta *meta;
    char text[FL_META_TEXT];
    if (x->meta->is_local)
        return fl_fail(
            FL_ERR_SBP,
            "to_global: this is a local tensor (%s); give placement and sbp: x:to_global{placement = p, sbp = \"B\"}",
            fl_meta_text(text, x->meta));
    FL_TRY(fl_priority_check("to_global", attrs->at[FL_BOX_PRIORITY].integer));
    fl_status status = fl_meta_check_copy(x->meta, attrs->placement);
    if (status == FL_OK)
        status = fl_meta_get(&meta, x->meta->dtype, &x->meta->shape, attrs->placement, attrs->nd_sbp, false);
    if (status != FL_OK) return fl_fail_prefix(status, "to_global: ");
    if (FL_LIKELY(!fl_fault_armed) || !fl_fault_op(&status, out, "to_global", &meta, 1, NULL))
        status = box(out, in[0].tensor, meta, priority_of(attrs));
    fl_meta_unref(meta);
    return status;
}

FL_OP(to_global) = {
    .name = "to_global",
    .sig = "to_global(x, grad_sbp: int = nil, priority: int = 0)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_STEP | FL_OP_VIEW,
    .doc = "The tensor on another placement or with another SBP.",
    .body = body_to_global,
    .replay = to_global_again,
    .grad = to_global_grad,
};

fl_status fl_to_global_with(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp,
                            const fl_nd_sbp *grad_sbp, int priority)
{
    fl_attrs attrs;
    fl_to_global_attrs(&attrs, FL_OP_REF(to_global), placement, nd_sbp, grad_sbp);
    if (priority) fl_attr_set(&attrs, FL_BOX_PRIORITY, priority);
    return FL_CALL_WITH(out, &attrs, to_global, fl_of(x));
}

fl_status fl_to_global(fl_tensor **out, fl_tensor *x, const fl_placement *placement, fl_nd_sbp nd_sbp,
                       const fl_nd_sbp *grad_sbp)
{
    return fl_to_global_with(out, x, placement, nd_sbp, grad_sbp, 0);
}

/* ---- global to local ---- */

static fl_status to_local_grad(fl_grad *g)
{
    const fl_meta *x = g->in_meta[0];
    fl_nd_sbp nd_sbp = grad_sbp_of(g->attrs, fl_nd_sbp_reduced(x->nd_sbp));
    return fl_global_from_part(&g->gin[0], g->gout[0], &x->shape, x->placement, nd_sbp);
}

static fl_status to_local_again(fl_tensor **out, fl_tensor *x, const fl_attrs *attrs)
{
    fl_nd_sbp s;
    return fl_to_local(out, x, given_grad_sbp(&s, attrs));
}

static fl_status body_to_local(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_tensor *x = in[0].tensor;
    char text[FL_META_TEXT];
    if (x->meta->is_local)
        return fl_fail(FL_ERR_SBP, "to_local: the tensor is already local (%s)", fl_meta_text(text, x->meta));
    fl_shape part = {x->meta->shape.ndim, {0}};
    memcpy(part.dims, x->meta->window.size, sizeof(int64_t) * (size_t)part.ndim);
    if (!x->meta->holds && part.ndim == 0) part.ndim = 1; /* no part of a scalar: no elements */
    const fl_meta *meta;
    FL_TRY(fl_meta_get(&meta, x->meta->dtype, &part, fl_placement_local(x->meta->placement->type, -1),
                       fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_view(out, x, meta, x->strides, x->offset);
    fl_meta_unref(meta);
    return status;
}

FL_OP(to_local) = {
    .name = "to_local",
    .sig = "to_local(x, grad_sbp: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_STEP | FL_OP_VIEW,
    .doc = "This rank's part of a global tensor, a view.",
    .body = body_to_local,
    .replay = to_local_again,
    .grad = to_local_grad,
};

fl_status fl_to_local(fl_tensor **out, fl_tensor *x, const fl_nd_sbp *grad_sbp)
{
    fl_attrs attrs;
    fl_to_global_attrs(&attrs, FL_OP_REF(to_local), x->meta->placement, x->meta->nd_sbp, grad_sbp);
    return FL_CALL_WITH(out, &attrs, to_local, fl_of(x));
}

/* ---- between devices of this rank ---- */

static fl_status to_device_grad(fl_grad *g) { return fl_to_device(&g->gin[0], g->gout[0], g->in_meta[0]->placement); }

static fl_status body_to_device(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_meta *x = in[0].tensor->meta, *meta;
    if (!x->is_local) return fl_fail(FL_ERR_SBP, "to: a global tensor is moved by to_global{placement = p, sbp = s}");
    if (fl_meta_check_copy(x, attrs->placement) != FL_OK) return fl_fail_prefix(FL_ERR_STATE, "to: ");
    FL_TRY(fl_meta_get(&meta, x->dtype, &x->shape, attrs->placement, attrs->nd_sbp, true));
    fl_status status = fl_boxing_apply(out, in[0].tensor, meta);
    fl_meta_unref(meta);
    return status;
}

FL_OP(to_device) = {
    .name = "to_device",
    .sig = "to_device(x, grad_sbp: int = nil)",
    .nout = 1,
    .flags = FL_OP_HIDDEN | FL_OP_BY_STEP | FL_OP_VIEW,
    .doc = "The local tensor on another device.",
    .body = body_to_device,
    .grad = to_device_grad,
};

fl_status fl_to_device(fl_tensor **out, fl_tensor *x, const fl_placement *device)
{
    fl_attrs attrs;
    fl_to_global_attrs(&attrs, FL_OP_REF(to_device), device, fl_nd_sbp_fill(FL_B, 1), NULL);
    return FL_CALL_WITH(out, &attrs, to_device, fl_of(x));
}

static fl_status host_part(fl_tensor **out, fl_tensor *x)
{
    fl_tensor *part = NULL, *host = NULL;
    FL_TRY(fl_meta_check_values(x->meta));
    bool enabled = fl_record_pause();
    fl_status status = FL_OK;
    if (x->meta->is_local) part = fl_tensor_ref(x);
    else status = fl_to_local(&part, x, NULL);
    if (status == FL_OK && part->meta->placement->type == FL_CPU) host = fl_tensor_ref(part);
    else if (status == FL_OK) status = fl_to_device(&host, part, fl_placement_local(FL_CPU, -1));
    fl_tensor_unref(part);
    fl_record_resume(enabled);
    if (status == FL_OK) status = fl_tensor_wait(host);
    if (status == FL_OK) *out = host;
    else fl_tensor_unref(host);
    return status;
}

fl_status fl_host_part(fl_tensor **out, fl_tensor *x)
{
    FL_TRY(fl_listener_refuse("the value of a tensor is read"));
    const fl_answerer *answerer = fl_answerer_now; /* ops called here are not the script's */
    fl_answerer_now = NULL;
    fl_status status = host_part(out, x);
    fl_answerer_now = answerer;
    return status;
}

fl_status fl_host_whole(fl_tensor **out, fl_tensor *x)
{
    if (x->meta->is_local) return fl_host_part(out, x);
    const fl_placement *all = fl_placement_everywhere(x->meta->placement);
    if (!all) return fl_fail(FL_ERR_MEMORY, "out of memory");
    fl_tensor *whole;
    bool recording = fl_record_pause();
    fl_status status = fl_to_global(&whole, x, all, fl_nd_sbp_fill(FL_B, all->ndim), NULL);
    if (status == FL_OK) {
        status = fl_host_part(out, whole);
        fl_tensor_unref(whole);
    }
    fl_record_resume(recording);
    return status;
}
