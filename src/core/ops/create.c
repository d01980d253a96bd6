/*
** create.c -- ops that make tensors out of sizes and numbers.
**
** Kernels that count (arange, linspace, eye) ask where their part lies in the logical tensor, so every rank
** computes its own. The results of `*_like` ops take the SBP of their operand unless the options name another.
*/
#include "op/create.h"
#include "cpu/sequence.h"
#include "ops.h"

#include <math.h>

/* ---- the common part of sources ---- */

static fl_dtype option_or(const fl_infer *infer, fl_dtype otherwise)
{
    return infer->attrs->has_dtype ? infer->attrs->option_dtype : otherwise;
}

static fl_status infer_sizes(fl_infer *infer)
{
    const fl_attr *sizes = &infer->attrs->at[FL_SOURCE_SIZE];
    infer->out[0].dtype = option_or(infer, fl_dtype_default);
    return fl_shape_make(&infer->out[0].shape, infer->name, sizes->list, sizes->count);
}

static fl_status fill_number(const fl_view *out, const fl_attr *value)
{
    int64_t bytes[1];
    fl_attr_bytes(bytes, out->dtype, value);
    return fl_cpu_fill(out, bytes);
}

static fl_status kernel_zeros(fl_kernel *kernel) { return fl_move_fill_integer(kernel, &fl_cpu_mover, 0); }
static fl_status kernel_ones(fl_kernel *kernel) { return fl_move_fill_integer(kernel, &fl_cpu_mover, 1); }
static fl_status kernel_empty(fl_kernel *kernel) { return FL_OK; }
static fl_status kernel_full(fl_kernel *kernel) { return fl_move_fill(kernel, &fl_cpu_mover, FL_FULL_VALUE); }

/* ---- zeros, ones, empty, full ---- */

/* Zeros in every part are zeros of the sum, the maximum and the minimum. */
static void sbp_zeros(fl_sigs *sigs)
{
    fl_sbp_source(sigs);
    if (sigs->out[0].dtype != FL_BOOL) FL_SIG(sigs, NULL, FL_PSUM);
    FL_SIG(sigs, NULL, FL_PMAX);
    FL_SIG(sigs, NULL, FL_PMIN);
}

static const char *const zeros_samples[] = {"2, 3", "{4}", "0, 2", "{2, 3}, {dtype = \"int64\"}", NULL};
FL_OP(zeros) = {
    .name = "zeros",
    .sig = "zeros(size: sizes, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY | FL_OP_ZEROS,
    .doc = "A tensor of zeros.",
    .infer = infer_sizes,
    .sbp = sbp_zeros,
    .cpu = kernel_zeros,
    .samples = zeros_samples,
};
FL_OP(ones) = {
    .name = "ones",
    .sig = "ones(size: sizes, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY,
    .doc = "A tensor of ones.",
    .infer = infer_sizes,
    .sbp = fl_sbp_source,
    .cpu = kernel_ones,
    .samples = zeros_samples,
};
static int64_t flops_none(const fl_kernel *kernel) { return 0; }

static const char *const empty_samples[] = {"0, 3", NULL},
                         *const empty_like_samples[] = {"flow.zeros(2, 0)", NULL}; /* anything else is anything */
FL_OP(empty) = {
    .name = "empty",
    .sig = "empty(size: sizes, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY | FL_OP_UNSET,
    .doc = "A tensor with undefined values.",
    .infer = infer_sizes,
    .sbp = fl_sbp_source,
    .cpu = kernel_empty,
    .flops = flops_none,
    .samples = empty_samples,
};

static fl_dtype dtype_of_number(const fl_attr *attr)
{
    return attr->kind == FL_NUM_BOOL ? FL_BOOL : attr->kind == FL_NUM_INT ? FL_INT64 : fl_dtype_default;
}

static fl_status infer_full(fl_infer *infer)
{
    FL_TRY(infer_sizes(infer));
    infer->out[0].dtype = option_or(infer, dtype_of_number(&infer->attrs->at[FL_FULL_VALUE]));
    return FL_OK;
}

static fl_status check_full(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_attr *value = &attrs->at[FL_FULL_VALUE];
    return fl_require_attr_fits("full", attrs->has_dtype ? attrs->option_dtype : dtype_of_number(value), value);
}

static const char *const full_samples[] = {"{2, 3}, 1.5", "{4}, 7", "{2}, true", "{2}, 3, {dtype = \"float16\"}", NULL};
FL_OP(full) = {
    .name = "full",
    .sig = "full(size: sizes, ~value: scalar, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY,
    .doc = "A tensor filled with a number; the dtype defaults to the number's.",
    .infer = infer_full,
    .check = check_full,
    .sbp = fl_sbp_source,
    .cpu = kernel_full,
    .samples = full_samples,
};

/* ---- like ---- */

static fl_status infer_like(fl_infer *infer)
{
    infer->out[0].shape = infer->in[0].shape;
    infer->out[0].dtype = option_or(infer, infer->in[0].dtype);
    return FL_OK;
}

/* As sbp_zeros, with the SBP of x. */
static void sbp_zeros_like(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 0);
    fl_sbp_moves(sigs, false);
}

/* No value of x is read, so partial ones need not be added up. */
static void sbp_like(fl_sigs *sigs)
{
    fl_sbp_except(sigs, 0);
    FL_SIG(sigs, NULL, FL_PSUM, FL_B);
    FL_SIG(sigs, NULL, FL_PMAX, FL_B);
    FL_SIG(sigs, NULL, FL_PMIN, FL_B);
}

static fl_status check_full_like(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    fl_dtype own = in[0].tensor->meta->dtype;
    return fl_require_attr_fits("full_like", attrs->has_dtype ? attrs->option_dtype : own, &attrs->at[FL_FILL_VALUE]);
}

static fl_status kernel_full_like(fl_kernel *kernel) { return fl_move_fill(kernel, &fl_cpu_mover, FL_FILL_VALUE); }

static const char *const like_samples[] = {"flow.randn(2, 3)", "flow.arange(4)", "flow.randn(3), {dtype = \"float64\"}",
                                           NULL};
FL_OP(zeros_like) = {
    .name = "zeros_like",
    .sig = "zeros_like(x, options)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY | FL_OP_NO_GRAD | FL_OP_ZEROS,
    .doc = "Zeros with the shape of x.",
    .infer = infer_like,
    .sbp = sbp_zeros_like,
    .cpu = kernel_zeros,
    .samples = like_samples,
};
FL_OP(ones_like) = {
    .name = "ones_like",
    .sig = "ones_like(x, options)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY | FL_OP_NO_GRAD,
    .doc = "Ones with the shape of x.",
    .infer = infer_like,
    .sbp = sbp_like,
    .cpu = kernel_ones,
    .samples = like_samples,
};
FL_OP(empty_like) = {
    .name = "empty_like",
    .sig = "empty_like(x, options)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY | FL_OP_NO_GRAD | FL_OP_UNSET,
    .doc = "A tensor with the shape of x and undefined values.",
    .infer = infer_like,
    .sbp = sbp_like,
    .cpu = kernel_empty,
    .flops = flops_none,
    .samples = empty_like_samples,
};

static const char *const full_like_samples[] = {"flow.randn(2, 3), 1.5", "flow.arange(4), 7", NULL};
FL_OP(full_like) = {
    .name = "full_like",
    .sig = "full_like(x, ~value: scalar, options)",
    .nout = 1,
    .flags = FL_OP_FUNCTION_ONLY | FL_OP_NO_GRAD,
    .doc = "A tensor with the shape and dtype of x, filled with a number.",
    .infer = infer_like,
    .check = check_full_like,
    .sbp = sbp_like,
    .cpu = kernel_full_like,
    .samples = full_like_samples,
};

/* ---- eye ---- */

static fl_status infer_eye(fl_infer *infer)
{
    const fl_attr *rows = &infer->attrs->at[FL_EYE_ROWS], *columns = &infer->attrs->at[FL_EYE_COLUMNS];
    int64_t sizes[] = {rows->integer, columns->given ? columns->integer : rows->integer};
    infer->out[0].dtype = option_or(infer, fl_dtype_default);
    return fl_shape_make(&infer->out[0].shape, infer->name, sizes, 2);
}

static fl_status kernel_eye(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    fl_attr one = {.given = true, .kind = FL_NUM_INT, .count = 1, .integer = 1};
    FL_TRY(kernel_zeros(kernel));
    int64_t size, stride;
    fl_view diagonal = fl_view_diagonal(out, &size, &stride);
    if (size == 0) return FL_OK;
    return fill_number(&diagonal, &one);
}

static const char *const eye_samples[] = {"3", "2, 4", "4, 2", "0", NULL};
FL_OP(eye) = {
    .name = "eye",
    .sig = "eye(n: int, m: int = nil, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY,
    .doc = "A matrix of n rows and m columns (default: n) with ones on the diagonal.",
    .infer = infer_eye,
    .sbp = fl_sbp_source,
    .cpu = kernel_eye,
    .samples = eye_samples,
};

/* ---- arange, linspace ---- */

/* The first element, the step and the count of a progression. */
struct progression {
    bool integers;
    int64_t first, stride; /* when all are integers: exact */
    double start, step;
    int64_t count;
};

static fl_status arange_integers(struct progression *progression, int64_t start, int64_t stop, int64_t step)
{
    __int128 span = (__int128)stop - start, magnitude = step < 0 ? -(__int128)step : step;
    if (step < 0) span = -span;
    if (span < 0)
        return fl_fail(FL_ERR_VALUE, "arange: from %lld to %lld with step %lld never ends", (long long)start,
                       (long long)stop, (long long)step);
    __int128 count = (span + magnitude - 1) / magnitude;
    if (count >= FL_MAX_NUMEL) return fl_fail(FL_ERR_SHAPE, "arange: too many elements");
    *progression = (struct progression){true, start, step, (double)start, (double)step, (int64_t)count};
    return FL_OK;
}

static fl_status arange_floats(struct progression *progression, double start, double stop, double step)
{
    double count = ceil((stop - start) / step);
    if (!isfinite(start) || !isfinite(stop) || !isfinite(step))
        return fl_fail(FL_ERR_VALUE, "arange: needs finite numbers, got %g, %g, %g", start, stop, step);
    if ((stop - start) * (step < 0 ? -1 : 1) < 0)
        return fl_fail(FL_ERR_VALUE, "arange: from %g to %g with step %g never ends", start, stop, step);
    if (!(count < 4e18)) return fl_fail(FL_ERR_SHAPE, "arange: too many elements");
    *progression = (struct progression){false, 0, 0, start, step, (int64_t)count};
    return FL_OK;
}

/* arange(stop), arange(start, stop), arange(start, stop, step) */
static fl_status arange_of(struct progression *progression, const fl_attrs *attrs)
{
    static const fl_attr zero = {.given = true, .kind = FL_NUM_INT, .count = 1};
    const fl_attr *start = &attrs->at[FL_ARANGE_START], *stop = &attrs->at[FL_ARANGE_STOP],
                  *step = &attrs->at[FL_ARANGE_STEP];
    if (!stop->given) {
        stop = start;
        start = &zero;
    }
    if (fl_attr_number(step) == 0) return fl_fail(FL_ERR_VALUE, "arange: step must not be 0");
    bool floats = start->kind == FL_NUM_FLOAT || stop->kind == FL_NUM_FLOAT || step->kind == FL_NUM_FLOAT;
    if (floats) return arange_floats(progression, fl_attr_number(start), fl_attr_number(stop), fl_attr_number(step));
    return arange_integers(progression, start->integer, stop->integer, step->integer);
}

static fl_status infer_arange(fl_infer *infer)
{
    struct progression p;
    FL_TRY(arange_of(&p, infer->attrs));
    infer->out[0].dtype = option_or(infer, p.integers ? FL_INT64 : fl_dtype_default);
    return fl_shape_make(&infer->out[0].shape, infer->name, &p.count, 1);
}

static fl_status kernel_arange(fl_kernel *kernel)
{
    struct progression p;
    FL_TRY(arange_of(&p, kernel->attrs));
    if (p.integers) return fl_cpu_count(&kernel->out[0], p.first, p.stride);
    return fl_cpu_arange(&kernel->out[0], p.start, p.step);
}

static const char *const arange_samples[] = {"5", "2, 9", "9, 2, -3", "0, 1, 0.25", "3, 3", "4, {dtype = \"float64\"}",
                                             NULL};
FL_OP(arange) = {
    .name = "arange",
    .sig = "arange(start: scalar, stop: scalar = nil, step: scalar = 1, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY,
    .doc = "start, start + step, ... below stop; arange(n) counts from 0; int64 if all three are integers.",
    .infer = infer_arange,
    .sbp = fl_sbp_source,
    .cpu = kernel_arange,
    .samples = arange_samples,
};

static fl_status infer_linspace(fl_infer *infer)
{
    int64_t steps = infer->attrs->at[FL_LINSPACE_STEPS].integer;
    if (steps < 0) return fl_infer_fail(infer, FL_ERR_VALUE, "steps %lld is negative", (long long)steps);
    infer->out[0].dtype = option_or(infer, fl_dtype_default);
    return fl_shape_make(&infer->out[0].shape, infer->name, &steps, 1);
}

static fl_status check_linspace(const fl_operand *in, int nin, const fl_attrs *attrs)
{
    double start = fl_attr_number(&attrs->at[FL_LINSPACE_START]), stop = fl_attr_number(&attrs->at[FL_LINSPACE_STOP]);
    if (isfinite(start) && isfinite(stop)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "linspace: needs finite numbers, got %g and %g", start, stop);
}

static fl_status kernel_linspace(fl_kernel *kernel)
{
    return fl_cpu_linspace(&kernel->out[0], fl_attr_number(&kernel->attrs->at[FL_LINSPACE_START]),
                           fl_attr_number(&kernel->attrs->at[FL_LINSPACE_STOP]));
}

static const char *const linspace_samples[] = {"0, 1, 5", "3, -3, 4", "2, 5, 1", "0, 1, 0", NULL};
FL_OP(linspace) = {
    .name = "linspace",
    .sig = "linspace(~start: scalar, ~stop: scalar, steps: int, options)",
    .nout = 1,
    .flags = FL_OP_SOURCE | FL_OP_FUNCTION_ONLY,
    .doc = "steps numbers at equal distances from start to stop, both included.",
    .infer = infer_linspace,
    .check = check_linspace,
    .sbp = fl_sbp_source,
    .cpu = kernel_linspace,
    .samples = linspace_samples,
};
