/*
** search.cu -- positions of values in sorted lines: a thread searches one value.
*/
#include "core/op/search.h"
#include "arrays.h"
#include "index.h"

enum { THREADS = 256 };

template<typename T>
static __device__ int64_t place_before_nan(const T *line, int64_t count, T value, bool right)
{
    int64_t low = 0;
    while (count > 0) {
        int64_t half = count / 2;
        bool after = right ? !(line[low + half] > value) : !(line[low + half] >= value);
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
    }
    return low;
}

/* Halves the line as cpu/search.inc does, so that a line which is not sorted gives the same place. */
template<typename T>
static __device__ int64_t place(const T *line, int64_t n, T value, bool right)
{
    const T *from = line;
    if (n && line[n - 1] != line[n - 1]) return place_before_nan(line, n, value, right);
    if (n == 0 || value != value) return n;
    for (int64_t count = n, half; count > 1; count -= half) {
        half = count / 2;
        if (right ? from[half - 1] <= value : from[half - 1] < value) from += half;
    }
    return from - line + (right ? *from <= value : *from < value);
}

template<typename T>
__global__ void __launch_bounds__(THREADS)
    search(int64_t *out, const T *sorted, const T *values, int64_t count, int64_t n, int64_t per_line, bool right)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = place(sorted + (per_line ? i / per_line * n : 0), n, values[i], right);
}

template<typename T>
static fl_status search_typed(fl_kernel *kernel, const fl_cuda_array *sorted, const fl_cuda_array *values)
{
    const fl_view *line = &kernel->in[FL_SEARCH_SORTED], *x = &kernel->in[FL_SEARCH_VALUES];
    FL_LAUNCH((search<T>), fl_blocks(x->numel, THREADS), THREADS, 0, (int64_t *)kernel->out[0].data,
              (const T *)sorted->view.data, (const T *)values->view.data, x->numel, line->size[line->ndim - 1],
              line->ndim > 1 ? x->size[x->ndim - 1] : 0, kernel->attrs->at[FL_SEARCH_RIGHT].integer != 0);
    return fl_cuda_check(kernel->name);
}

static fl_status launch_search(fl_kernel *kernel)
{
    fl_cuda_array sorted, values;
    fl_dtype dtype = fl_dtype_compute(kernel->in[FL_SEARCH_SORTED].dtype);
    if (kernel->out[0].numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_open(&sorted, &kernel->in[FL_SEARCH_SORTED], dtype));
    fl_status status = fl_cuda_array_open(&values, &kernel->in[FL_SEARCH_VALUES], dtype);
    if (status == FL_OK) {
        if (dtype == FL_FLOAT32) status = search_typed<float>(kernel, &sorted, &values);
        else if (dtype == FL_FLOAT64) status = search_typed<double>(kernel, &sorted, &values);
        else status = search_typed<int64_t>(kernel, &sorted, &values);
        fl_cuda_array_close(&values);
    }
    fl_cuda_array_close(&sorted);
    return status;
}

FL_CUDA_OP(searchsorted_of, launch_search);
