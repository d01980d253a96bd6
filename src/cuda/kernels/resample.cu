/*
** resample.cu -- lines resampled along an axis: taps and weights are computed where they are needed (op/resample.h).
**
** A thread makes one element of the result, or, of the adjoint, all elements of one line in order, so that nothing is
** added by two threads.
*/
#include "index.h"
#include "operand.h"

#define FL_RESAMPLE_DEVICE __device__ __host__ static inline
#include "core/op/resample.h"

enum { THREADS = 256 };

template<typename T>
__global__ void __launch_bounds__(THREADS)
    resample(T *y, const T *x, int64_t total, int64_t inner, const __grid_constant__ fl_resample r)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    int64_t o = i / inner % r.size;
    const T *line = x + i / inner / r.size * r.n * inner + i % inner;
    fl_resample_taps taps = fl_resample_taps_of(&r, o);
    wide sum = 0;
    for (int k = 0; k < taps.count; k++)
        sum += fl_load(line[fl_resample_position(&r, &taps, k) * inner]) * (wide)fl_resample_weight(&r, &taps, k);
    y[i] = fl_store<T>(sum);
}

/* sums [lines * n], zero before; x NULL where the sums are the result. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    resample_back(typename fl_wide<T>::type *sums, T *x, const T *y, int64_t lines, int64_t inner,
                  const __grid_constant__ fl_resample r)
{
    typedef typename fl_wide<T>::type wide;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= lines) return;
    const T *from = y + i / inner * r.size * inner + i % inner;
    int64_t at = i / inner * r.n * inner + i % inner;
    for (int64_t o = 0; o < r.size; o++) {
        fl_resample_taps taps = fl_resample_taps_of(&r, o);
        for (int k = 0; k < taps.count; k++)
            sums[at + fl_resample_position(&r, &taps, k) * inner] += fl_load(from[o * inner])
                * (wide)fl_resample_weight(&r, &taps, k);
    }
    for (int64_t j = 0; x && j < r.n; j++) x[at + j * inner] = fl_store<T>(sums[at + j * inner]);
}

static fl_resample resample_of(const fl_kernel *kernel, const fl_view *x, const fl_view *y, int axis)
{
    fl_resample r = {};
    r.rule = (int)kernel->attrs->at[FL_RESAMPLE_RULE].integer;
    r.n = x->size[axis];
    r.size = y->size[axis];
    r.before = kernel->attrs->at[FL_RESAMPLE_BEFORE].integer;
    r.scale = kernel->attrs->at[FL_RESAMPLE_SCALE].number;
    return r;
}

static int axis_of(const fl_kernel *kernel)
{
    int64_t axis = kernel->attrs->at[FL_RESAMPLE_AXIS].integer;
    return (int)(axis < 0 ? axis + kernel->in[0].ndim : axis);
}

static int64_t inner_of(const fl_view *view, int axis)
{
    int64_t inner = 1;
    for (int i = axis + 1; i < view->ndim; i++) inner *= view->size[i];
    return inner;
}

static fl_status close_operands(fl_cuda_operand *in, fl_cuda_operand *out, const fl_kernel *kernel, fl_status status)
{
    if (status == FL_OK) status = fl_cuda_operand_store(out, &kernel->out[0], kernel->out[0].dtype);
    fl_cuda_operand_close(out);
    fl_cuda_operand_close(in);
    return status == FL_OK ? fl_cuda_check(kernel->name) : status;
}

static fl_status launch_resample(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0], *y = &kernel->out[0];
    fl_cuda_operand in = {}, out = {};
    if (y->numel == 0) return FL_OK;
    int axis = axis_of(kernel);
    fl_resample r = resample_of(kernel, x, y, axis);
    fl_status status = fl_cuda_operand_in(&in, x, y->dtype, false);
    if (status == FL_OK) status = fl_cuda_operand_out(&out, y, y->dtype);
    if (status == FL_OK)
        fl_cuda_by_float(y->dtype, [&](auto like) {
            typedef decltype(like) T;
            FL_LAUNCH((resample<T>), dim3(fl_blocks(y->numel, THREADS)), dim3(THREADS), 0, (T *)out.data,
                      (const T *)in.data, y->numel, inner_of(x, axis), r);
            return FL_OK;
        });
    return close_operands(&in, &out, kernel, status);
}

static fl_status launch_back(fl_kernel *kernel)
{
    const fl_view *y = &kernel->in[0], *x = &kernel->out[0];
    fl_cuda_operand in = {}, out = {}, sums = {};
    int64_t zero = 0, strides[FL_MAX_NDIM];
    if (x->numel == 0) return FL_OK;
    int axis = axis_of(kernel);
    fl_resample r = resample_of(kernel, x, y, axis);
    fl_dtype wide = fl_dtype_compute(x->dtype);
    fl_status status = fl_cuda_operand_in(&in, y, x->dtype, false);
    if (status == FL_OK) status = fl_cuda_operand_out(&out, x, x->dtype);
    if (status == FL_OK && wide != x->dtype)
        status = fl_cuda_malloc(&sums.temporary, (size_t)x->numel * fl_dtype_size(wide));
    char *room = sums.temporary ? (char *)sums.temporary : out.data;
    fl_view all = fl_view_array(x, room, wide, strides);
    if (status == FL_OK) status = fl_cuda_fill_view(&all, &zero);
    if (status == FL_OK)
        fl_cuda_by_float(x->dtype, [&](auto like) {
            typedef decltype(like) T;
            typedef typename fl_wide<T>::type W;
            int64_t lines = x->numel / r.n;
            FL_LAUNCH((resample_back<T>), dim3(fl_blocks(lines, THREADS)), dim3(THREADS), 0, (W *)room,
                      sums.temporary ? (T *)out.data : (T *)NULL, (const T *)in.data, lines, inner_of(x, axis), r);
            return FL_OK;
        });
    fl_cuda_operand_close(&sums);
    return close_operands(&in, &out, kernel, status);
}

FL_CUDA_OP(resample, launch_resample);
FL_CUDA_OP(resample_back, launch_back);
