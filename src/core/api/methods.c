/*
** methods.c -- split, chunk, to and detach by their names in flow_call: scripts have them as methods over several ops.
*/
#include "entry.h"
#include "api.h"

enum { MOST_ARGUMENTS = 3 };

/* Finds the arguments by position or by name, NULL: left out. */
static fl_status find_arguments(const flow_arg **found, const char *op, const char *const *names, const flow_arg *args,
                                int nargs)
{
    char shown[FL_SHOWN_TEXT];
    for (int i = 0; i < MOST_ARGUMENTS; i++) found[i] = NULL;
    for (int i = 0; i < nargs; i++) {
        int at = i;
        for (int k = 0; args[i].name && k <= MOST_ARGUMENTS; k++) {
            if (k == MOST_ARGUMENTS)
                return fl_fail(FL_ERR_VALUE, "%s: unknown argument '%s'", op, fl_text_name(shown, args[i].name));
            if (strcmp(names[at = k], args[i].name) == 0) break;
        }
        if (at >= MOST_ARGUMENTS)
            return fl_fail(FL_ERR_VALUE, "%s: too many arguments: %s", op, fl_call_method_find(op)->sig);
        if (found[at]) return fl_fail(FL_ERR_VALUE, "%s: '%s' is given twice", op, names[at]);
        if (args[i].kind != FLOW_NONE) found[at] = &args[i];
    }
    if (found[0] && found[0]->kind == FLOW_TENSOR && found[0]->value.tensor) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: x must be a tensor", op);
}

static fl_status integer_of(int64_t *out, const char *op, const char *name, const flow_arg *arg)
{
    if (!arg || arg->kind != FLOW_INT) return fl_fail(FL_ERR_VALUE, "%s: %s must be an integer", op, name);
    *out = arg->value.integer;
    return FL_OK;
}

/* ---- split, chunk ---- */

/* The axis that is cut, and its size. */
struct cut {
    const char *op;
    fl_tensor *x;
    int axis;
    int64_t size;
};

static fl_status find_axis(struct cut *cut, const char *op, const flow_arg *const *arguments)
{
    int64_t axis = 0;
    cut->op = op;
    cut->x = fl_api_in(arguments[0]->value.tensor);
    const fl_shape *shape = &cut->x->meta->shape;
    if (arguments[2]) FL_TRY(integer_of(&axis, op, "axis", arguments[2]));
    if (shape->ndim == 0) return fl_fail(FL_ERR_SHAPE, "%s: x has no axes", op);
    FL_TRY(fl_shape_axis(&cut->axis, op, axis, shape));
    cut->size = shape->dims[cut->axis];
    return FL_OK;
}

static fl_status narrow(flow_tensor **out, const struct cut *cut, int64_t start, int64_t length)
{
    fl_tensor *part;
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(narrow));
    fl_attr_set(&attrs, FL_SLICE_AXIS, cut->axis);
    fl_attr_set(&attrs, FL_SLICE_START, start);
    fl_attr_set(&attrs, FL_SLICE_LENGTH, length);
    FL_TRY(FL_CALL_WITH(&part, &attrs, narrow, fl_of(cut->x)));
    *out = fl_api_out(part);
    return FL_OK;
}

static fl_status too_few(const struct cut *cut, int64_t pieces, int wanted)
{
    return fl_fail(FL_ERR_VALUE, "%s: it has %lld result%s, %d were asked for", cut->op, (long long)pieces,
                   pieces == 1 ? "" : "s", wanted);
}

/* The first `count` pieces: sizes[i] long, or without sizes each `length` long, the last one perhaps shorter. */
static fl_status cut_pieces(flow_tensor **out, int count, const struct cut *cut, int64_t length, const int64_t *sizes)
{
    fl_status status = FL_OK;
    int64_t start = 0;
    int made = 0;
    for (; made < count && status == FL_OK; made++) {
        int64_t rest = cut->size - start, piece = sizes ? sizes[made] : length < rest ? length : rest;
        status = narrow(&out[made], cut, start, piece);
        start += piece;
    }
    for (int i = 0; i + 1 < made && status != FL_OK; i++) fl_tensor_unref(fl_api_in(out[i]));
    return status;
}

static fl_status cut_evenly(flow_tensor **out, int count, const struct cut *cut, int64_t length, int64_t empty)
{
    int64_t pieces = cut->size == 0 ? empty : (cut->size - 1) / length + 1;
    return count > pieces ? too_few(cut, pieces, count) : cut_pieces(out, count, cut, length, NULL);
}

static fl_status call_chunk(flow_tensor **out, int count, const flow_arg *args, int nargs)
{
    static const char *const names[] = {"x", "count", "axis"};
    const flow_arg *found[MOST_ARGUMENTS];
    struct cut cut;
    int64_t n = 0;
    FL_TRY(find_arguments(found, "chunk", names, args, nargs));
    FL_TRY(integer_of(&n, "chunk", "count", found[1]));
    FL_TRY(find_axis(&cut, "chunk", found));
    if (n < 1) return fl_fail(FL_ERR_VALUE, "chunk: count must be at least 1, got %lld", (long long)n);
    return cut_evenly(out, count, &cut, cut.size == 0 ? 1 : (cut.size - 1) / n + 1, n);
}

static fl_status cut_by_sizes(flow_tensor **out, int count, const struct cut *cut, const flow_arg *sizes)
{
    int64_t sum = 0;
    for (int i = 0; i < sizes->count; i++) {
        int64_t size = sizes->value.ints[i];
        if (size < 0) return fl_fail(FL_ERR_VALUE, "split: size %lld is negative", (long long)size);
        if (size > cut->size - sum)
            return fl_fail(FL_ERR_VALUE, "split: the sizes must add up to %lld, the size of axis %d",
                           (long long)cut->size, cut->axis);
        sum += size;
    }
    if (sum != cut->size)
        return fl_fail(FL_ERR_VALUE, "split: the sizes add up to %lld, axis %d has %lld", (long long)sum, cut->axis,
                       (long long)cut->size);
    return count > sizes->count ? too_few(cut, sizes->count, count) : cut_pieces(out, count, cut, 0, sizes->value.ints);
}

static fl_status call_split(flow_tensor **out, int count, const flow_arg *args, int nargs)
{
    static const char *const names[] = {"x", "size", "axis"};
    const flow_arg *found[MOST_ARGUMENTS];
    struct cut cut;
    int64_t length;
    FL_TRY(find_arguments(found, "split", names, args, nargs));
    FL_TRY(find_axis(&cut, "split", found));
    if (found[1] && found[1]->kind == FLOW_INTS && found[1]->value.ints)
        return cut_by_sizes(out, count, &cut, found[1]);
    if (!found[1] || found[1]->kind != FLOW_INT)
        return fl_fail(FL_ERR_VALUE, "split: size must be an integer or a list of integers");
    length = found[1]->value.integer;
    if (length < 1) return fl_fail(FL_ERR_VALUE, "split: size must be at least 1, got %lld", (long long)length);
    return cut_evenly(out, count, &cut, length, 1);
}

/* ---- to ---- */

static bool is_near_dtype(const char *text)
{
    for (int d = 0; d < FL_DTYPE_COUNT; d++)
        if (fl_suggest_distance(text, fl_dtype_name((fl_dtype)d)) >= 0) return true;
    return false;
}

/* A dtype or a device from a text. */
static fl_status read_target(const char **dtype, const char **device, const flow_arg *arg)
{
    if (!arg) return FL_OK;
    if (arg->kind != FLOW_TEXT || !arg->value.text)
        return fl_fail(FL_ERR_VALUE, "to: a dtype or a device must be a text");
    if (arg->name) *(strcmp(arg->name, "dtype") == 0 ? dtype : device) = arg->value.text;
    else *(is_near_dtype(arg->value.text) ? dtype : device) = arg->value.text;
    return FL_OK;
}

static fl_status cast_to(fl_tensor **out, fl_tensor *x, fl_dtype dtype)
{
    fl_attrs attrs;
    if (x->meta->dtype == dtype) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    fl_attrs_init(&attrs, FL_OP_REF(cast));
    fl_attr_set(&attrs, FL_CAST_DTYPE, dtype);
    return FL_CALL_WITH(out, &attrs, cast, fl_of(x));
}

/* On the device: the tensor itself, one reference more, or a copy there. */
static fl_status move_to(fl_tensor **out, fl_tensor *x, const char *device)
{
    const fl_placement *place;
    FL_TRY(fl_api_device(&place, "to", device));
    if (x->meta->is_local) return fl_to_device(out, x, place);
    return fl_fail(FL_ERR_SBP, "to: the tensor is global; flow_to_global takes one");
}

static fl_status give_one(flow_tensor **out, int count, fl_tensor *made)
{
    if (count) out[0] = fl_api_out(made);
    else fl_tensor_unref(made);
    return FL_OK;
}

static fl_status call_to(flow_tensor **out, int count, const flow_arg *args, int nargs)
{
    static const char *const names[] = {"x", "dtype", "device"};
    const flow_arg *found[MOST_ARGUMENTS];
    const char *dtype_name = NULL, *device = NULL;
    fl_tensor *there, *result;
    FL_TRY(find_arguments(found, "to", names, args, nargs));
    for (int i = 1; i < MOST_ARGUMENTS; i++) FL_TRY(read_target(&dtype_name, &device, found[i]));
    if (!dtype_name && !device) return fl_fail(FL_ERR_VALUE, "to: a dtype or a device is missing");
    fl_tensor *x = fl_api_in(found[0]->value.tensor);
    fl_dtype dtype = x->meta->dtype;
    if (dtype_name) FL_TRY(fl_api_dtype(&dtype, "to", dtype_name));
    if (count > 1) return fl_fail(FL_ERR_VALUE, "to: it has 1 result, %d were asked for", count);
    if (device) FL_TRY(move_to(&there, x, device));
    else there = fl_tensor_ref(x);
    fl_status status = cast_to(&result, there, dtype);
    fl_tensor_unref(there);
    FL_TRY(status);
    return give_one(out, count, result);
}

/* ---- detach ---- */

/* The same values, not connected to what made them. */
static fl_status call_detach(flow_tensor **out, int count, const flow_arg *args, int nargs)
{
    static const char *const names[] = {"x", "", ""};
    const flow_arg *found[MOST_ARGUMENTS];
    fl_tensor *same;
    FL_TRY(find_arguments(found, "detach", names, args, nargs));
    if (nargs > 1) return fl_fail(FL_ERR_VALUE, "detach: too many arguments: detach(x)");
    if (count > 1) return fl_fail(FL_ERR_VALUE, "detach: it has 1 result, %d were asked for", count);
    FL_TRY(fl_tensor_detach(&same, fl_api_in(found[0]->value.tensor)));
    return give_one(out, count, same);
}

/* ---- by name ---- */

const fl_call_method *fl_call_method_find(const char *name)
{
    static const fl_call_method methods[] = {
        {"split", "split(x, size: int or ints, axis: axis = 0)", call_split, false},
        {"chunk", "chunk(x, count: int, axis: axis = 0)", call_chunk, false},
        {"to", "to(x, dtype: dtype or device, device: text = nil)", call_to, false},
        {"detach", "detach(x)", call_detach, true},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, name) == 0) return &methods[i];
    return NULL;
}
