/*
** compress.cu -- gradients in 2 bits per element: a thread makes or reads the word of 16 elements.
*/
#include "core/op/compress.h"
#include "arrays.h"
#include "index.h"

enum { THREADS = 256 };

/* Strides in elements. */
struct code_view {
    int32_t *data;
    int64_t rows, words, row_stride, stride;
};

static code_view codes_of(const fl_view *view)
{
    return {(int32_t *)view->data, view->size[0], view->size[1], view->stride[0], view->stride[1]};
}

/* Row `part` of the codes is that of `rows` split into as many parts (fl_split). */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    compress(T *x, const __grid_constant__ code_view codes, int64_t rows, int64_t each, T threshold)
{
    int64_t number = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (number >= codes.rows * codes.words) return;
    int64_t part = number / codes.words, at = number % codes.words, base = rows / codes.rows, extra = rows % codes.rows;
    int64_t first = base * part + (part < extra ? part : extra), n = (base + (part < extra)) * each;
    uint32_t word = 0;
    for (int i = 0; i < FL_2BIT_ELEMENTS && at * FL_2BIT_ELEMENTS + i < n; i++) {
        T *element = &x[first * each + at * FL_2BIT_ELEMENTS + i], value = *element;
        if (value != value) *element = 0;
        else if (value >= threshold) *element = value - threshold;
        else if (value <= -threshold) *element = value + threshold;
        uint32_t code = value != value ? FL_2BIT_NAN
            : value >= threshold       ? FL_2BIT_PLUS
            : value <= -threshold      ? FL_2BIT_MINUS
                                       : FL_2BIT_NONE;
        word |= code << 2 * i;
    }
    codes.data[part * codes.row_stride + at * codes.stride] = (int32_t)word;
}

template<typename T, typename W>
__global__ void __launch_bounds__(THREADS)
    expand(T *out, int64_t n, const __grid_constant__ code_view codes, W threshold)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at * FL_2BIT_ELEMENTS >= n) return;
    int32_t sum[FL_2BIT_ELEMENTS] = {0};
    uint32_t nans = 0;
    for (int64_t row = 0; row < codes.rows; row++) {
        uint32_t word = (uint32_t)codes.data[row * codes.row_stride + at * codes.stride];
        nans |= word & word >> 1;
        for (int i = 0; i < FL_2BIT_ELEMENTS; i++)
            sum[i] += (int32_t)(word >> 2 * i & 1) - (int32_t)(word >> (2 * i + 1) & 1);
    }
    for (int i = 0; i < FL_2BIT_ELEMENTS && at * FL_2BIT_ELEMENTS + i < n; i++) {
        W value = nans >> 2 * i & 1 ? (W)NAN : (W)sum[i] * threshold;
        out[at * FL_2BIT_ELEMENTS + i] = fl_store<T>(value);
    }
}

static fl_status launch_compress(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[FL_COMPRESS_RESIDUAL];
    code_view codes = codes_of(&kernel->in[FL_COMPRESS_CODES]);
    int64_t rows = x->ndim ? x->size[0] : 1, each = rows ? x->numel / rows : 0;
    double threshold = kernel->attrs->at[FL_COMPRESS_THRESHOLD].number;
    fl_cuda_array array;
    if (codes.rows * codes.words == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&array, x, x->dtype == FL_FLOAT64 ? FL_FLOAT64 : FL_FLOAT32));
    auto blocks = fl_blocks(codes.rows * codes.words, THREADS);
    if (x->dtype == FL_FLOAT64)
        FL_LAUNCH((compress<double>), blocks, THREADS, 0, (double *)array.view.data, codes, rows, each, threshold);
    else
        FL_LAUNCH((compress<float>), blocks, THREADS, 0, (float *)array.view.data, codes, rows, each, (float)threshold);
    fl_status status = fl_cuda_array_store(x, &array);
    fl_cuda_array_close(&array);
    FL_TRY(status);
    return fl_cuda_check(kernel->name);
}

static fl_status launch_expand(fl_kernel *kernel)
{
    const fl_view *out = &kernel->out[0];
    code_view codes = codes_of(&kernel->in[0]);
    double threshold = kernel->attrs->at[FL_EXPAND_THRESHOLD].number;
    if (out->numel == 0) return FL_OK;
    return fl_cuda_by_float(out->dtype, [&](auto like) {
        typedef decltype(like) T;
        typedef typename fl_wide<T>::type W;
        auto blocks = fl_blocks((out->numel + FL_2BIT_ELEMENTS - 1) / FL_2BIT_ELEMENTS, THREADS);
        FL_LAUNCH((expand<T, W>), blocks, THREADS, 0, (T *)out->data, out->numel, codes, (W)threshold);
        return fl_cuda_check(kernel->name);
    });
}

FL_CUDA_OP(compress_2bit_, launch_compress);
FL_CUDA_OP(expand_2bit, launch_expand);
