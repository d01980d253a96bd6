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
typedef struct problem {
    fl_conv conv;
    int32_t device, dtype, pass, math, last; /* last: channels are the last axis in memory */
} problem;

typedef struct choice {
    problem key;
    bool used, found;
    fl_cudnn_tensor *x, *y;
    fl_cudnn_filter *weight;
    fl_cudnn_window *window;
    int algorithm;
    size_t workspace;
} choice;

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
static bool fits(const fl_conv *c)
{
    int64_t x_channels = c->groups * c->in, y_channels = c->groups * c->out,
            x = c->images * x_channels * fl_conv_x_plane(c), y = c->images * y_channels * fl_conv_y_plane(c),
            weight = y_channels * fl_conv_depth(c);
    if (x <= 0 || y <= 0 || weight <= 0 || x > INT32_MAX || y > INT32_MAX || weight > INT32_MAX) return false;
    for (int d = 0; d < FL_WINDOW_AXES; d++) {
        int64_t reach = c->x_size[d] + 2 * c->window.padding[d] + fl_window_geometry_span(&c->window, d);
        if (reach + c->window.stride[d] > INT32_MAX) return false;
        if (fl_window_geometry_count(&c->window, d, c->x_size[d], false) != c->y_size[d]) return false;
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
static int first_axis(const fl_conv *c)
{
    return c->x_size[0] == 1 && c->y_size[0] == 1 && c->window.size[0] == 1 && c->window.padding[0] == 0;
}

enum { AXES = 2 + FL_WINDOW_AXES };

/* [outer, inner, the axes of `size`...]; returns how many axes there are. */
static int sizes_of(int out[AXES], const fl_conv *c, int64_t outer, int64_t inner, const int64_t *size)
{
    int ndim = 0;
    out[ndim++] = (int)outer;
    out[ndim++] = (int)inner;
    for (int d = first_axis(c); d < FL_WINDOW_AXES; d++) out[ndim++] = (int)size[d];
    return ndim;
}

static int tensor_new(fl_cudnn_tensor **out, const problem *p, int64_t channels, const int64_t *plane)
{
    int size[AXES], stride[AXES], ndim = sizes_of(size, &p->conv, p->conv.images, channels, plane);
    int step = p->last ? size[1] : 1;
    for (int i = ndim - 1; i > 1; i--) {
        stride[i] = step;
        step *= size[i];
    }
    stride[1] = p->last ? 1 : step;
    stride[0] = p->last ? step : step * size[1];
    int code = dnn.CreateTensorDescriptor(out);
    return code ? code : dnn.SetTensorNdDescriptor(*out, type_of(p->dtype), ndim, size, stride);
}

static int filter_new(fl_cudnn_filter **out, const problem *p)
{
    const fl_conv *c = &p->conv;
    int size[AXES], ndim = sizes_of(size, c, c->groups * c->out, c->in, c->window.size);
    int code = dnn.CreateFilterDescriptor(out);
    int format = p->last ? FL_CUDNN_NHWC : FL_CUDNN_NCHW;
    return code ? code : dnn.SetFilterNdDescriptor(*out, type_of(p->dtype), format, ndim, size);
}

static int window_new(fl_cudnn_window **out, const problem *p)
{
    const fl_window_geometry *w = &p->conv.window;
    int first = first_axis(&p->conv), axes = FL_WINDOW_AXES - first, padding[FL_WINDOW_AXES], stride[FL_WINDOW_AXES],
        dilation[FL_WINDOW_AXES];
    for (int d = 0; d < axes; d++) {
        padding[d] = (int)w->padding[first + d];
        stride[d] = (int)w->stride[first + d];
        dilation[d] = (int)w->dilation[first + d];
    }
    int code = dnn.CreateConvolutionDescriptor(out);
    if (!code)
        code = dnn.SetConvolutionNdDescriptor(*out, axes, padding, stride, dilation, FL_CUDNN_CROSS_CORRELATION,
                                              p->dtype == FL_FLOAT64 ? FL_CUDNN_FLOAT64 : FL_CUDNN_FLOAT32);
    if (!code) code = dnn.SetConvolutionGroupCount(*out, (int)p->conv.groups);
    return code ? code : dnn.SetConvolutionMathType(*out, p->math);
}

static int describe(choice *c)
{
    const problem *p = &c->key;
    int code = tensor_new(&c->x, p, p->conv.groups * p->conv.in, p->conv.x_size);
    if (!code) code = tensor_new(&c->y, p, p->conv.groups * p->conv.out, p->conv.y_size);
    if (!code) code = filter_new(&c->weight, p);
    return code ? code : window_new(&c->window, p);
}

/* ---- choosing an algorithm ---- */

static int ask(fl_cudnn_perf *results, int *count, const choice *c, fl_cudnn_handle *handle)
{
    switch (c->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.GetConvolutionForwardAlgorithm_v7(handle, c->x, c->weight, c->window, c->y, RESULTS, count, results);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.GetConvolutionBackwardDataAlgorithm_v7(handle, c->weight, c->y, c->window, c->x, RESULTS, count,
                                                          results);
    default:
        return dnn.GetConvolutionBackwardFilterAlgorithm_v7(handle, c->x, c->y, c->window, c->weight, RESULTS, count,
                                                            results);
    }
}

static int workspace_of(size_t *bytes, const choice *c, fl_cudnn_handle *handle, int algorithm)
{
    switch (c->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.GetConvolutionForwardWorkspaceSize(handle, c->x, c->weight, c->window, c->y, algorithm, bytes);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.GetConvolutionBackwardDataWorkspaceSize(handle, c->weight, c->y, c->window, c->x, algorithm, bytes);
    default:
        return dnn.GetConvolutionBackwardFilterWorkspaceSize(handle, c->x, c->y, c->window, c->weight, algorithm,
                                                             bytes);
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
static int math_for(const problem *p, const fl_cudnn_perf *result)
{
    return p->math == FL_CUDNN_TENSOR_OP_MATH ? result->math : p->math;
}

static bool take(choice *c, fl_cudnn_handle *handle, const fl_cudnn_perf *result)
{
    if (result->status != FL_CUDNN_SUCCESS || result->determinism != FL_CUDNN_DETERMINISTIC) return false;
    if (!sums_products(c->key.pass, result->algorithm)) return false;
    if (dnn.SetConvolutionMathType(c->window, math_for(&c->key, result)) != FL_CUDNN_SUCCESS) return false;
    c->algorithm = result->algorithm;
    return workspace_of(&c->workspace, c, handle, result->algorithm) == FL_CUDNN_SUCCESS
        && c->workspace <= MOST_WORKSPACE;
}

/* False if the library refuses the problem, which is remembered too. */
static bool fill_choice(choice *c, fl_cudnn_handle *handle)
{
    fl_cudnn_perf results[RESULTS];
    int count = 0;
    if (describe(c) != FL_CUDNN_SUCCESS || ask(results, &count, c, handle) != FL_CUDNN_SUCCESS) return false;
    for (int i = 0; i < count && i < RESULTS; i++)
        if (take(c, handle, &results[i])) return true;
    return false;
}

static void forget(choice *c)
{
    if (c->x) dnn.DestroyTensorDescriptor(c->x);
    if (c->y) dnn.DestroyTensorDescriptor(c->y);
    if (c->weight) dnn.DestroyFilterDescriptor(c->weight);
    if (c->window) dnn.DestroyConvolutionDescriptor(c->window);
    memset(c, 0, sizeof *c);
}

static choice *find_choice(const problem *p, fl_cudnn_handle *handle)
{
    uint64_t hash = fl_hash_words(FL_HASH_START, p, sizeof *p);
    choice *c = &choices[(hash ^ hash >> 32) % CHOICES];
    if (c->used && memcmp(&c->key, p, sizeof *p) == 0) return c;
    forget(c);
    c->key = *p;
    c->used = true;
    c->found = fill_choice(c, handle);
    return c;
}

/* ---- running ---- */

static int issue(const choice *c, fl_cudnn_handle *handle, void *x, void *weight, void *y, void *workspace)
{
    bool wide = c->key.dtype == FL_FLOAT64;
    double one = 1, zero = 0;
    float one32 = 1, zero32 = 0;
    const void *alpha = wide ? (void *)&one : &one32, *beta = wide ? (void *)&zero : &zero32;
    switch (c->key.pass) {
    case FL_CUDNN_FORWARD:
        return dnn.ConvolutionForward(handle, alpha, c->x, x, c->weight, weight, c->window, c->algorithm, workspace,
                                      c->workspace, beta, c->y, y);
    case FL_CUDNN_INPUT_GRAD:
        return dnn.ConvolutionBackwardData(handle, alpha, c->weight, weight, c->y, y, c->window, c->algorithm,
                                           workspace, c->workspace, beta, c->x, x);
    default:
        return dnn.ConvolutionBackwardFilter(handle, alpha, c->x, x, c->y, y, c->window, c->algorithm, workspace,
                                             c->workspace, beta, c->weight, weight);
    }
}

/* A kernel may turn out to be missing only now. */
static bool refuses(int code)
{
    return code / FL_CUDNN_KINDS == FL_CUDNN_BAD_PARAM || code / FL_CUDNN_KINDS == FL_CUDNN_NOT_SUPPORTED;
}

static fl_status run_choice(bool *done, choice *c, fl_cudnn_handle *handle, void *x, void *weight, void *y)
{
    void *workspace = NULL;
    if (c->workspace) FL_TRY(fl_cuda_malloc(&workspace, c->workspace));
    int code = dnn.SetStream(handle, fl_cuda_stream());
    if (!code) code = issue(c, handle, x, weight, y, workspace);
    if (workspace) fl_cuda_free(workspace);
    *done = code == FL_CUDNN_SUCCESS;
    if (refuses(code)) c->found = false;
    return *done || refuses(code) ? FL_OK : fl_fail(FL_ERR_STATE, "convolution: cuDNN failed with status %d", code);
}

static fl_status convolve(bool *done, const problem *p, void *x, void *weight, void *y)
{
    fl_cudnn_handle *handle = handle_of(p->device);
    if (!handle) return FL_OK;
    choice *c = find_choice(p, handle);
    return c->found ? run_choice(done, c, handle, x, weight, y) : FL_OK;
}

/* ---- channels last ---- */

/* Tensor cores take eight channels at a time; with few of them the copies cost more than they save. */
static bool pays_last(const fl_conv *c, fl_dtype dtype)
{
    static const int64_t fewest = 32;
    return fl_dtype_size(dtype) == 2 && c->groups == 1 && first_axis(c) == 1 && c->in % 8 == 0 && c->out % 8 == 0
        && c->in >= fewest && c->out >= fewest;
}

/* An operand [outer, channels, plane], and as [outer, plane, channels]. */
typedef struct turned {
    int64_t outer, channels, plane;
    void *first, *last; /* last: owned, unless it is `first`, because both are the same */
} turned;

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

static fl_status turned_open(turned *t, fl_dtype dtype, bool reads)
{
    t->last = t->first;
    if (t->plane == 1) return FL_OK;
    t->last = NULL;
    FL_TRY(fl_cuda_malloc(&t->last, (size_t)(t->outer * t->channels * t->plane) * fl_dtype_size(dtype)));
    return reads ? transpose(t->last, t->first, dtype, t->outer, t->channels, t->plane) : FL_OK;
}

static fl_status turned_store(const turned *t, fl_dtype dtype)
{
    return t->last == t->first ? FL_OK : transpose(t->first, t->last, dtype, t->outer, t->plane, t->channels);
}

static void turned_close(turned *t)
{
    if (t->last && t->last != t->first) fl_cuda_free(t->last);
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

static fl_status convolve_either(bool *done, const problem *p, void *x, void *weight, void *y)
{
    if (pays_last(&p->conv, (fl_dtype)p->dtype)) FL_TRY(convolve_last(done, p, x, weight, y));
    return *done ? FL_OK : convolve(done, p, x, weight, y);
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
