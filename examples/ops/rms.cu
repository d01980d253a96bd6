/*
** rms.cu -- the kernel of rms on a GPU: a block per row. Operands are contiguous float arrays; others are refused.
*/
#include "ops/own_ops.h"

enum { THREADS = 256, X = 0, WEIGHT = 1, EPS = 0 };

static __global__ void rows(float *out, const float *x, const float *weight, int64_t n, float eps)
{
    __shared__ float sums[THREADS];
    float squares = 0;
    x += blockIdx.x * n;
    out += blockIdx.x * n;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) squares += x[i] * x[i];
    sums[threadIdx.x] = squares;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    float scale = rsqrtf(sums[0] / (float)n + eps);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) out[i] = x[i] * scale * weight[i];
}

extern "C" fl_status rms_on_device(fl_kernel *kernel)
{
    const fl_view *x = &kernel->in[X], *weight = &kernel->in[WEIGHT], *out = &kernel->out[0];
    int64_t n = weight->numel;
    if (out->numel == 0) return FL_OK;
    if (x->dtype != FL_FLOAT32 || weight->dtype != FL_FLOAT32 || !x->contiguous || !weight->contiguous)
        return fl_fail(FL_ERR_VALUE, "%s: on a GPU it takes contiguous float32 tensors", kernel->name);
    rows<<<(unsigned)(out->numel / n), THREADS, 0, (cudaStream_t)fl_device_stream(FL_CUDA)>>>(
        (float *)out->data, (const float *)x->data, (const float *)weight->data, n,
        (float)fl_attr_number(&kernel->attrs->at[EPS]));
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? FL_OK : fl_fail(FL_ERR_STATE, "%s: %s", kernel->name, cudaGetErrorString(error));
}
