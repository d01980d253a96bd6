/*
** rows.cuh -- kernels over rows: how operands are brought into that form, how threads are given rows, and maps.
**
** A row that fits is held in registers by a group of threads (some lanes, a warp, or a block) and read once. Longer rows,
** and those along an axis that is not the last, are reduced first (reduce.cuh) and then mapped with what that gave.
*/
#ifndef FL_ROWS_CUH
#define FL_ROWS_CUH

#include "copies.h"
#include "folds.cuh"

/* ---- operands ---- */

/* Rows `stride` elements apart, each without gaps. */
typedef struct fl_rows_of {
    const void *data;           /* NULL: absent operand */
    int64_t stride;
    void *owned;                /* a copy, or NULL */
} fl_rows_of;

/* The axes from `leading` on are a row: do they lie without gaps, and the rows at equal distances? */
static inline bool fl_rows_fit(int64_t *stride, const fl_view *v, int leading)
{
    int64_t run = 1, apart = 0, rows = 1;
    for (int i = v->ndim - 1; i >= leading; i--) {
        if (v->size[i] != 1 && v->stride[i] != run) return false;
        run *= v->size[i];
    }
    for (int i = leading - 1; i >= 0; i--) {
        if (v->size[i] == 1) continue;
        if (rows == 1) apart = v->stride[i];
        else if (v->stride[i] != apart * rows) return false;
        rows *= v->size[i];
    }
    *stride = apart;
    return true;
}

/* The operand as rows of `dtype`, copied if it is not that already. */
static inline fl_status fl_rows_open(fl_rows_of *r, const fl_view *v, int leading, fl_dtype dtype)
{
    memset(r, 0, sizeof *r);
    r->data = v->data;
    if (!v->data || v->numel == 0 || (v->dtype == dtype && fl_rows_fit(&r->stride, v, leading))) return FL_OK;
    int64_t strides[FL_MAX_NDIM], run = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        strides[i] = run;
        run *= v->size[i];
        if (i >= leading) r->stride = run;
    }
    if (leading == v->ndim) r->stride = 1;
    FL_TRY(fl_cuda_malloc(&r->owned, (size_t)v->numel * fl_dtype_size(dtype)));
    fl_view array = *v;
    array.data = r->owned;
    array.dtype = dtype;
    array.stride = strides;
    array.contiguous = true;
    r->data = r->owned;
    return fl_cuda_copy_view(&array, v);
}

static inline void fl_rows_close(fl_rows_of *r)
{
    if (r->owned) fl_cuda_free(r->owned);
}

/* An array as rows along one axis: element c of row (o, i) is at (o * n + c) * inner + i. */
typedef struct fl_row_shape { int64_t outer, n, inner; } fl_row_shape;

static inline fl_row_shape fl_row_shape_of(const fl_view *v, int axis)
{
    fl_row_shape s = {1, v->ndim ? v->size[axis] : 1, 1};
    for (int i = 0; i < axis; i++) s.outer *= v->size[i];
    for (int i = axis + 1; i < v->ndim; i++) s.inner *= v->size[i];
    return s;
}

/* The operand as rows along an axis. `apart`: rows along the last axis (inner 1) may lie apart; else there are no gaps at all. */
static inline fl_status fl_rows_open_along(fl_rows_of *r, const fl_view *v, int axis, const fl_row_shape *shape, bool apart, fl_dtype dtype)
{
    if (apart && shape->inner == 1) return fl_rows_open(r, v, v->ndim ? axis : 0, dtype);
    FL_TRY(fl_rows_open(r, v, 0, dtype));
    r->stride = shape->n;
    return FL_OK;
}

/* ---- rows in registers ---- */

/* A row is given to `group` threads, each of which has `packs` vectors of it. */
typedef struct fl_row_plan {
    int group, packs, threads;  /* threads of a block; packs 0: the row does not fit */
} fl_row_plan;

enum { FL_ROW_THREADS = 256, FL_ROW_MOST_THREADS = 1024, FL_ROW_MANY = 2048 };

/* Vectors of which the elements, converted, have that many bytes. */
template <typename T, int BYTES> struct fl_row_most { enum { PACKS = BYTES / (int)(fl_vector<T>::WIDTH * sizeof(typename fl_wide<T>::type)) }; };

/* width: elements of a vector; most: vectors that a thread can hold. */
static inline fl_row_plan fl_row_plan_of(int64_t rows, int64_t n, int width, int most, bool aligned)
{
    int64_t units = aligned && n % width == 0 ? n / width : (n + 2 * width - 2) / width;
    fl_row_plan p = {1, 1, FL_ROW_THREADS};
    if (units <= 32 * most && (units <= 64 || rows >= FL_ROW_MANY)) {
        p.group = fl_power_above(units, 32);
        while (p.packs * 32 < units) p.packs *= 2;
        if (p.packs <= most) return p;
        p.packs = 1;
    }
    while (p.packs < most && units > (int64_t)p.packs * FL_ROW_THREADS) p.packs *= 2;
    int64_t threads = (units + p.packs - 1) / p.packs;
    p.threads = p.group = (int)(threads <= 64 ? 64 : (threads + 31) / 32 * 32);
    if (threads > FL_ROW_MOST_THREADS) p.packs = 0;
    return p;
}

static inline dim3 fl_row_grid(int64_t rows, const fl_row_plan &p)
{
    return dim3(fl_blocks(rows, p.group <= 32 ? p.threads / p.group : 1));
}

/* Calls f with the number of packs as a type: 1, 2, 4 ... MOST. */
template <int MOST, int N = 1, typename F> static inline void fl_by_packs(int packs, F &&f)
{
    if (packs == N) return f(std::integral_constant<int, N>());
    if constexpr (N < MOST) fl_by_packs<MOST, N * 2>(packs, f);
}

/* ---- maps ---- */

/* What fl_map_rows is given: op.begin(row) is the state of a row, op.at(state, a, b, c) its element c from those of the
** operands; OP::INPUTS tells how many of a and b there are. */
template <typename T> struct fl_map_operands {
    T *out;                     /* contiguous */
    const T *a, *b;
    int64_t a_stride, b_stride; /* between rows; inner 1 only */
    fl_row_shape shape;
};

enum { FL_MAP_PACKS = 4, FL_MAP_THREADS = 256 };

/* Rows without gaps: a group of threads has FL_MAP_PACKS vectors each of a row. */
template <typename T, typename OP> __global__ void __launch_bounds__(FL_MAP_THREADS) fl_map_last(fl_map_operands<T> m, OP op, int group, int64_t pieces)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    typedef typename fl_wide<T>::type W;
    int64_t number = fl_group_number(group), row = pieces == 1 ? number : number / pieces, piece = number - row * pieces, n = m.shape.n;
    if (row >= m.shape.outer) return;
    T *out = m.out + row * n;
    int shift = fl_row_shift(out);
    auto state = op.begin(row);
#pragma unroll
    for (int k = 0; k < FL_MAP_PACKS; k++) {
        int64_t e = ((piece * FL_MAP_PACKS + k) * group + fl_group_lane(group)) * WIDTH - shift;
        W a[WIDTH] = {}, b[WIDTH] = {};
        if (e >= n) break;
        if (OP::INPUTS > 0) fl_row_load(a, m.a + row * m.a_stride, e, n, (W)0);
        if (OP::INPUTS > 1) fl_row_load(b, m.b + row * m.b_stride, e, n, (W)0);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) a[j] = op.at(state, a[j], b[j], e + j);
        fl_row_store(out, a, e, n);
    }
}

/* Rows whose elements lie `inner` apart: a thread per element. */
template <typename T, typename OP> __global__ void __launch_bounds__(FL_MAP_THREADS) fl_map_across(fl_map_operands<T> m, OP op, fl_division inner, fl_division n)
{
    typedef typename fl_wide<T>::type W;
    int64_t i = (int64_t)blockIdx.x * FL_MAP_THREADS + threadIdx.x, total = m.shape.outer * m.shape.n * m.shape.inner, line, outer;
    if (i >= total) return;
    if (total >> 31) line = i / m.shape.inner, outer = line / m.shape.n;
    else line = fl_divide((uint32_t)i, inner), outer = fl_divide((uint32_t)line, n);
    auto state = op.begin(outer * m.shape.inner + i - line * m.shape.inner);
    W a = OP::INPUTS > 0 ? (W)fl_load(m.a[i]) : (W)0, b = OP::INPUTS > 1 ? (W)fl_load(m.b[i]) : (W)0;
    m.out[i] = fl_store<T>(op.at(state, a, b, line - outer * m.shape.n));
}

template <typename T, typename OP> static inline void fl_map_rows(const fl_map_operands<T> &m, const OP &op)
{
    enum { WIDTH = fl_vector<T>::WIDTH };
    const fl_row_shape &s = m.shape;
    int64_t total = s.outer * s.n * s.inner;
    if (total == 0) return;
    if (s.inner > 1) {
        fl_division inner = fl_division_of(total >> 31 ? 1 : s.inner), n = fl_division_of(total >> 31 ? 1 : s.n);
        FL_LAUNCH((fl_map_across<T, OP>), dim3(fl_blocks(total, FL_MAP_THREADS)), dim3(FL_MAP_THREADS), 0, m, op, inner, n);
        return;
    }
    int64_t units = (s.n + 2 * WIDTH - 2) / WIDTH;
    int group = units > 32 * FL_MAP_PACKS ? FL_MAP_THREADS : fl_power_above((units + FL_MAP_PACKS - 1) / FL_MAP_PACKS, 32);
    int64_t pieces = (units + FL_MAP_PACKS * group - 1) / (FL_MAP_PACKS * group);
    unsigned blocks = fl_blocks(s.outer * pieces, FL_MAP_THREADS / group);
    FL_LAUNCH((fl_map_last<T, OP>), dim3(blocks), dim3(FL_MAP_THREADS), 0, m, op, group, pieces);
}

/* A contiguous array that was brought into rows, as the reductions want it: [outer, n, inner]. */
static inline fl_view fl_rows_view(const fl_rows_of *r, const fl_row_shape *s, fl_dtype dtype, int64_t *sizes, int64_t *strides)
{
    fl_view v = {};
    sizes[0] = s->outer, sizes[1] = s->n, sizes[2] = s->inner;
    strides[0] = s->inner == 1 ? r->stride : s->n * s->inner, strides[1] = s->inner, strides[2] = 1;
    v.data = (void *)r->data;
    v.dtype = dtype;
    v.ndim = 3;
    v.size = v.logical = sizes;
    v.stride = strides;
    v.numel = s->outer * s->n * s->inner;
    return v;
}

/* Folds every row; results are numbered as rows are. */
template <typename T, typename F> static inline fl_status fl_reduce_each_row(const fl_rows_of *r, const fl_row_shape *s, const F &fold, bool positions)
{
    int64_t sizes[3], strides[3];
    fl_view v = fl_rows_view(r, s, FL_FLOAT32, sizes, strides); /* T says what it is */
    return fl_fold_axes<T>(&v, 2, fold, positions);
}

#endif
