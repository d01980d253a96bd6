/*
** reduce.cu -- sums, products, extremes, statistics and norms over axes.
**
** The folds are in folds.cuh, the engine in reduce.cuh; here each op chooses its own. The rules for the result (empty
** parts, NaN, the dtype of totals) are as in core/ops (sums.c, extremes.c, norms.c) and core/cpu/reduce.c.
*/
#include "core/op/reduce.h"
#include "folds.cuh"

/* ---- attributes ---- */

static int axis_at(int64_t axis, int ndim) { return (int)(axis < 0 ? axis + ndim : axis); }

/* The axes of an `axes` or `axis` attribute, all of them when it is absent. */
static uint32_t axes_of(const fl_kernel *kernel, int slot)
{
    const fl_attr *a = &kernel->attrs->at[slot];
    int ndim = kernel->in[0].ndim;
    uint32_t mask = 0;
    if (!a->given || a->count == 0) return (1u << ndim) - 1;
    for (int i = 0; i < a->count && ndim > 0; i++) mask |= 1u << axis_at(a->list[i], ndim);
    return mask;
}

static int64_t count_of(const int64_t *size, int ndim, uint32_t mask)
{
    int64_t count = 1;
    for (int i = 0; i < ndim; i++)
        if (mask >> i & 1u) count *= size[i];
    return count;
}

static fl_results results_of(const fl_view *out, const fl_view *in, uint32_t mask, fl_finish finish)
{
    fl_results r = {};
    r.out = (char *)out->data;
    r.dtype = out->dtype;
    r.size = (int64_t)fl_dtype_size(out->dtype);
    r.finish = finish;
    r.count = (double)count_of(in->logical, in->ndim, mask);
    r.local_count = count_of(in->size, in->ndim, mask);
    return r;
}

template<typename T>
using element_of = typename fl_element<T>::type;

/* ---- sums and products ---- */

template<fl_map MAP>
static fl_status sum_any(const fl_view *in, uint32_t mask, const fl_results &results)
{
    return fl_cuda_by_dtype(in->dtype, [&](auto like) {
        fl_sum_fold<element_of<decltype(like)>, MAP> fold = {results};
        return fl_fold_axes<decltype(like)>(in, mask, fold, false);
    });
}

template<fl_map MAP>
static fl_status sum_floats(const fl_view *in, uint32_t mask, const fl_results &results)
{
    return fl_cuda_by_float(in->dtype, [&](auto like) {
        fl_sum_fold<element_of<decltype(like)>, MAP> fold = {results};
        return fl_fold_axes<decltype(like)>(in, mask, fold, false);
    });
}

static fl_status launch_sum(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    FL_TRY(
        sum_any<FL_MAP_SAME>(&kernel->in[0], mask, results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_NONE)));
    return fl_cuda_check("sum");
}

static fl_status launch_nansum(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    FL_TRY(sum_any<FL_MAP_NUMBER>(&kernel->in[0], mask,
                                  results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_NONE)));
    return fl_cuda_check("nansum");
}

static fl_status launch_mean(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    FL_TRY(sum_floats<FL_MAP_SAME>(&kernel->in[0], mask,
                                   results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_MEAN)));
    return fl_cuda_check("mean");
}

static fl_status launch_prod(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    fl_results r = results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_NONE);
    FL_TRY(fl_cuda_by_dtype(kernel->in[0].dtype, [&](auto like) {
        fl_product_fold<element_of<decltype(like)>> fold = {r};
        return fl_fold_axes<decltype(like)>(&kernel->in[0], mask, fold, false);
    }));
    return fl_cuda_check("prod");
}

static fl_status count(fl_kernel *kernel, fl_finish finish)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    return sum_any<FL_MAP_NOT_ZERO>(&kernel->in[0], mask, results_of(&kernel->out[0], &kernel->in[0], mask, finish));
}

static fl_status launch_any(fl_kernel *kernel)
{
    FL_TRY(count(kernel, FL_FINISH_ANY));
    return fl_cuda_check("any");
}

static fl_status launch_all(fl_kernel *kernel)
{
    FL_TRY(count(kernel, FL_FINISH_ALL));
    return fl_cuda_check("all");
}

/* ---- extremes ---- */

/* The total of nothing: any element of the dtype wins over it. */
template<typename X>
static X least_of(fl_dtype dtype, bool smallest, bool absolute)
{
    if (fl_dtype_is_float(dtype)) return smallest || !absolute ? (X)-INFINITY : (X)0; /* smallest: turned */
    return (X)(smallest ? ~fl_dtype_ranges[dtype].highest : fl_dtype_ranges[dtype].lowest);
}

static fl_status extreme(const fl_view *in, uint32_t mask, const fl_results &results, bool smallest, bool absolute)
{
    return fl_cuda_by_dtype(in->dtype, [&](auto like) {
        typedef element_of<decltype(like)> X;
        fl_extreme_fold<X> fold = {results, smallest, absolute, least_of<X>(in->dtype, smallest, absolute)};
        return fl_fold_axes<decltype(like)>(in, mask, fold, false);
    });
}

static fl_status extreme_over(fl_kernel *kernel, uint32_t mask, bool smallest)
{
    FL_TRY(extreme(&kernel->in[0], mask, results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_NONE), smallest,
                   false));
    return fl_cuda_check(kernel->name);
}

static fl_status launch_amax(fl_kernel *kernel) { return extreme_over(kernel, axes_of(kernel, FL_REDUCE_AXIS), false); }
static fl_status launch_amin(fl_kernel *kernel) { return extreme_over(kernel, axes_of(kernel, FL_REDUCE_AXIS), true); }
static fl_status launch_max_all(fl_kernel *kernel)
{
    return extreme_over(kernel, (1u << kernel->in[0].ndim) - 1, false);
}
static fl_status launch_min_all(fl_kernel *kernel)
{
    return extreme_over(kernel, (1u << kernel->in[0].ndim) - 1, true);
}

/* ---- statistics ---- */

static fl_status variance(fl_kernel *kernel, fl_finish finish)
{
    uint32_t mask = axes_of(kernel, FL_VAR_AXIS);
    fl_results r = results_of(&kernel->out[0], &kernel->in[0], mask, finish);
    double left = (double)r.local_count - kernel->attrs->at[FL_VAR_CORRECTION].number;
    r.divisor = left > 0 ? left : 0;
    FL_TRY(fl_cuda_by_float(kernel->in[0].dtype, [&](auto like) {
        fl_variance_fold<element_of<decltype(like)>> fold;
        fold.results = r;
        return fl_fold_axes<decltype(like)>(&kernel->in[0], mask, fold, false);
    }));
    return fl_cuda_check(kernel->name);
}

static fl_status launch_var(fl_kernel *kernel) { return variance(kernel, FL_FINISH_VARIANCE); }
static fl_status launch_std(fl_kernel *kernel) { return variance(kernel, FL_FINISH_DEVIATION); }

static fl_status launch_norm(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_NORM_AXIS);
    const fl_view *x = &kernel->in[0];
    fl_results r = results_of(&kernel->out[0], x, mask, FL_FINISH_NONE);
    r.p = fl_attr_number(&kernel->attrs->at[FL_NORM_P]);
    if (isinf(r.p)) FL_TRY(extreme(x, mask, r, r.p < 0, true));
    else if (r.p == 0) FL_TRY(sum_floats<FL_MAP_NOT_ZERO>(x, mask, r));
    else if (r.p == 1) FL_TRY(sum_floats<FL_MAP_ABSOLUTE>(x, mask, r));
    else {
        r.finish = FL_FINISH_ROOT;
        FL_TRY(r.p == 2 ? sum_floats<FL_MAP_SQUARE>(x, mask, r) : sum_floats<FL_MAP_POWER>(x, mask, r));
    }
    return fl_cuda_check("norm");
}

static fl_status launch_logsumexp(fl_kernel *kernel)
{
    uint32_t mask = axes_of(kernel, FL_REDUCE_AXIS);
    FL_TRY(fl_cuda_by_float(kernel->in[0].dtype, [&](auto like) {
        fl_logsumexp_fold<element_of<decltype(like)>> fold;
        fold.results = results_of(&kernel->out[0], &kernel->in[0], mask, FL_FINISH_NONE);
        return fl_fold_axes<decltype(like)>(&kernel->in[0], mask, fold, false);
    }));
    return fl_cuda_check("logsumexp");
}

/* The sum of what this rank has of the diagonal. */
static fl_status launch_trace(fl_kernel *kernel)
{
    int64_t size, stride;
    fl_view diagonal = fl_view_diagonal(&kernel->in[0], &size, &stride);
    fl_attrs everything = {};
    fl_kernel sum = *kernel;
    sum.in = &diagonal;
    sum.attrs = &everything;
    return launch_sum(&sum);
}

FL_CUDA_OP(sum, launch_sum);
FL_CUDA_OP(nansum, launch_nansum);
FL_CUDA_OP(trace, launch_trace);
FL_CUDA_OP(mean, launch_mean);
FL_CUDA_OP(prod, launch_prod);
FL_CUDA_OP(any, launch_any);
FL_CUDA_OP(all, launch_all);
FL_CUDA_OP(amax, launch_amax);
FL_CUDA_OP(amin, launch_amin);
FL_CUDA_OP(max_all, launch_max_all);
FL_CUDA_OP(min_all, launch_min_all);
FL_CUDA_OP(var, launch_var);
FL_CUDA_OP(std, launch_std);
FL_CUDA_OP(norm, launch_norm);
FL_CUDA_OP(logsumexp, launch_logsumexp);
