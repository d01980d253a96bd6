/*
** pick.cu -- where the largest and smallest elements are; taking one element of each line, and putting it back.
*/
#include "core/op/reduce.h"
#include "folds.cuh"

/* ---- positions of extremes ---- */

/* arg_find: positions count only where the extreme is this value, and are those of the whole tensor. */
struct find {
    const char *value; /* NULL: not needed */
    int dtype, value_ndim, ndim;
    int64_t size, value_sizes[FL_MAX_NDIM], value_strides[FL_MAX_NDIM];
    uint32_t mask;
    int64_t sizes[FL_MAX_NDIM], start[FL_MAX_NDIM], logical[FL_MAX_NDIM];
};

/* Offset of element number i, row-major. */
__device__ static int64_t offset_of(const find &find, int64_t i)
{
    int64_t offset = 0;
#pragma unroll 1
    for (int a = find.value_ndim - 1; a >= 0; a--) {
        offset += i % find.value_sizes[a] * find.value_strides[a];
        i /= find.value_sizes[a];
    }
    return offset;
}

/* A position among the reduced axes of this part, as one of the whole tensor. */
__device__ static int64_t whole_position(const find &find, int64_t local)
{
    int64_t position = 0, extent = 1;
#pragma unroll 1
    for (int a = find.ndim - 1; a >= 0; a--) {
        if (!(find.mask >> a & 1u)) continue;
        position += (local % find.sizes[a] + find.start[a]) * extent;
        local /= find.sizes[a];
        extent *= find.logical[a];
    }
    return position;
}

/* The best element and the lowest position that has it; INT64_MAX: none yet. NaN is better than all. */
template<typename X_>
struct pick_fold {
    typedef X_ X;
    struct Total {
        int64_t at;
        X value;
    };
    enum { VECTORS = 1 };
    fl_results values;  /* out NULL: not needed */
    int64_t *positions; /* NULL: not needed */
    bool smallest;
    find where;

    /* No element is worse, and none comes later. */
    __device__ Total none() const
    {
        Total t = {};
        t.at = INT64_MAX;
        if constexpr (std::is_floating_point<X>::value) t.value = (X)-INFINITY;
        else t.value = (X)((uint64_t)1 << (8 * sizeof(X) - 1));
        return t;
    }
    __device__ static bool is_better(X x, X than) { return !(x <= than) & (than == than); }
    __device__ static bool wins(X x, int64_t at, const Total &total)
    {
        bool same = (x == total.value) | ((x != x) & (total.value != total.value));
        return is_better(x, total.value) | (same & (at < total.at));
    }
    __device__ Total join(const Total &a, const Total &b) const { return wins(b.value, b.at, a) ? b : a; }
    /* Within a pack positions rise, so the first of equal elements is found in 32 bits. */
    template<int N, int W, int P>
    __device__ void absorb(Total &total, const X (&x)[N], const fl_place<P> &place) const
    {
#pragma unroll
        for (int k = 0; k < N / W; k++) {
            X top = smallest ? fl_turned(x[k * W]) : x[k * W];
            int first = 0;
#pragma unroll
            for (int j = 1; j < W; j++) {
                X v = smallest ? fl_turned(x[k * W + j]) : x[k * W + j];
                bool better = is_better(v, top);
                top = better ? v : top;
                first = better ? j : first;
            }
            int64_t at = place.at[k] + first * place.step;
            bool won = wins(top, at, total);
            total.value = won ? top : total.value;
            total.at = won ? at : total.at;
        }
    }
    __device__ void finish(const Total &total, int64_t result, int64_t) const
    {
        typedef typename fl_total_of<X>::type wide;
        X value = smallest ? fl_turned(total.value) : total.value;
        if (values.out) fl_result_store(values, result, (wide)value);
        if (!positions) return;
        if (where.value == NULL) positions[result] = total.at;
        else positions[result] = found(value, total.at, result) ? whole_position(where, total.at) : INT64_MAX;
    }
    __device__ bool found(X value, int64_t at, int64_t result) const
    {
        if (at == INT64_MAX) return false;
        typedef typename fl_total_of<X>::type wide;
        wide wanted = fl_load_any<wide>(where.value + offset_of(where, result) * where.size, where.dtype),
             got = (wide)value;
        return got == wanted || (got != got && wanted != wanted);
    }
};

static uint32_t line_mask(const fl_kernel *kernel)
{
    const fl_attr *a = &kernel->attrs->at[FL_REDUCE_AXIS];
    int ndim = kernel->in[0].ndim;
    if (!a->given) return (1u << ndim) - 1;
    return ndim > 0 ? 1u << (a->integer < 0 ? a->integer + ndim : a->integer) : 0;
}

static fl_status pick(fl_kernel *kernel, bool smallest, const fl_view *values, const fl_view *positions,
                      const find &where)
{
    fl_results r = {};
    if (values) r.out = (char *)values->data, r.dtype = values->dtype, r.size = (int64_t)fl_dtype_size(values->dtype);
    FL_TRY(fl_cuda_by_dtype(kernel->in[0].dtype, [&](auto like) {
        pick_fold<typename fl_element<decltype(like)>::type> fold = {r, positions ? (int64_t *)positions->data : NULL,
                                                                     smallest, where};
        return fl_fold_axes<decltype(like)>(&kernel->in[0], line_mask(kernel), fold, true);
    }));
    return fl_cuda_check(kernel->name);
}

static fl_status launch_position(fl_kernel *kernel, bool smallest)
{
    return pick(kernel, smallest, kernel->nout == 2 ? &kernel->out[0] : NULL, &kernel->out[kernel->nout - 1], find());
}
static fl_status launch_largest(fl_kernel *kernel) { return launch_position(kernel, false); }
static fl_status launch_smallest(fl_kernel *kernel) { return launch_position(kernel, true); }

static fl_status launch_arg_find(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0], *value = &kernel->in[1];
    find f = {
        (const char *)value->data, value->dtype, value->ndim, x->ndim, (int64_t)fl_dtype_size(value->dtype), {}, {},
        line_mask(kernel),         {},           {},          {}};
    if (kernel->out[0].numel == 0) return FL_OK;
    for (int i = 0; i < value->ndim; i++) f.value_sizes[i] = value->size[i], f.value_strides[i] = value->stride[i];
    for (int i = 0; i < x->ndim; i++) f.sizes[i] = x->size[i], f.start[i] = x->start[i], f.logical[i] = x->logical[i];
    return pick(kernel, !kernel->attrs->at[FL_ARG_FIND_LARGEST].integer, NULL, &kernel->out[0], f);
}

FL_CUDA_OP(argmax, launch_largest);
FL_CUDA_OP(max_axis, launch_largest);
FL_CUDA_OP(argmin, launch_smallest);
FL_CUDA_OP(min_axis, launch_smallest);
FL_CUDA_OP(arg_find, launch_arg_find);

/* ---- one element of each line ---- */

/* Lines along one axis of x [outer.., n, inner..]; strides of an operand on the axes that stay. */
struct lines {
    int count; /* axes that stay, outermost first */
    int64_t size[FL_MAX_NDIM], x[FL_MAX_NDIM], index[FL_MAX_NDIM], one[FL_MAX_NDIM];
    int64_t total, n, inner,
        along;   /* lines, elements of one, product of the sizes after the axis, x's stride along it */
    bool narrow; /* elements are counted in 32 bits, and these divide */
    fl_division by_size[FL_MAX_NDIM], by_n, by_inner;
};

/* keepdim or not: index and one have the axis with size 1, or do not have it. */
static void lines_init(lines *lines, const fl_view *x, const fl_view *index, const fl_view *one, const fl_attr *axis)
{
    int at = (int)(axis->integer < 0 ? axis->integer + x->ndim : axis->integer);
    bool keepdim = index->ndim == x->ndim;
    memset(lines, 0, sizeof *lines);
    lines->total = lines->inner = 1;
    lines->n = x->ndim ? x->size[at] : 1;
    lines->along = x->ndim ? x->stride[at] : 0;
    for (int a = 0; a < x->ndim; a++) {
        if (a == at) continue;
        int b = keepdim || a < at ? a : a - 1;
        lines->size[lines->count] = x->size[a];
        lines->x[lines->count] = x->stride[a];
        lines->index[lines->count] = index->stride[b];
        lines->one[lines->count++] = one->stride[b];
        lines->total *= x->size[a];
        if (a > at) lines->inner *= x->size[a];
    }
    lines->narrow = lines->total * lines->n >> 31 == 0 && lines->total * lines->n > 0;
    if (!lines->narrow) return;
    lines->by_n = fl_division_of(lines->n);
    lines->by_inner = fl_division_of(lines->inner);
    for (int a = 0; a < lines->count; a++) lines->by_size[a] = fl_division_of(lines->size[a]);
}

__device__ static inline int64_t line_divide(const lines &lines, int64_t i, int64_t size, const fl_division &by_size)
{
    return lines.narrow ? (int64_t)fl_divide((uint32_t)i, by_size) : i / size;
}

__device__ static inline void line_locate(const lines &lines, int64_t i, int64_t *x, int64_t *index, int64_t *one)
{
    *x = *index = *one = 0;
    for (int a = lines.count - 1; a >= 0; a--) {
        int64_t above = a > 0 ? line_divide(lines, i, lines.size[a], lines.by_size[a]) : 0,
                at = i - above * lines.size[a];
        *x += at * lines.x[a];
        *index += at * lines.index[a];
        *one += at * lines.one[a];
        i = above;
    }
}

enum { THREADS = 256 };

/* out: as many as there are lines, row-major. W: a word of the elements' size. Positions come from max and min; others,
** which only a test can make, give 0 and stay away from memory of others. */
template<typename W>
__global__ void __launch_bounds__(THREADS)
    gather_lines(W *out, const W *x, const int64_t *index, const __grid_constant__ lines l)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, in_x, in_index, in_one;
    if (i >= l.total) return;
    line_locate(l, i, &in_x, &in_index, &in_one);
    int64_t at = index[in_index];
    out[in_one] = (uint64_t)at < (uint64_t)l.n ? x[in_x + at * l.along] : (W)0;
}

/* Every element of out, row-major: the line's value where it belongs, else 0. */
template<typename W>
__global__ void __launch_bounds__(THREADS)
    scatter_lines(W *out, const W *one, const int64_t *index, const __grid_constant__ lines l)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, in_x, in_index, in_one;
    if (i >= l.total * l.n) return;
    int64_t row = line_divide(l, i, l.inner, l.by_inner), outer = line_divide(l, row, l.n, l.by_n),
            at = row - outer * l.n;
    line_locate(l, outer * l.inner + i - row * l.inner, &in_x, &in_index, &in_one);
    out[i] = index[in_index] == at ? one[in_one] : (W)0;
}

template<typename F>
static void by_width(fl_dtype dtype, F &&f)
{
    switch (fl_dtype_size(dtype)) {
    case 1: return f((uint8_t)0);
    case 2: return f((uint16_t)0);
    case 4: return f((uint32_t)0);
    default: return f((uint64_t)0);
    }
}

static fl_status launch_axis_gather(fl_kernel *kernel)
{
    lines l;
    lines_init(&l, &kernel->in[0], &kernel->in[FL_PICK_INDEX], &kernel->out[0], &kernel->attrs->at[FL_PICK_AXIS]);
    if (l.total == 0) return FL_OK;
    by_width(kernel->out[0].dtype, [&](auto like) {
        typedef decltype(like) W;
        FL_LAUNCH((gather_lines<W>), dim3(fl_blocks(l.total, THREADS)), dim3(THREADS), 0, (W *)kernel->out[0].data,
                  (const W *)kernel->in[0].data, (const int64_t *)kernel->in[FL_PICK_INDEX].data, l);
    });
    return fl_cuda_check("axis_gather");
}

static fl_status launch_axis_scatter(fl_kernel *kernel)
{
    lines l;
    lines_init(&l, &kernel->out[0], &kernel->in[FL_PICK_INDEX], &kernel->in[0], &kernel->attrs->at[FL_PICK_AXIS]);
    if (kernel->out[0].numel == 0) return FL_OK;
    by_width(kernel->out[0].dtype, [&](auto like) {
        typedef decltype(like) W;
        FL_LAUNCH((scatter_lines<W>), dim3(fl_blocks(kernel->out[0].numel, THREADS)), dim3(THREADS), 0,
                  (W *)kernel->out[0].data, (const W *)kernel->in[0].data,
                  (const int64_t *)kernel->in[FL_PICK_INDEX].data, l);
    });
    return fl_cuda_check("axis_scatter");
}

FL_CUDA_OP(axis_gather, launch_axis_gather);
FL_CUDA_OP(axis_scatter, launch_axis_scatter);
