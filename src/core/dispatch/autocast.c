/*
** autocast.c -- see autocast.h.
*/
#include "autocast.h"
#include "base/hash.h"
#include "call.h"
#include "op/views.h"
#include "record.h"

#include <stdlib.h>

uintptr_t fl_autocast_now;

/* ---- casts of leaves ---- */

/* One place for each, by the leaf's address; a later one takes it over. */
enum { KEPT_BITS = 10, KEPT = 1 << KEPT_BITS };

static struct kept {
    fl_tensor *leaf, *cast; /* owned; NULL: free */
    uint64_t version;
    bool recorded;
} kept[KEPT];
static bool any_kept;

static struct kept *place_of(const fl_tensor *leaf)
{
    return &kept[fl_hash_slot((uintptr_t)leaf / sizeof(fl_tensor), KEPT_BITS)];
}

static void drop(struct kept *place)
{
    fl_tensor *leaf = place->leaf, *cast = place->cast;
    place->leaf = place->cast = NULL;
    fl_tensor_release(cast);
    fl_tensor_release(leaf);
}

void fl_autocast_forget(void)
{
    if (!any_kept) return;
    any_kept = false;
    for (int i = 0; i < KEPT; i++)
        if (kept[i].leaf) drop(&kept[i]);
}

static uint64_t version_of(const fl_tensor *tensor) { return tensor->storage ? tensor->storage->var.version : 0; }

static void keep(fl_tensor *leaf, fl_tensor *cast)
{
    struct kept *k = place_of(leaf);
    if (k->leaf) drop(k);
    *k = (struct kept){fl_tensor_ref(leaf), fl_tensor_ref(cast), version_of(leaf), fl_grad_enabled};
    any_kept = true;
}

static fl_tensor *find(const fl_tensor *leaf, fl_dtype dtype)
{
    const struct kept *k = place_of(leaf);
    bool fits = k->leaf == leaf && k->cast->meta->dtype == dtype && k->version == version_of(leaf)
        && k->recorded == fl_grad_enabled;
    return fits ? fl_tensor_ref(k->cast) : NULL;
}

/* ---- regions ---- */

static void change(uintptr_t value)
{
    fl_autocast_now = value;
    fl_dispatch_watch(FL_WATCH_CAST, value >= FL_AUTOCAST_DTYPES);
}

void fl_autocast_set(uintptr_t value)
{
    change(value);
    if (value == FL_AUTOCAST_NONE) fl_autocast_forget();
}

uintptr_t fl_autocast_pause(void)
{
    uintptr_t before = fl_autocast_now;
    if (before >= FL_AUTOCAST_DTYPES) change(FL_AUTOCAST_OFF);
    return before;
}

void fl_autocast_resume(uintptr_t before)
{
    if (before != fl_autocast_now) change(before);
}

/* ---- ops ---- */

/* The operand in this dtype; the caller owns out's tensor. Integers, bools and float64 stay. */
static fl_status cast(fl_operand *out, const fl_operand *in, fl_dtype dtype)
{
    fl_tensor *x = in->kind == FL_TENSOR ? in->tensor : NULL;
    fl_attrs attrs;
    *out = *in;
    if (!x || !fl_dtype_is_float(x->meta->dtype) || x->meta->dtype == FL_FLOAT64 || x->meta->dtype == dtype) {
        if (x) fl_tensor_ref(x);
        return FL_OK;
    }
    bool leaf = x->requires_grad && fl_recorder_now && fl_recorder_now->is_leaf(x);
    if (leaf && (out->tensor = find(x, dtype))) return FL_OK;
    fl_attrs_init(&attrs, FL_OP_REF(cast));
    fl_attr_set(&attrs, FL_CAST_DTYPE, dtype);
    FL_TRY(fl_dispatch(&out->tensor, FL_OP_REF(cast), in, 1, &attrs));
    if (leaf) keep(x, out->tensor);
    return FL_OK;
}

fl_status fl_autocast_call(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_operand few[FL_CALL_OPERANDS], *operands = nin > FL_CALL_OPERANDS ? malloc(sizeof *in * (size_t)nin) : few;
    if (!operands) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for %d operands", op->name, nin);
    uintptr_t before = fl_autocast_pause();
    fl_dtype dtype = op->flags & FL_OP_WIDE ? FL_FLOAT32 : (fl_dtype)(before - FL_AUTOCAST_DTYPES);
    fl_status status = FL_OK;
    int count = 0;
    while (count < nin && (status = cast(&operands[count], &in[count], dtype)) == FL_OK) count++;
    if (status == FL_OK) status = fl_dispatch(out, op, operands, nin, attrs);
    while (--count >= 0)
        if (operands[count].kind == FL_TENSOR) fl_tensor_unref(operands[count].tensor);
    if (operands != few) free(operands);
    fl_autocast_resume(before);
    return status;
}
