/*
** cudnn.cu -- convolutions by cuDNN 9, which is opened when the first one is made.
**
** The library ranks its algorithms for a problem once, without running any; the first one that is good enough is kept
** with the descriptors. Good enough: its results do not depend on the schedule, it needs a bounded workspace, and it
** sums products. Winograd's and Fourier's ways are left out: they spread a NaN over a tile of the image, and round
** transformed values of 16 bits once more. 16-bit floats are summed in float32; float32 is rounded to TF32 only where
** products may be (precision.h).
**
** Tensor cores read 16-bit floats with the channels last. If there are enough channels, operands are permuted to that
** layout by our own copies, which are faster than the library's.
**
** Left to the own path (conv.cu): padding that differs on both sides, tensors of 2^31 elements, problems that the
** library refuses.
**
** FLOW_CUDNN: the library to open instead of libcudnn.so.9.
*/
#include "cudnn.h"
#include "cudnn_abi.h"
#include "copies.h"
#include "cuda/runtime/runtime.h"

extern "C" {
#include "core/base/hash.h"
#include "core/engine/precision.h"
}

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

static struct {
#define FL_CUDNN_FIELD(name, parameters) int(*name) parameters;
    FL_CUDNN_FUNCTIONS(FL_CUDNN_FIELD)
    bool tried, found;
    fl_cudnn_handle *handles[FL_CUDA_DEVICES];
} dnn;

static bool load_functions(void *library)
{
#define FL_CUDNN_LOAD(name, parameters) \
    if (!(dnn.name = (decltype(dnn.name))dlsym(library, "cudnn" #name))) return false;
    FL_CUDNN_FUNCTIONS(FL_CUDNN_LOAD)
    return true;
}

static void *open_library(void)
{
    static const int major = 9;
    void *library = fl_cuda_library("FLOW_CUDNN", "cudnn", &major, 1);
#ifndef FL_EMULATED
    if (!library && !getenv("FLOW_CUDNN"))
        fprintf(stderr,
                "flowlua: libcudnn.so.9 was not found: convolutions are slow; install cuDNN or set LD_LIBRARY_PATH\n");
#endif
    return library;
}

static bool is_open(void)
{
    if (dnn.tried) return dnn.found;
    dnn.tried = true;
    void *library = open_library();
    dnn.found = library && load_functions(library);
    return dnn.found;
}

/* The device's handle. A library that cannot make one (parts of it are missing, the driver is too old) is none. */
static fl_cudnn_handle *handle_of(int device)
{
    if (dnn.handles[device]) return dnn.handles[device];
    int code = dnn.Create(&dnn.handles[device]);
    if (code == FL_CUDNN_SUCCESS) return dnn.handles[device];
    dnn.handles[device] = NULL;
    dnn.found = false;
    fprintf(stderr, "flowlua: cuDNN failed to start with status %d: convolutions are slow\n", code);
    return NULL;
}

/* ---- problems ---- */

/* The key of a choice. Compared as bytes: zeroed before it is filled. */
struct problem {
    fl_conv conv;
    int32_t device, dtype, pass, math, last; /* last: channels are the last axis in memory */
};

struct choice {
    problem key;
    bool used, found;
    fl_cudnn_tensor *x, *y;
    fl_cudnn_filter *weight;
    fl_cudnn_window *window;
    int algorithm;
    size_t workspace;
};

enum { CHOICES = 512, RESULTS = 16 };
static const size_t MOST_WORKSPACE = 256 << 20;
static choice choices[CHOICES]; /* by hash; convolutions are issued by one thread */

/* GPUs before compute 8.0 have no TF32, and no bfloat16. */
static int math_of(fl_dtype dtype)
{
    bool rounds = fl_precision_get() != FL_PRECISION_HIGHEST && fl_cuda_current()->capability >= 80;
    if (dtype == FL_FLOAT32) return rounds ? FL_CUDNN_DEFAULT_MATH : FL_CUDNN_FMA_MATH;
    return dtype == FL_FLOAT64 ? FL_CUDNN_DEFAULT_MATH : FL_CUDNN_TENSOR_OP_MATH;
}

static problem problem_of(fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.conv = *conv;
    p.device = fl_cuda_current()->index;
    p.dtype = dtype;
    p.pass = pass;
    p.math = math_of(dtype);
    return p;
}

/* The library counts in 32 bits, and pads both sides of an axis alike. */
static bool fits(const fl_conv *conv)
{
    int64_t x_channels = conv->groups * conv->in, y_channels = conv->groups * conv->out,
            x = conv->images * x_channels * fl_conv_x_plane(conv),
            y = conv->images * y_channels * fl_conv_y_plane(conv), weight = y_channels * fl_conv_depth(conv);
    if (x <= 0 || y <= 0 || weight <= 0 || x > INT32_MAX || y > INT32_MAX || weight > INT32_MAX) return false;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        int64_t reach = conv->x_size[d] + 2 * conv->window.padding[d] + fl_window_geometry_span(&conv->window, d);
        if (reach + conv->window.stride[d] > INT32_MAX) return false;
        if (fl_window_geometry_count(&conv->window, d, conv->x_size[d], false) != conv->y_size[d]) return false;
    }
    return true;
}

/* ---- descriptors ---- */

static int type_of(int dtype)
{
    switch (dtype) {
    case FL_FLOAT16: return FL_CUDNN_FLOAT16;
    case FL_BFLOAT16: return FL_CUDNN_BFLOAT16;
    case FL_FLOAT64: return FL_CUDNN_FLOAT64;
    default: return FL_CUDNN_FLOAT32;
    }
}

/* Axes before the first that counts: the library takes images of two or three axes. */
static int first_axis(const fl_conv *conv)
{
    return conv->x_size[0] == 1 && conv->y_size[0] == 1 && conv->window.size[0] == 1 && conv->window.padding[0] == 0;
}

enum { AXES = 2 + FL_WINDOW_AXES };

/* [outer, inner, the axes of `size`...]; returns how many axes there are. */
static int sizes_of(int out[AXES], const fl_conv *conv, int64_t outer, int64_t inner, const int64_t *size)
{
    int ndim = 0;
    out[ndim++] = (int)outer;
    out[ndim++] = (int)inner;
    for (int d = first_axis(conv); d < FL_WINDOW_AXES; d++) out[ndim++] = (int)size[d];
    return ndim;
}

static int tensor_new(fl_cudnn_tensor **out, const problem *problem, int64_t channels, const int64_t *plane)
{
    int size[AXES], stride[AXES], ndim = sizes_of(size, &problem->conv, problem->conv.images, channels, plane);
    int step = problem->last ? size[1] : 1;
    for (int i = ndim - 1; i > 1; i--) {
        stride[i] = step;
        step *= size[i];
    }
    stride[1] = problem->last ? 1 : step;
    stride[0] = problem->last ? step : step * size[1];
    int code = dnn.CreateTensorDescriptor(out);
    return code ? code : dnn.SetTensorNdDescriptor(*out, type_of(problem->dtype), ndim, size, stride);
}

static int filter_new(fl_cudnn_filter **out, const problem *problem)
{
    const fl_conv *c = &problem->conv;
    int size[AXES], ndim = sizes_of(size, c, c->groups * c->out, c->in, c->window.size);
    int code = dnn.CreateFilterDescriptor(out);
    int format = problem->last ? FL_CUDNN_NHWC : FL_CUDNN_NCHW;
    return code ? code : dnn.SetFilterNdDescriptor(*out, type_of(problem->dtype), format, ndim, size);
}

static int window_new(fl_cudnn_window **out, const problem *problem)
{
    const fl_window_geometry *w = &problem->conv.window;
    int first = first_axis(&problem->conv), axes = FL_WINDOW_AXES - first, padding[FL_WINDOW_AXES],
        stride[FL_WINDOW_AXES], dilation[FL_WINDOW_AXES];
    for (int d = 0; d < axes; d++) {
        padding[d] = (int)w->padding[first + d];
        stride[d] = (int)w->stride[first + d];
        dilation[d] = (int)w->dilation[first + d];
    }
    int code = dnn.CreateConvolutionDescriptor(out);
    if (!code)
        code = dnn.SetConvolutionNdDescriptor(*out, axes, padding, stride, dilation, FL_CUDNN_CROSS_CORRELATION,
                                              problem->dtype == FL_FLOAT64 ? FL_CUDNN_FLOAT64 : FL_CUDNN_FLOAT32);
    if (!code) code = dnn.SetConvolutionGroupCount(*out, (int)problem->conv.groups);
    return code ? code : dnn.SetConvolutionMathType(*out, problem->math);
}

static int describe(choice *choice)
{
    const problem *p = &choice->key;
    int code = tensor_new(&choice->x, p, p->conv.groups * p->conv.in, p->conv.x_size);
    if (!code) code = tensor_new(&choice->y, p, p->conv.groups * p->conv.out, p->conv.y_size);
    if (!code) code = filter_new(&choice->weight, p);
    return code ? code : window_new(&choice->window, p);
}

/* ---- choosing an algorithm ---- */

static int ask(fl_cudnn_perf *results, int *count, const choice *choice, fl_cudnn_handle *handle)
{
    switch (choice->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.GetConvolutionForwardAlgorithm_v7(handle, choice->x, choice->weight, choice->window, choice->y,
                                                     RESULTS, count, results);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.GetConvolutionBackwardDataAlgorithm_v7(handle, choice->weight, choice->y, choice->window, choice->x,
                                                          RESULTS, count, results);
    default:
        return dnn.GetConvolutionBackwardFilterAlgorithm_v7(handle, choice->x, choice->y, choice->window,
                                                            choice->weight, RESULTS, count, results);
    }
}

static int workspace_of(size_t *bytes, const choice *choice, fl_cudnn_handle *handle, int algorithm)
{
    switch (choice->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.GetConvolutionForwardWorkspaceSize(handle, choice->x, choice->weight, choice->window, choice->y,
                                                      algorithm, bytes);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.GetConvolutionBackwardDataWorkspaceSize(handle, choice->weight, choice->y, choice->window, choice->x,
                                                           algorithm, bytes);
    default:
        return dnn.GetConvolutionBackwardFilterWorkspaceSize(handle, choice->x, choice->y, choice->window,
                                                             choice->weight, algorithm, bytes);
    }
}

static bool sums_products(int pass, int algorithm)
{
    switch (pass) {
    case FL_CUDNN_FORWARD: return algorithm >= FL_CUDNN_FORWARD_IMPLICIT_GEMM && algorithm <= FL_CUDNN_FORWARD_DIRECT;
    case FL_CUDNN_INPUT_GRAD: return algorithm == FL_CUDNN_BACKWARD_DATA_1;
    default: return algorithm == FL_CUDNN_BACKWARD_FILTER_1;
    }
}

/* The math type: that of the algorithm for operands of 16 bits, that of the problem for others. */
static int math_for(const problem *problem, const fl_cudnn_perf *result)
{
    return problem->math == FL_CUDNN_TENSOR_OP_MATH ? result->math : problem->math;
}

static bool take(choice *choice, fl_cudnn_handle *handle, const fl_cudnn_perf *result)
{
    if (result->status != FL_CUDNN_SUCCESS || result->determinism != FL_CUDNN_DETERMINISTIC) return false;
    if (!sums_products(choice->key.pass, result->algorithm)) return false;
    if (dnn.SetConvolutionMathType(choice->window, math_for(&choice->key, result)) != FL_CUDNN_SUCCESS) return false;
    choice->algorithm = result->algorithm;
    return workspace_of(&choice->workspace, choice, handle, result->algorithm) == FL_CUDNN_SUCCESS
        && choice->workspace <= MOST_WORKSPACE;
}

/* False if the library refuses the problem, which is remembered too. */
static bool fill_choice(choice *choice, fl_cudnn_handle *handle)
{
    fl_cudnn_perf results[RESULTS];
    int count = 0;
    if (describe(choice) != FL_CUDNN_SUCCESS || ask(results, &count, choice, handle) != FL_CUDNN_SUCCESS) return false;
    for (int i = 0; i < count && i < RESULTS; i++)
        if (take(choice, handle, &results[i])) return true;
    return false;
}

static void forget(choice *choice)
{
    if (choice->x) dnn.DestroyTensorDescriptor(choice->x);
    if (choice->y) dnn.DestroyTensorDescriptor(choice->y);
    if (choice->weight) dnn.DestroyFilterDescriptor(choice->weight);
    if (choice->window) dnn.DestroyConvolutionDescriptor(choice->window);
    memset(choice, 0, sizeof *choice);
}

static choice *find_choice(const problem *problem, fl_cudnn_handle *handle)
{
    uint64_t hash = fl_hash_words(FL_HASH_START, problem, sizeof *problem);
    choice *c = &choices[(hash ^ hash >> 32) % CHOICES];
    if (c->used && memcmp(&c->key, problem, sizeof *problem) == 0) return c;
    forget(c);
    c->key = *problem;
    c->used = true;
    c->found = fill_choice(c, handle);
    return c;
}

/* ---- running ---- */

static int issue(const choice *choice, fl_cudnn_handle *handle, void *x, void *weight, void *y, void *workspace)
{
    bool wide = choice->key.dtype == FL_FLOAT64;
    double one = 1, zero = 0;
    float one32 = 1, zero32 = 0;
    const void *alpha = wide ? (void *)&one : &one32, *beta = wide ? (void *)&zero : &zero32;
    switch (choice->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.ConvolutionForward(handle, alpha, choice->x, x, choice->weight, weight, choice->window,
                                      choice->algorithm, workspace, choice->workspace, beta, choice->y, y);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.ConvolutionBackwardData(handle, alpha, choice->weight, weight, choice->y, y, choice->window,
                                           choice->algorithm, workspace, choice->workspace, beta, choice->x, x);
    default:
        return dnn.ConvolutionBackwardFilter(handle, alpha, choice->x, x, choice->y, y, choice->window,
                                             choice->algorithm, workspace, choice->workspace, beta, choice->weight,
                                             weight);
    }
}

/* A kernel may turn out to be missing only now. */
static bool refuses(int code)
{
    return code / FL_CUDNN_KINDS == FL_CUDNN_BAD_PARAM || code / FL_CUDNN_KINDS == FL_CUDNN_NOT_SUPPORTED;
}

static fl_status run_choice(bool *done, choice *choice, fl_cudnn_handle *handle, void *x, void *weight, void *y)
{
    void *workspace = NULL;
    if (choice->workspace) FL_TRY(fl_cuda_malloc(&workspace, choice->workspace));
    int code = dnn.SetStream(handle, fl_cuda_stream());
    if (!code) code = issue(choice, handle, x, weight, y, workspace);
    if (workspace) fl_cuda_free(workspace);
    *done = code == FL_CUDNN_SUCCESS;
    if (refuses(code)) choice->found = false;
    return *done || refuses(code) ? FL_OK : fl_fail(FL_ERR_STATE, "convolution: cuDNN failed with status %d", code);
}

static fl_status convolve(bool *done, const problem *problem, void *x, void *weight, void *y)
{
    fl_cudnn_handle *handle = handle_of(problem->device);
    if (!handle) return FL_OK;
    choice *c = find_choice(problem, handle);
    return c->found ? run_choice(done, c, handle, x, weight, y) : FL_OK;
}

/* ---- channels last ---- */

/* Tensor cores take eight channels at a time; with few of them the copies cost more than they save. */
static bool pays_last(const fl_conv *conv, fl_dtype dtype)
{
    static const int64_t fewest = 32;
    return fl_dtype_size(dtype) == 2 && conv->groups == 1 && first_axis(conv) == 1 && conv->in % 8 == 0
        && conv->out % 8 == 0 && conv->in >= fewest && conv->out >= fewest;
}

/* An operand [outer, channels, plane], and as [outer, plane, channels]. */
struct turned {
    int64_t outer, channels, plane;
    void *first, *last; /* last: owned, unless it is `first`, because both are the same */
};

/* Matrices [rows, cols] become [cols, rows]. */
static fl_status transpose(void *to, void *from, fl_dtype dtype, int64_t outer, int64_t rows, int64_t cols)
{
    int64_t size[] = {outer, cols, rows}, from_stride[] = {rows * cols, 1, cols}, to_stride[3];
    fl_shape_strides(to_stride, size, 3);
    fl_view in = {}, out;
    in.data = from;
    in.dtype = dtype;
    in.ndim = 3;
    in.size = size;
    in.stride = from_stride;
    in.numel = outer * rows * cols;
    out = in;
    out.data = to;
    out.stride = to_stride;
    out.contiguous = true;
    return fl_cuda_copy_view(&out, &in);
}

static fl_status turned_open(turned *turned, fl_dtype dtype, bool reads)
{
    turned->last = turned->first;
    if (turned->plane == 1) return FL_OK;
    turned->last = NULL;
    FL_TRY(fl_cuda_malloc(&turned->last,
                          (size_t)(turned->outer * turned->channels * turned->plane) * fl_dtype_size(dtype)));
    return reads ? transpose(turned->last, turned->first, dtype, turned->outer, turned->channels, turned->plane)
                 : FL_OK;
}

static fl_status turned_store(const turned *turned, fl_dtype dtype)
{
    return turned->last == turned->first
        ? FL_OK
        : transpose(turned->first, turned->last, dtype, turned->outer, turned->plane, turned->channels);
}

static void turned_close(turned *turned)
{
    if (turned->last && turned->last != turned->first) fl_cuda_free(turned->last);
}

static fl_status convolve_last(bool *done, const problem *like, void *x, void *weight, void *y)
{
    const fl_conv *conv = &like->conv;
    fl_dtype dtype = (fl_dtype)like->dtype;
    fl_cudnn_handle *handle = handle_of(like->device);
    if (!handle) return FL_OK;
    problem p = *like;
    p.last = 1;
    choice *c = find_choice(&p, handle);
    if (!c->found) return FL_OK;
    turned t[] = {{conv->images, conv->in, fl_conv_x_plane(conv), x, NULL},
                  {conv->out, conv->in, fl_conv_taps(conv), weight, NULL},
                  {conv->images, conv->out, fl_conv_y_plane(conv), y, NULL}};
    int result = like->pass == FL_CUDNN_FORWARD ? 2 : like->pass == FL_CUDNN_INPUT_GRAD ? 0 : 1;
    fl_status status = FL_OK;
    for (int i = 0; i < 3 && status == FL_OK; i++) status = turned_open(&t[i], dtype, i != result);
    if (status == FL_OK) status = run_choice(done, c, handle, t[0].last, t[1].last, t[2].last);
    if (status == FL_OK && *done) status = turned_store(&t[result], dtype);
    for (int i = 0; i < 3; i++) turned_close(&t[i]);
    return status;
}

static fl_status convolve_either(bool *done, const problem *problem, void *x, void *weight, void *y)
{
    if (pays_last(&problem->conv, (fl_dtype)problem->dtype)) FL_TRY(convolve_last(done, problem, x, weight, y));
    return *done ? FL_OK : convolve(done, problem, x, weight, y);
}

/* While a graph is recorded the library may do for itself what a captured stream forbids: load kernels, take memory. */
fl_status fl_cudnn_conv(bool *done, fl_cudnn_pass pass, const fl_conv *conv, fl_dtype dtype, void *x, void *weight,
                        void *y)
{
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    *done = false;
    if (!fits(conv) || !is_open()) return FL_OK;
    problem p = problem_of(pass, conv, dtype);
    if (!fl_cuda_is_recording()) return convolve_either(done, &p, x, weight, y);
    FL_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode));
    fl_status status = convolve_either(done, &p, x, weight, y);
    cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
}
