/*
** fake_cublaslt.cc -- the part of cuBLASLt's interface that the plug-in uses, computed by plain loops in the order of
** the stream: for the emulation (FLOW_CUBLASLT). It refuses what cuBLASLt refuses: leading dimensions that are too
** short, addresses less aligned than promised, epilogues in float64, what gelu keeps in rows or matrices that are no
** multiple of 8 elements apart. Operands of TF32 products are rounded.
*/
#include "../emulator/emulate.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define API extern "C" __attribute__((visibility("default"))) cublasStatus_t

namespace
{

struct desc {
    cublasComputeType_t compute;
    cublasOperation_t transposed[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
    void *kept;
    int64_t kept_ld, kept_step;
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
    uint64_t m = d->transposed[0] ? a->cols : a->rows, k = d->transposed[0] ? a->rows : a->cols,
             n = d->transposed[1] ? b->rows : b->cols, k2 = d->transposed[1] ? b->cols : b->rows;
    bool spaced = a->ld >= (int64_t)a->rows && b->ld >= (int64_t)b->rows && c->ld >= (int64_t)c->rows;
    return spaced && k == k2 && m == c->rows && n == c->cols && a->batch == c->batch && b->batch == c->batch
        && a->step >= 0 && b->step >= 0;
}

/* An operand as TF32 has it: 10 bits of mantissa, to the nearest. */
double as_tf32(double value)
{
    int exponent;
    double mantissa = frexp(value, &exponent);
    return isfinite(value) ? ldexp(nearbyint(ldexp(mantissa, 11)), exponent - 11) : value;
}

bool has(const desc *d, int epilogue) { return (d->epilogue & epilogue) == epilogue; }

bool is_known(cublasLtEpilogue_t e)
{
    return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU
        || e == CUBLASLT_EPILOGUE_RELU_BIAS || e == CUBLASLT_EPILOGUE_GELU || e == CUBLASLT_EPILOGUE_GELU_BIAS
        || e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* Pointers that an epilogue reads or writes are there, and what it keeps is laid out as the library wants it. */
bool epilogue_fits(const desc *d, const layout *c)
{
    if (!is_known(d->epilogue) || (d->compute == CUBLAS_COMPUTE_64F && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT))
        return false;
    if (has(d, CUBLASLT_EPILOGUE_BIAS) && !d->bias) return false;
    if (!has(d, CUBLASLT_EPILOGUE_GELU_AUX)) return true;
    return d->kept && d->kept_ld % 8 == 0 && d->kept_ld >= (int64_t)c->rows && (c->batch == 1 || d->kept_step % 8 == 0);
}

double activated(const desc *d, double x)
{
    if (has(d, CUBLASLT_EPILOGUE_RELU)) return x < 0 ? 0 : x;
    if (has(d, CUBLASLT_EPILOGUE_GELU)) return x / (1 + exp(-2 * 0.79788456080286536 * (x + 0.044715 * x * x * x)));
    return x;
}

/* sum before the epilogue, of element (row, col) of product i. */
void finish(const desc *d, const layout *c, void *out, int64_t i, int64_t row, int64_t col, double sum)
{
    if (has(d, CUBLASLT_EPILOGUE_BIAS)) sum += element(d->bias, c->type, row);
    if (has(d, CUBLASLT_EPILOGUE_GELU_AUX)) store(d->kept, c->type, i * d->kept_step + row + col * d->kept_ld, sum);
    store(out, c->type, i * c->step + row + col * c->ld, activated(d, sum));
}

/* out = by * a b + before * c */
void multiply(const desc *d, double by, const void *a, const layout *x, const void *b, const layout *y, double before,
              const void *c, void *out, const layout *z)
{
    bool rounds = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    int64_t depth = (int64_t)(d->transposed[0] ? x->rows : x->cols);
    for (int64_t i = 0; i < z->batch; i++)
        for (int64_t col = 0; col < (int64_t)z->cols; col++)
            for (int64_t row = 0; row < (int64_t)z->rows; row++) {
                double sum = 0;
                for (int64_t k = 0; k < depth; k++) {
                    double u = element(a, x->type,
                                       i * x->step + (d->transposed[0] ? k + row * x->ld : row + k * x->ld));
                    double v = element(b, y->type,
                                       i * y->step + (d->transposed[1] ? col + k * y->ld : k + col * y->ld));
                    sum += rounds ? as_tf32(u) * as_tf32(v) : u * v;
                }
                sum *= by;
                if (before != 0) sum += before * element(c, z->type, i * z->step + row + col * z->ld);
                finish(d, z, out, i, row, col, sum);
            }
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

API cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque, cublasLtMatmulDescAttributes_t attribute,
                                   const void *value, size_t size)
{
    desc *d = (desc *)opaque;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&d->transposed[0], value, size); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&d->transposed[1], value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&d->epilogue, value, size); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&d->bias, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: memcpy(&d->kept, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: memcpy(&d->kept_ld, value, size); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: memcpy(&d->kept_step, value, size); break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols,
                               int64_t ld)
{
    *out = (cublasLtMatrixLayout_t) new layout{type, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (layout *)l;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque, cublasLtMatrixLayoutAttribute_t attribute,
                                     const void *value, size_t size)
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

API cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                         cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t size)
{
    int at = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (at >= 0 && at < 4) memcpy(&((preference *)opaque)->alignment[at], value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* The promised alignments go into the algorithm, a byte for each operand: the alignment less one. */
API cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                   cublasLtMatmulPreference_t p, int, cublasLtMatmulHeuristicResult_t *result,
                                   int *count)
{
    const desc *product = (const desc *)d;
    *count = 0;
    if (!fits(product, (const layout *)a, (const layout *)b, (const layout *)c)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!epilogue_fits(product, (const layout *)c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(result, 0, sizeof *result);
    for (int i = 0; i < 4; i++)
        ((uint8_t *)result->algo.data)[i] = (uint8_t)(((const preference *)p)->alignment[i] - 1);
    result->workspaceSize = 64;
    result->state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t opaque, const void *alpha, const void *a,
                   cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                   const void *c, cublasLtMatrixLayout_t, void *out, cublasLtMatrixLayout_t out_layout,
                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_size, cudaStream_t stream)
{
    const desc *d = (const desc *)opaque;
    const layout *x = (const layout *)a_layout, *y = (const layout *)b_layout, *z = (const layout *)out_layout;
    const uint8_t *promised = (const uint8_t *)algo->data;
    bool wide = d->compute == CUBLAS_COMPUTE_64F;
    double by = wide ? *(const double *)alpha : *(const float *)alpha,
           before = wide ? *(const double *)beta : *(const float *)beta;
    if (!fits(d, x, y, z) || !epilogue_fits(d, z) || !workspace || workspace_size != 64)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!aligned(a, promised) || !aligned(b, promised + 1) || !aligned(c, promised + 2) || !aligned(out, promised + 3)
        || (has(d, CUBLASLT_EPILOGUE_BIAS) && !aligned(d->bias, promised + 3))
        || (has(d, CUBLASLT_EPILOGUE_GELU_AUX) && !aligned(d->kept, promised + 3)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    ((const fl_emulated_stream *)stream)->issue(stream, [=, product = *d, left = *x, right = *y, result = *z] {
        multiply(&product, by, a, &left, b, &right, before, c, out, &result);
    });
    return CUBLAS_STATUS_SUCCESS;
}
