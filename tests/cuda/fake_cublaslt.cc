/*
** fake_cublaslt.cc -- the part of cuBLASLt's interface that the plug-in uses, computed at once by plain loops: for the emulation
** (FLOW_CUBLASLT). It refuses what cuBLASLt refuses: leading dimensions that are too short, addresses less aligned than promised,
** a bias in float64. Operands of TF32 products are rounded.
*/
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define API extern "C" __attribute__((visibility("default"))) cublasStatus_t

namespace {

struct desc {
    cublasComputeType_t compute;
    cublasOperation_t transposed[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, step;
    int32_t batch;
};

struct preference {
    uint32_t alignment[4];
};

double element(const void *data, cudaDataType_t type, int64_t i)
{
    switch (type) {
    case CUDA_R_16F: return __half2float(((const __half *)data)[i]);
    case CUDA_R_16BF: return __bfloat162float(((const __nv_bfloat16 *)data)[i]);
    case CUDA_R_64F: return ((const double *)data)[i];
    default: return ((const float *)data)[i];
    }
}

void store(void *data, cudaDataType_t type, int64_t i, double value)
{
    switch (type) {
    case CUDA_R_16F: ((__half *)data)[i] = __float2half_rn((float)value); break;
    case CUDA_R_16BF: ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn((float)value); break;
    case CUDA_R_64F: ((double *)data)[i] = value; break;
    default: ((float *)data)[i] = (float)value;
    }
}

bool fits(const desc *d, const layout *a, const layout *b, const layout *c)
{
    uint64_t m = d->transposed[0] ? a->cols : a->rows, k = d->transposed[0] ? a->rows : a->cols, n = d->transposed[1] ? b->rows : b->cols,
             k2 = d->transposed[1] ? b->cols : b->rows;
    bool spaced = a->ld >= (int64_t)a->rows && b->ld >= (int64_t)b->rows && c->ld >= (int64_t)c->rows;
    return spaced && k == k2 && m == c->rows && n == c->cols && a->batch == c->batch && b->batch == c->batch && a->step >= 0 && b->step >= 0;
}

/* An operand as TF32 has it: 10 bits of mantissa, to the nearest. */
double as_tf32(double value)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(mantissa, 11)), exponent - 11) : value;
}

bool aligned(const void *data, const uint8_t *promised) { return (uintptr_t)data % ((uint32_t)*promised + 1) == 0; }

} // namespace

API cublasLtCreate(cublasLtHandle_t *out)
{
    *out = (cublasLtHandle_t)1;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t)
{
    desc *d = new desc();
    d->compute = compute;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete (desc *)d;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size)
{
    desc *d = (desc *)opaque;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&d->transposed[0], value, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&d->transposed[1], value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&d->epilogue, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&d->bias, value, size); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = (cublasLtMatrixLayout_t) new layout{type, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (layout *)l;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t size)
{
    layout *l = (layout *)opaque;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: memcpy(&l->batch, value, size); break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: memcpy(&l->step, value, size); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t) new preference{{256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete (preference *)p;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque, cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
    int at = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (at >= 0 && at < 4) memcpy(&((preference *)opaque)->alignment[at], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* What was promised goes into the algorithm, a byte for each operand: the alignment less one. */
API cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                   cublasLtMatrixLayout_t, cublasLtMatmulPreference_t p, int, cublasLtMatmulHeuristicResult_t *result, int *count)
{
    const desc *product = (const desc *)d;
    *count = 0;
    if (!fits(product, (const layout *)a, (const layout *)b, (const layout *)c)) return CUBLAS_STATUS_INVALID_VALUE;
    if (product->compute == CUBLAS_COMPUTE_64F && product->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    for (int i = 0; i < 4; i++) ((uint8_t *)result->algo.data)[i] = (uint8_t)(((const preference *)p)->alignment[i] - 1);
    result->workspaceSize = 64;
    result->state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                   cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, cublasLtMatrixLayout_t, void *out, cublasLtMatrixLayout_t out_layout,
                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_size, cudaStream_t)
{
    const desc *d = (const desc *)opaque;
    const layout *x = (const layout *)a_layout, *y = (const layout *)b_layout, *z = (const layout *)out_layout;
    const uint8_t *promised = (const uint8_t *)algo->data;
    bool wide = d->compute == CUBLAS_COMPUTE_64F, rounds = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32, biased = d->epilogue == CUBLASLT_EPILOGUE_BIAS;
    double by = wide ? *(const double *)alpha : *(const float *)alpha, before = wide ? *(const double *)beta : *(const float *)beta;
    if (!fits(d, x, y, z) || !workspace || workspace_size != 64) return CUBLAS_STATUS_INVALID_VALUE;
    if (!aligned(a, promised) || !aligned(b, promised + 1) || !aligned(c, promised + 2) || !aligned(out, promised + 3) ||
        (biased && !aligned(d->bias, promised + 3)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int64_t depth = (int64_t)(d->transposed[0] ? x->rows : x->cols);
    for (int64_t i = 0; i < z->batch; i++)
        for (int64_t col = 0; col < (int64_t)z->cols; col++)
            for (int64_t row = 0; row < (int64_t)z->rows; row++) {
                int64_t at = i * z->step + row + col * z->ld;
                double sum = 0;
                for (int64_t k = 0; k < depth; k++) {
                    double u = element(a, x->type, i * x->step + (d->transposed[0] ? k + row * x->ld : row + k * x->ld));
                    double v = element(b, y->type, i * y->step + (d->transposed[1] ? col + k * y->ld : k + col * y->ld));
                    sum += rounds ? as_tf32(u) * as_tf32(v) : u * v;
                }
                sum *= by;
                if (before != 0) sum += before * element(c, z->type, at);
                if (biased) sum += element(d->bias, z->type, row);
                store(out, z->type, at, sum);
            }
    return CUBLAS_STATUS_SUCCESS;
}
