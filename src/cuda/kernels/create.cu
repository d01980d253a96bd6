/*
** create.cu -- what counts: arange, linspace, eye, and the triangles of matrices.
**
** Numbers come from the position in the logical tensor, by the CPU's correctly rounded operations.
*/
#include "core/op/create.h"
#include "arrays.h"
#include "cuda/parts/convert.h"
#include "copies.h"
#include "permute.h"

enum { THREADS = 256, EACH = 4 };

static fl_status launch_empty(fl_kernel *) { return FL_OK; }

FL_CUDA_OP(empty, launch_empty);
FL_CUDA_OP(empty_like, launch_empty);

/* ---- arange, linspace ---- */

/* Elements THREADS apart, EACH per thread: out[i] is what number i of the logical tensor is. */
template<typename T, typename F>
__device__ static void count_into(T *out, int64_t n, int64_t start, const F &f)
{
    int64_t first = (int64_t)blockIdx.x * (THREADS * EACH) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * THREADS;
        if (i < n) out[i] = fl_convert<T>(f(start + i));
    }
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    arange_integers(T *out, int64_t n, int64_t start, int64_t first, int64_t step)
{
    count_into(out, n, start, [=](int64_t i) { return (int64_t)((uint64_t)first + (uint64_t)i * (uint64_t)step); });
}

template<typename T>
__global__ void __launch_bounds__(THREADS) arange_floats(T *out, int64_t n, int64_t start, double first, double step)
{
    count_into(out, n, start, [=](int64_t i) { return __dadd_rn(first, __dmul_rn((double)i, step)); });
}

/* From both ends, so that the last element is exactly `last`. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    linspace(T *out, int64_t n, int64_t start, double first, double last, double step, int64_t steps)
{
    count_into(out, n, start, [=](int64_t i) {
        if (i < (steps + 1) / 2) return __dadd_rn(first, __dmul_rn(step, (double)i));
        return __dsub_rn(last, __dmul_rn(step, (double)(steps - 1 - i)));
    });
}

static fl_status launch_arange(fl_kernel *kernel)
{
    static const fl_attr zero = {true, FL_NUM_INT, 1, {0}};
    const fl_view *out = &kernel->out[0];
    const fl_attr *start = &kernel->attrs->at[FL_ARANGE_START], *stop = &kernel->attrs->at[FL_ARANGE_STOP],
                  *step = &kernel->attrs->at[FL_ARANGE_STEP];
    if (!stop->given) {
        stop = start;
        start = &zero;
    }
    bool floats = start->kind == FL_NUM_FLOAT || stop->kind == FL_NUM_FLOAT || step->kind == FL_NUM_FLOAT;
    if (out->numel == 0) return FL_OK;
    unsigned blocks = fl_blocks(out->numel, THREADS, EACH);
    fl_cuda_by_storage(out->dtype, [&](auto like) {
        typedef decltype(like) T;
        if (floats)
            FL_LAUNCH((arange_floats<T>), blocks, THREADS, 0, (T *)out->data, out->numel, out->start[0],
                      fl_attr_number(start), fl_attr_number(step));
        else
            FL_LAUNCH((arange_integers<T>), blocks, THREADS, 0, (T *)out->data, out->numel, out->start[0],
                      start->integer, step->integer);
        return FL_OK;
    });
    return fl_cuda_check(kernel->name);
}

static fl_status launch_linspace(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    double start = fl_attr_number(&kernel->attrs->at[FL_LINSPACE_START]),
           stop = fl_attr_number(&kernel->attrs->at[FL_LINSPACE_STOP]);
    int64_t steps = out->numel ? out->logical[0] : 0;
    double step = steps > 1 ? (stop - start) / (double)(steps - 1) : 0;
    if (steps == 0) return FL_OK;
    fl_cuda_by_storage(out->dtype, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((linspace<T>), fl_blocks(out->numel, THREADS, EACH), THREADS, 0, (T *)out->data, out->numel,
                  out->start[0], start, stop, step, steps);
        return FL_OK;
    });
    return fl_cuda_check(kernel->name);
}

FL_CUDA_OP(arange, launch_arange);
FL_CUDA_OP(linspace, launch_linspace);

/* ---- eye ---- */

static fl_status launch_eye(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    const int64_t zero[2] = {0};
    int64_t one[2] = {0};
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_fill_view(out, zero));
    int64_t size, stride;
    fl_view diagonal = fl_view_diagonal(out, &size, &stride);
    if (size == 0) return FL_OK;
    fl_cuda_by_storage(out->dtype, [&](auto like) {
        like = fl_convert<decltype(like)>((int64_t)1);
        memcpy(one, &like, sizeof like);
        return FL_OK;
    });
    return fl_cuda_fill_view(&diagonal, one);
}

FL_CUDA_OP(eye, launch_eye);

/* ---- triangles ---- */

typedef fl_walk<3, FL_LAYOUT_AXES> triangle_walk;

/* The columns that stay, by their distance from the row: up to `bound` (lower), or from it on. */
struct triangle {
    int64_t bound, step; /* step: of the distance, from one element of a pack to the next */
    bool lower;
};

/* Operands: out, in, distance (column - row). N elements of T at once. */
template<typename T, int N>
__global__ void __launch_bounds__(THREADS) keep_triangle(char *out, const char *in, int64_t base, triangle t,
                                                         uint32_t total, const __grid_constant__ triangle_walk walk)
{
    uint32_t index[1] = {blockIdx.x * THREADS + threadIdx.x};
    int64_t offset[1][3];
    if (index[0] >= total) return;
    fl_walk_locate(offset, walk, index);
    fl_pack<T, N> x = *(const fl_pack<T, N> *)(in + offset[0][1]);
    int64_t distance = base + offset[0][2];
#pragma unroll
    for (int j = 0; j < N; j++, distance += t.step)
        if (t.lower ? distance > t.bound : distance < t.bound) x.at[j] = T();
    *(fl_pack<T, N> *)(out + offset[0][0]) = x;
}

/* True if the last axis can be moved 16 bytes at a time; it then counts packs. */
static bool pack_last(fl_layout *layout, const void *out, const void *in, int64_t width)
{
    if (layout->count == 0) return false;
    fl_axis *last = &layout->axes[layout->count - 1];
    int64_t bits = (int64_t)((uintptr_t)out | (uintptr_t)in) | last->size * width, each = 16 / width;
    for (int i = 0; i < layout->count - 1; i++) bits |= layout->axes[i].stride[0] | layout->axes[i].stride[1];
    if (last->stride[0] != width || last->stride[1] != width || bits % 16 != 0) return false;
    last->size /= each;
    for (int o = 0; o < 3; o++) last->stride[o] *= each;
    return true;
}

template<typename T, int N>
static void launch_triangle(const fl_layout *layout, const fl_view *out, const fl_view *in, const triangle &triangle)
{
    const int64_t zero[FL_LAYOUT_OPERANDS] = {0};
    fl_each_piece(layout, zero, [&](const fl_layout *piece, const int64_t *offset) {
        triangle_walk walk;
        uint32_t total = (uint32_t)fl_layout_numel(piece);
        fl_walk_init(&walk, piece);
        FL_LAUNCH((keep_triangle<T, N>), fl_blocks(total, THREADS), THREADS, 0, (char *)out->data + offset[0],
                  (const char *)in->data + offset[1], offset[2], triangle, total, walk);
    });
}

static fl_status launch_half(fl_kernel *kernel, bool lower)
{
    const fl_view *in = &kernel->in[0], *out = &kernel->out[0];
    int row = out->ndim - 2, column = out->ndim - 1;
    int64_t width = (int64_t)fl_dtype_size(out->dtype);
    fl_layout l;
    if (out->numel == 0) return FL_OK;
    l.count = out->ndim;
    l.operands = 3;
    for (int a = 0; a < out->ndim; a++)
        l.axes[a] = {out->size[a],
                     {out->stride[a] * width, in->stride[a] * width,
                      a == column    ? 1
                          : a == row ? -1
                                     : 0,
                      0}};
    fl_layout_simplify(&l);
    triangle t = {out->start[row] - out->start[column] + kernel->attrs->at[FL_TRIANGLE_DIAGONAL].integer,
                  l.count ? l.axes[l.count - 1].stride[2] : 0, lower};
    bool packed = pack_last(&l, out->data, in->data, width);
    fl_cuda_by_unit((int)width, [&](auto like) {
        typedef decltype(like) T;
        if (packed) launch_triangle<T, 16 / sizeof(T)>(&l, out, in, t);
        else launch_triangle<T, 1>(&l, out, in, t);
    });
    return fl_cuda_check(kernel->name);
}

static fl_status launch_tril(fl_kernel *kernel) { return launch_half(kernel, true); }
static fl_status launch_triu(fl_kernel *kernel) { return launch_half(kernel, false); }

FL_CUDA_OP(tril, launch_tril);
FL_CUDA_OP(triu, launch_triu);
