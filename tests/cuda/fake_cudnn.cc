/*
** fake_cudnn.cc -- the part of cuDNN's interface that the plug-in uses, computed by plain loops in the order of the
** stream: for the emulation (FLOW_CUDNN). Its lists begin with algorithms that are not to be taken: they transform
** tiles, are reported as unsupported, depend on the schedule, or need too much memory; a call that takes one fails. It
** refuses what does not fit together, and, as cuDNN may, some problems: grouped images of three axes when it is asked
** for algorithms, dilated windows of float64 only when it is to run. Operands of TF32 products are rounded.
*/
#include "../emulator/emulate.h"

#include "cuda/kernels/cudnn_abi.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FL_FAKE_DECLARE(name, parameters) extern "C" __attribute__((visibility("default"))) int cudnn##name parameters;
FL_CUDNN_FUNCTIONS(FL_FAKE_DECLARE)

enum { AXES = 5, WORKSPACE = 64, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { WINOGRAD = 6, WINOGRAD_BACKWARD = 5, FOURIER_BACKWARD = 2 };
static const size_t TOO_MUCH = (256 << 20) + 1;

struct fl_cudnn_handle {
    cudaStream_t stream;
};

struct fl_cudnn_tensor {
    int type, ndim, size[AXES], stride[AXES];
};

struct fl_cudnn_filter {
    int type, format, ndim, size[AXES];
};

struct fl_cudnn_window {
    int axes, padding[AXES], stride[AXES], dilation[AXES], compute_type, groups, math;
};

namespace
{

double element(const void *data, int type, int64_t i)
{
    switch (type) {
    case FL_CUDNN_FLOAT16: return __half2float(((const __half *)data)[i]);
    case FL_CUDNN_BFLOAT16: return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case FL_CUDNN_FLOAT64: return ((const double *)data)[i];
    default: return ((const float *)data)[i];
    }
}

void store(void *data, int type, int64_t i, double value)
{
    switch (type) {
    case FL_CUDNN_FLOAT16: ((__half *)data)[i] = __float2half_rn((float)value); break;
    case FL_CUDNN_BFLOAT16: ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)value); break;
    case FL_CUDNN_FLOAT64: ((double *)data)[i] = value; break;
    default: ((float *)data)[i] = (float)value;
    }
}

/* An operand as TF32 has it: 10 bits of mantissa, to the nearest. */
double as_tf32(double value)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(mantissa, 11)), exponent - 11) : value;
}

/* A convolution: by value, because descriptors may be gone when the stream gets there. */
struct problem {
    fl_cudnn_tensor x, y;
    fl_cudnn_filter weight;
    fl_cudnn_window window;
    void *x_data, *weight_data, *y_data;
};

bool fits(const problem &p)
{
    const fl_cudnn_window &w = p.window;
    int ndim = w.axes + 2;
    if (p.x.ndim != ndim || p.y.ndim != ndim || p.weight.ndim != ndim) return false;
    if (p.x.type != p.y.type || p.x.type != p.weight.type) return false;
    if (w.compute_type != (p.x.type == FL_CUDNN_FLOAT64 ? FL_CUDNN_FLOAT64 : FL_CUDNN_FLOAT32)) return false;
    if (p.x.size[0] != p.y.size[0] || p.x.size[1] != w.groups * p.weight.size[1]) return false;
    if (p.y.size[1] != p.weight.size[0] || p.y.size[1] % w.groups) return false;
    bool last = p.weight.format == FL_CUDNN_NHWC;
    if (last && (p.x.stride[1] != 1 || p.y.stride[1] != 1)) return false;
    for (int d = 0; d < w.axes; d++) {
        int room = p.x.size[2 + d] + 2 * w.padding[d] - w.dilation[d] * (p.weight.size[2 + d] - 1) - 1;
        if (room < 0 || p.y.size[2 + d] != room / w.stride[d] + 1) return false;
    }
    return true;
}

bool is_grouped_volume(const problem &p) { return p.window.axes == 3 && p.window.groups > 1; }

bool is_dilated_double(const problem &p)
{
    bool dilated = false;
    for (int d = 0; d < p.window.axes; d++) dilated = dilated || p.window.dilation[d] > 1;
    return dilated && p.x.type == FL_CUDNN_FLOAT64;
}

/* f(element of x, of the weight, of y): for every product of a convolution. */
template<typename F>
void each_product(const problem &p, const F &f)
{
    const fl_cudnn_window &w = p.window;
    int out = p.y.size[1] / w.groups, in = p.weight.size[1], taps = 1, places = 1;
    for (int d = 0; d < w.axes; d++) {
        taps *= p.weight.size[2 + d];
        places *= p.y.size[2 + d];
    }
    for (int n = 0; n < p.x.size[0]; n++)
        for (int o = 0; o < p.y.size[1]; o++)
            for (int place = 0; place < places; place++)
                for (int c = 0; c < in; c++)
                    for (int tap = 0; tap < taps; tap++) {
                        int64_t x = (int64_t)n * p.x.stride[0] + (int64_t)(o / out * in + c) * p.x.stride[1],
                                y = (int64_t)n * p.y.stride[0] + (int64_t)o * p.y.stride[1];
                        bool inside = true;
                        for (int d = w.axes - 1, t = tap, left = place; d >= 0; d--) {
                            int at = left % p.y.size[2 + d],
                                seen = at * w.stride[d] - w.padding[d] + t % p.weight.size[2 + d] * w.dilation[d];
                            inside = inside && seen >= 0 && seen < p.x.size[2 + d];
                            x += (int64_t)seen * p.x.stride[2 + d];
                            y += (int64_t)at * p.y.stride[2 + d];
                            t /= p.weight.size[2 + d];
                            left /= p.y.size[2 + d];
                        }
                        int64_t weight = p.weight.format == FL_CUDNN_NHWC ? ((int64_t)o * taps + tap) * in + c
                                                                          : ((int64_t)o * in + c) * taps + tap;
                        if (inside) f(x, weight, y);
                    }
}

/* Sums of all products, by the element that `target` (0: x, 1: weight, 2: y) says. */
void compute(const problem &p, int target)
{
    void *const data[] = {p.x_data, p.weight_data, p.y_data};
    int64_t counts[] = {p.x.size[0] * (int64_t)p.x.stride[0], 1, p.y.size[0] * (int64_t)p.y.stride[0]};
    for (int d = 0; d < p.weight.ndim; d++) counts[1] *= p.weight.size[d];
    double *sums = new double[counts[target]]();
    int type = p.x.type, first = target == 0 ? 1 : 0, second = target == 2 ? 1 : 2;
    bool rounds = type == FL_CUDNN_FLOAT32 && p.window.math != FL_CUDNN_FMA_MATH;
    each_product(p, [&](int64_t x, int64_t weight, int64_t y) {
        int64_t at[] = {x, weight, y};
        double u = element(data[first], type, at[first]), v = element(data[second], type, at[second]);
        sums[at[target]] += rounds ? as_tf32(u) * as_tf32(v) : u * v;
    });
    for (int64_t i = 0; i < counts[target]; i++) store(data[target], type, i, sums[i]);
    delete[] sums;
}

problem problem_of(const fl_cudnn_tensor *x, const void *x_data, const fl_cudnn_filter *weight, const void *weight_data,
                   const fl_cudnn_window *window, const fl_cudnn_tensor *y, const void *y_data)
{
    return {*x, *y, *weight, *window, (void *)x_data, (void *)weight_data, (void *)y_data};
}

bool is_aligned(const void *data) { return data && (uintptr_t)data % 16 == 0; }

/* alpha is 1 and beta 0, in the type of the sums. */
bool scales_fit(const problem &p, const void *alpha, const void *beta)
{
    if (p.x.type == FL_CUDNN_FLOAT64) return *(const double *)alpha == 1 && *(const double *)beta == 0;
    return *(const float *)alpha == 1 && *(const float *)beta == 0;
}

int run(const fl_cudnn_handle *handle, const problem &p, int target, int algorithm, int right, const void *alpha,
        const void *beta, const void *workspace, size_t bytes)
{
    if (!fits(p) || !scales_fit(p, alpha, beta)) return BAD_PARAM;
    if (!is_aligned(p.x_data) || !is_aligned(p.weight_data) || !is_aligned(p.y_data)) return BAD_PARAM;
    if (is_dilated_double(p)) return NOT_SUPPORTED;
    if (algorithm != right || !workspace || bytes != WORKSPACE) return EXECUTION_FAILED;
    ((const fl_emulated_stream *)handle->stream)->issue(handle->stream, [=] { compute(p, target); });
    return FL_CUDNN_SUCCESS;
}

fl_cudnn_perf perf(int algorithm, int status, int determinism, int math)
{
    return {algorithm, status, 1, WORKSPACE, determinism, math, {0, 0, 0}};
}

/* Algorithms in the order of a list: one that transforms tiles, one that is unsupported, one that depends on the
** schedule, one that may need too much memory, the right one. */
struct algorithms {
    int transforms, unsupported, loose, large, right;
};

int list(fl_cudnn_perf *results, int *count, int room, const problem &p, const algorithms &a)
{
    *count = 0;
    if (!fits(p)) return BAD_PARAM;
    if (is_grouped_volume(p)) return NOT_SUPPORTED;
    const fl_cudnn_perf all[] = {
        perf(a.transforms, FL_CUDNN_SUCCESS, FL_CUDNN_DETERMINISTIC, p.window.math),
        perf(a.unsupported, NOT_SUPPORTED, FL_CUDNN_DETERMINISTIC, p.window.math),
        perf(a.loose, FL_CUDNN_SUCCESS, 0, p.window.math),
        perf(a.large, FL_CUDNN_SUCCESS, FL_CUDNN_DETERMINISTIC, p.window.math),
        perf(a.right, FL_CUDNN_SUCCESS, FL_CUDNN_DETERMINISTIC, FL_CUDNN_DEFAULT_MATH),
    };
    for (const fl_cudnn_perf &one : all)
        if (*count < room) results[(*count)++] = one;
    return FL_CUDNN_SUCCESS;
}

} // namespace

int cudnnCreate(fl_cudnn_handle **handle)
{
    *handle = new fl_cudnn_handle();
    return FL_CUDNN_SUCCESS;
}

int cudnnSetStream(fl_cudnn_handle *handle, cudaStream_t stream)
{
    handle->stream = stream;
    return FL_CUDNN_SUCCESS;
}

/* ---- descriptors ---- */

int cudnnCreateTensorDescriptor(fl_cudnn_tensor **tensor)
{
    *tensor = new fl_cudnn_tensor();
    return FL_CUDNN_SUCCESS;
}

int cudnnSetTensorNdDescriptor(fl_cudnn_tensor *tensor, int type, int ndim, const int *size, const int *stride)
{
    if (ndim < 4 || ndim > AXES) return BAD_PARAM;
    tensor->type = type;
    tensor->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (size[d] <= 0 || stride[d] <= 0) return BAD_PARAM;
        tensor->size[d] = size[d];
        tensor->stride[d] = stride[d];
    }
    return FL_CUDNN_SUCCESS;
}

int cudnnDestroyTensorDescriptor(fl_cudnn_tensor *tensor)
{
    delete tensor;
    return FL_CUDNN_SUCCESS;
}

int cudnnCreateFilterDescriptor(fl_cudnn_filter **filter)
{
    *filter = new fl_cudnn_filter();
    return FL_CUDNN_SUCCESS;
}

int cudnnSetFilterNdDescriptor(fl_cudnn_filter *filter, int type, int format, int ndim, const int *size)
{
    if (ndim < 4 || ndim > AXES || (format != FL_CUDNN_NCHW && format != FL_CUDNN_NHWC)) return BAD_PARAM;
    filter->type = type;
    filter->format = format;
    filter->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (size[d] <= 0) return BAD_PARAM;
        filter->size[d] = size[d];
    }
    return FL_CUDNN_SUCCESS;
}

int cudnnDestroyFilterDescriptor(fl_cudnn_filter *filter)
{
    delete filter;
    return FL_CUDNN_SUCCESS;
}

int cudnnCreateConvolutionDescriptor(fl_cudnn_window **window)
{
    *window = new fl_cudnn_window();
    (*window)->groups = 1;
    return FL_CUDNN_SUCCESS;
}

int cudnnSetConvolutionNdDescriptor(fl_cudnn_window *window, int axes, const int *padding, const int *stride,
                                    const int *dilation, int mode, int compute_type)
{
    if (axes < 2 || axes > 3 || mode != FL_CUDNN_CROSS_CORRELATION) return BAD_PARAM;
    window->axes = axes;
    window->compute_type = compute_type;
    for (int d = 0; d < axes; d++) {
        if (padding[d] < 0 || stride[d] < 1 || dilation[d] < 1) return BAD_PARAM;
        window->padding[d] = padding[d];
        window->stride[d] = stride[d];
        window->dilation[d] = dilation[d];
    }
    return FL_CUDNN_SUCCESS;
}

int cudnnSetConvolutionGroupCount(fl_cudnn_window *window, int groups)
{
    window->groups = groups;
    return groups < 1 ? (int)BAD_PARAM : (int)FL_CUDNN_SUCCESS;
}

int cudnnSetConvolutionMathType(fl_cudnn_window *window, int math)
{
    window->math = math;
    return FL_CUDNN_SUCCESS;
}

int cudnnDestroyConvolutionDescriptor(fl_cudnn_window *window)
{
    delete window;
    return FL_CUDNN_SUCCESS;
}

/* ---- forward ---- */

int cudnnGetConvolutionForwardAlgorithm_v7(fl_cudnn_handle *, fl_cudnn_tensor *x, fl_cudnn_filter *w,
                                           fl_cudnn_window *window, fl_cudnn_tensor *y, int room, int *count,
                                           fl_cudnn_perf *results)
{
    return list(results, count, room, problem_of(x, NULL, w, NULL, window, y, NULL),
                {WINOGRAD, FL_CUDNN_FORWARD_DIRECT, FL_CUDNN_FORWARD_GEMM, FL_CUDNN_FORWARD_IMPLICIT_PRECOMP_GEMM,
                 FL_CUDNN_FORWARD_IMPLICIT_GEMM});
}

int cudnnGetConvolutionForwardWorkspaceSize(fl_cudnn_handle *, fl_cudnn_tensor *, fl_cudnn_filter *, fl_cudnn_window *,
                                            fl_cudnn_tensor *, int algorithm, size_t *bytes)
{
    *bytes = algorithm == FL_CUDNN_FORWARD_IMPLICIT_PRECOMP_GEMM ? TOO_MUCH : (size_t)WORKSPACE;
    return FL_CUDNN_SUCCESS;
}

int cudnnConvolutionForward(fl_cudnn_handle *handle, const void *alpha, fl_cudnn_tensor *x, const void *x_data,
                            fl_cudnn_filter *w, const void *w_data, fl_cudnn_window *window, int algorithm,
                            void *workspace, size_t bytes, const void *beta, fl_cudnn_tensor *y, void *y_data)
{
    return run(handle, problem_of(x, x_data, w, w_data, window, y, y_data), 2, algorithm,
               FL_CUDNN_FORWARD_IMPLICIT_GEMM, alpha, beta, workspace, bytes);
}

/* ---- gradient of the input: algorithm 0 depends on the schedule ---- */

int cudnnGetConvolutionBackwardDataAlgorithm_v7(fl_cudnn_handle *, fl_cudnn_filter *w, fl_cudnn_tensor *y,
                                                fl_cudnn_window *window, fl_cudnn_tensor *x, int room, int *count,
                                                fl_cudnn_perf *results)
{
    return list(results, count, room, problem_of(x, NULL, w, NULL, window, y, NULL),
                {WINOGRAD_BACKWARD, FOURIER_BACKWARD, 0, FL_CUDNN_BACKWARD_DATA_1, FL_CUDNN_BACKWARD_DATA_1});
}

int cudnnGetConvolutionBackwardDataWorkspaceSize(fl_cudnn_handle *, fl_cudnn_filter *, fl_cudnn_tensor *,
                                                 fl_cudnn_window *, fl_cudnn_tensor *, int, size_t *bytes)
{
    *bytes = WORKSPACE;
    return FL_CUDNN_SUCCESS;
}

int cudnnConvolutionBackwardData(fl_cudnn_handle *handle, const void *alpha, fl_cudnn_filter *w, const void *w_data,
                                 fl_cudnn_tensor *y, const void *y_data, fl_cudnn_window *window, int algorithm,
                                 void *workspace, size_t bytes, const void *beta, fl_cudnn_tensor *x, void *x_data)
{
    return run(handle, problem_of(x, x_data, w, w_data, window, y, y_data), 0, algorithm, FL_CUDNN_BACKWARD_DATA_1,
               alpha, beta, workspace, bytes);
}

/* ---- gradient of the weight: algorithm 3 depends on the schedule ---- */

int cudnnGetConvolutionBackwardFilterAlgorithm_v7(fl_cudnn_handle *, fl_cudnn_tensor *x, fl_cudnn_tensor *y,
                                                  fl_cudnn_window *window, fl_cudnn_filter *w, int room, int *count,
                                                  fl_cudnn_perf *results)
{
    return list(results, count, room, problem_of(x, NULL, w, NULL, window, y, NULL),
                {WINOGRAD_BACKWARD, FOURIER_BACKWARD, 3, FL_CUDNN_BACKWARD_FILTER_1, FL_CUDNN_BACKWARD_FILTER_1});
}

int cudnnGetConvolutionBackwardFilterWorkspaceSize(fl_cudnn_handle *, fl_cudnn_tensor *, fl_cudnn_tensor *,
                                                   fl_cudnn_window *, fl_cudnn_filter *, int, size_t *bytes)
{
    *bytes = WORKSPACE;
    return FL_CUDNN_SUCCESS;
}

int cudnnConvolutionBackwardFilter(fl_cudnn_handle *handle, const void *alpha, fl_cudnn_tensor *x, const void *x_data,
                                   fl_cudnn_tensor *y, const void *y_data, fl_cudnn_window *window, int algorithm,
                                   void *workspace, size_t bytes, const void *beta, fl_cudnn_filter *w, void *w_data)
{
    return run(handle, problem_of(x, x_data, w, w_data, window, y, y_data), 1, algorithm, FL_CUDNN_BACKWARD_FILTER_1,
               alpha, beta, workspace, bytes);
}
