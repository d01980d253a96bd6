/*
** running.cu -- running products, extremes, log-sums of exponentials and linear recurrences along an axis.
**
** A thread goes through a line, and neighbouring threads through neighbouring lines. Floats are carried in double, as
** on the CPU.
*/
#include "core/op/running.h"
#include "arrays.h"
#include "index.h"

enum { THREADS = 256 };

/* Arrays [outer, n, inner]. */
struct running_shape {
    int64_t outer, n, inner;
    bool backwards;
};

template<typename T>
struct carried_in {
    typedef double type;
};
template<>
struct carried_in<int64_t> {
    typedef int64_t type;
};

__device__ static inline double log_of_sum(double a, double b)
{
    double high = a > b || a != a ? a : b, apart = fabs(a - b);
    return a == b && isinf(a) ? a : high + log1p(exp(-apart));
}
__device__ static inline int64_t log_of_sum(int64_t a, int64_t) { return a; }

template<int KIND, typename W>
__device__ static inline W step_of(W carried, W x, W factor, int64_t i, int64_t *position)
{
    if (KIND == FL_RUNNING_PRODUCT) return carried * x;
    if (KIND == FL_RUNNING_LINEAR) return x + factor * carried;
    if (KIND == FL_RUNNING_LOGSUMEXP) return log_of_sum(carried, x);
    bool taken = (KIND == FL_RUNNING_LARGEST ? x >= carried : x <= carried) | (x != x);
    *position = taken ? i : *position;
    return taken ? x : carried;
}

template<int KIND, typename T>
__global__ void __launch_bounds__(THREADS)
    running_lines(T *out, int64_t *positions, const T *in, const T *factor, const __grid_constant__ running_shape s)
{
    typedef typename carried_in<T>::type W;
    int64_t line = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (line >= s.outer * s.inner) return;
    int64_t first = line / s.inner * s.n * s.inner + line % s.inner, position = 0;
    W carried = 0;
    for (int64_t k = 0; k < s.n; k++) {
        int64_t i = s.backwards ? s.n - 1 - k : k, at = first + i * s.inner;
        W x = (W)fl_load(in[at]);
        W by = KIND == FL_RUNNING_LINEAR && k ? (W)fl_load(factor[s.backwards ? at + s.inner : at]) : (W)0;
        if (k == 0) carried = x, position = i;
        else carried = step_of<KIND, W>(carried, x, by, i, &position);
        out[at] = fl_store<T>(carried);
        if (KIND == FL_RUNNING_LARGEST || KIND == FL_RUNNING_SMALLEST) positions[at] = position;
    }
}

template<typename T>
static void launch_kind(int kind, T *out, int64_t *positions, const T *in, const T *factor, const running_shape &shape)
{
    unsigned blocks = fl_blocks(shape.outer * shape.inner, THREADS);
    switch (kind) {
    case FL_RUNNING_PRODUCT:
        FL_LAUNCH((running_lines<FL_RUNNING_PRODUCT, T>), blocks, THREADS, 0, out, positions, in, factor, shape);
        break;
    case FL_RUNNING_LARGEST:
        FL_LAUNCH((running_lines<FL_RUNNING_LARGEST, T>), blocks, THREADS, 0, out, positions, in, factor, shape);
        break;
    case FL_RUNNING_SMALLEST:
        FL_LAUNCH((running_lines<FL_RUNNING_SMALLEST, T>), blocks, THREADS, 0, out, positions, in, factor, shape);
        break;
    case FL_RUNNING_LOGSUMEXP:
        FL_LAUNCH((running_lines<FL_RUNNING_LOGSUMEXP, T>), blocks, THREADS, 0, out, positions, in, factor, shape);
        break;
    default: FL_LAUNCH((running_lines<FL_RUNNING_LINEAR, T>), blocks, THREADS, 0, out, positions, in, factor, shape);
    }
}

static running_shape shape_of(const fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[0];
    int axis = fl_cuda_axis(&kernel->attrs->at[FL_RUNNING_AXIS], x->ndim);
    running_shape s = {1, x->ndim ? x->size[axis] : 1, 1, false};
    for (int a = 0; a < axis; a++) s.outer *= x->size[a];
    for (int a = axis + 1; a < x->ndim; a++) s.inner *= x->size[a];
    if (kernel->attrs->count > FL_RUNNING_BACKWARDS) s.backwards = kernel->attrs->at[FL_RUNNING_BACKWARDS].integer != 0;
    return s;
}

static fl_status launch_arrays(fl_kernel *kernel, const fl_cuda_array *x, const fl_cuda_array *factor)
{
    running_shape s = shape_of(kernel);
    void *out = kernel->out[0].data;
    int64_t *positions = kernel->nout == 2 ? (int64_t *)kernel->out[1].data : NULL;
    const void *by = factor ? factor->view.data : NULL;
    if (kernel->in[0].dtype == FL_INT64)
        launch_kind<int64_t>(kernel->variant, (int64_t *)out, positions, (const int64_t *)x->view.data,
                             (const int64_t *)by, s);
    else
        return fl_cuda_by_float(kernel->in[0].dtype, [&](auto like) {
            typedef decltype(like) T;
            launch_kind<T>(kernel->variant, (T *)out, positions, (const T *)x->view.data, (const T *)by, s);
            return fl_cuda_check(kernel->name);
        });
    return fl_cuda_check(kernel->name);
}

static fl_status launch_running(fl_kernel *kernel)
{
    fl_cuda_array x, factor;
    fl_dtype dtype = kernel->in[0].dtype;
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&x, &kernel->in[0], dtype));
    fl_status status = FL_OK;
    if (kernel->nin == 2) {
        status = fl_cuda_array_open(&factor, &kernel->in[FL_LINEAR_FACTOR], dtype);
        if (status == FL_OK) {
            status = launch_arrays(kernel, &x, &factor);
            fl_cuda_array_close(&factor);
        }
    } else status = launch_arrays(kernel, &x, NULL);
    fl_cuda_array_close(&x);
    return status;
}

FL_CUDA_OP(cumprod_of, launch_running);
FL_CUDA_OP(cummax_of, launch_running);
FL_CUDA_OP(cummin_of, launch_running);
FL_CUDA_OP(logcumsumexp, launch_running);
FL_CUDA_OP(linear_recurrence, launch_running);
