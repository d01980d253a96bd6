/*
** gemm.h -- matrix products on the device: cuBLASLt's (cublas.cu) and our own kernel (gemm.cu).
*/
#ifndef FL_CUDA_GEMM_H
#define FL_CUDA_GEMM_H

#include "cuda/parts/cuda.h"

typedef enum fl_cuda_activation { FL_CUDA_NONE, FL_CUDA_RELU, FL_CUDA_GELU, FL_CUDA_GELU_TANH } fl_cuda_activation;

/* C = activation(A B + bias) for every pair of matrices of a batch: A[m, k], B[k, n], strides in elements. C is
** [batch..., m, n], row-major. bias [n] is contiguous or NULL. before, which lies as C does, receives what the
** activation (of floats) is applied to, or is NULL. All of one dtype; 16-bit floats are summed in float32. */
typedef struct fl_cuda_gemm {
    fl_dtype dtype;
    int64_t m, n, k;
    char *a, *b, *c, *bias, *before;
    fl_cuda_activation activation;
    int64_t a_row, a_col, b_row, b_col;
    int batch; /* axes; none has size 1 */
    int64_t size[FL_MAX_NDIM], a_step[FL_MAX_NDIM], b_step[FL_MAX_NDIM];
} fl_cuda_gemm;

/* Through cuBLASLt where it is there and can, else as fl_cuda_gemm_own (matmul.cu). */
fl_status fl_cuda_gemm_run(const fl_cuda_gemm *gemm);

/* Any dtype but bool, any strides, integers wrapping around. */
fl_status fl_cuda_gemm_own(const fl_cuda_gemm *gemm);

/* C = activation(from), both as large as C; from may be C. Floats. */
fl_status fl_cuda_gemm_activate(const fl_cuda_gemm *gemm, const char *from);

/* True if cuBLASLt is found. If not, a warning is printed once on a real GPU. */
bool fl_cublas_open(void);

/* True if cuBLASLt reads a matrix with these strides in place. */
bool fl_cublas_takes(int64_t row, int64_t col, int64_t rows, int64_t cols);

/* Floats, k > 0, both operands as fl_cublas_takes requires. *done = false: it has no kernel for this product. */
fl_status fl_cublas_gemm(bool *done, const fl_cuda_gemm *gemm);

#endif
