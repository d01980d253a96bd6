/*
** cusolver.h -- factors of matrices by cuSOLVER, triangular systems by the cuBLAS that it brings along.
**
** As LAPACK's, their matrices lie by columns: where a routine can work on the transpose in place of the matrix, it
** does. Many small matrices are one call (for a batch), other batches a call for each matrix on the same stream. What
** is wrong with a matrix is reported when the op is complete, in the CPU's words.
*/
#ifndef FL_CUSOLVER_H
#define FL_CUSOLVER_H

#include "arrays.h"
#include "cusolver_abi.h"
#include "index.h"

extern "C" {
#include "core/op/matrix_trouble.h"
}

enum { FL_SOLVER_THREADS = 256 };

/* FL_CUDA_LINALG_OP(inv, launch_inverse): the kernel of linalg.inv; as FL_CUDA_OP. */
#define FL_CUDA_LINALG_OP(name, function)                  \
    static const fl_cuda_entry fl_cuda_entry_linalg_##name \
        __attribute__((section("fl_cuda_ops"), used)) = {"linalg." #name, function}

/* A call of an op on the matrices [..., m, n] of its first operand. */
typedef struct fl_solver {
    fl_kernel *kernel; /* borrowed */
    const char *name;  /* of the op as users know it */
    fl_dtype dtype;    /* float32 or float64 */
    int64_t count;
    int m, n;
    cusolverDnHandle_t handle; /* these two are set to the queue's stream */
    cublasHandle_t blas;
    syevjInfo_t eigen_jacobi; /* of batches of small matrices: values are sorted */
    gesvdjInfo_t svd_jacobi;
    int *info, *found, *ignored; /* per matrix: the library's code, ours; for codes that are not read. Device, owned */
} fl_solver;

/* The libraries' functions for T; open from fl_solver_open on. */
extern fl_cusolver<float> fl_cusolver_f32;
extern fl_cusolver<double> fl_cusolver_f64;
static inline const fl_cusolver<float> &fl_cusolver_of(float) { return fl_cusolver_f32; }
static inline const fl_cusolver<double> &fl_cusolver_of(double) { return fl_cusolver_f64; }

/* f(T()) for the solver's dtype. */
template<typename F>
static inline fl_status fl_solver_typed(const fl_solver *solver, F &&f)
{
    return solver->dtype == FL_FLOAT64 ? f(0.0) : f(0.0f);
}

/* True if the call has no elements to compute: nothing is opened then. */
bool fl_solver_is_empty(const fl_kernel *kernel);

/* Errors: the library is missing, matrices too large for it, a graph is recorded. On failure there is nothing to
** close. */
fl_status fl_solver_open(fl_solver *solver, fl_kernel *kernel, const char *name);
void fl_solver_close(fl_solver *solver);

/* The error of a status that is not 0; what: "cuSOLVER's potrf". */
fl_status fl_solver_check(const fl_solver *solver, const char *what, int status);

/* Leading dimension of columns with so many rows. */
static inline int fl_solver_leading(int rows) { return rows > 1 ? rows : 1; }

/* ---- batches ---- */

/* True if the batch is one call, for matrices of that many rows and columns. */
bool fl_solver_is_batch(const fl_solver *solver, int64_t rows, int64_t columns);

/* Jacobi's methods take a batch of matrices of that many rows or less. */
static inline bool fl_solver_is_small_batch(const fl_solver *solver, int rows)
{
    return solver->count > 1 && rows <= 32;
}

/* Addresses of matrices that lie `bytes` apart, in device memory that fl_cuda_free frees. */
fl_status fl_solver_addresses(void ***out, const fl_solver *solver, void *data, int64_t bytes);

/* f(first, count) for parts of the batch that one call takes: grids of the libraries have 65535 blocks in a row. */
template<typename F>
static inline fl_status fl_solver_parts(const fl_solver *solver, F &&f)
{
    const int64_t most = 32768;
    for (int64_t first = 0; first < solver->count; first += most)
        FL_TRY(f(first, (int)(solver->count - first < most ? solver->count - first : most)));
    return FL_OK;
}

/* f(i, scratch) for each matrix; scratch: room for that many elements of T. */
template<typename T, typename F>
static inline fl_status fl_solver_each(const fl_solver *solver, int elements, F &&f)
{
    void *scratch = NULL;
    FL_TRY(fl_cuda_malloc(&scratch, (size_t)(elements > 0 ? elements : 1) * sizeof(T)));
    fl_status status = FL_OK;
    for (int64_t i = 0; i < solver->count && status == FL_OK; i++) status = f(i, (T *)scratch);
    fl_cuda_free(scratch);
    return status;
}

/* ---- operands ---- */

/* A copy of the operand that a routine may overwrite, each matrix by columns, `step` elements from one to the next. */
fl_status fl_solver_columns(fl_cuda_array *a, const fl_view *view, int64_t step);

/* The same without its values: the result of a routine, which fl_cuda_array_store brings to where it belongs. */
fl_status fl_solver_columns_room(fl_cuda_array *a, const fl_view *view, int64_t step);

/* Rows and columns from the first of matrices that lie as `a` does, of the shape of `like`, copied to `out`. */
fl_status fl_solver_take(const fl_view *out, const fl_cuda_array *a);

/* Ones on the diagonal of row-major matrices [count, rows, columns], zeros elsewhere. */
template<typename T>
__global__ void __launch_bounds__(FL_SOLVER_THREADS) fl_solver_identity(T *a, int64_t elements, int rows, int columns)
{
    int64_t i = (int64_t)blockIdx.x * FL_SOLVER_THREADS + threadIdx.x;
    if (i < elements) a[i] = i / columns % rows == i % columns ? (T)1 : (T)0;
}

/* Zeros below the diagonal of row-major matrices, or above it. */
template<typename T>
__global__ void __launch_bounds__(FL_SOLVER_THREADS)
    fl_solver_clear(T *a, int64_t elements, int rows, int columns, bool above)
{
    int64_t i = (int64_t)blockIdx.x * FL_SOLVER_THREADS + threadIdx.x;
    if (i >= elements) return;
    int64_t row = i / columns % rows, column = i % columns;
    if (above ? column > row : column < row) a[i] = 0;
}

/* ---- spectral.cu ---- */

/* Elements that are not finite become 0 in row-major a [count, rows, columns], or its transposes; their matrices are
** reported. */
fl_status fl_solver_keep_finite(const fl_solver *solver, void *a, int64_t rows, int64_t columns);

/* Pseudoinverses x [count, n, m], row-major, of matrices that have elements, and their singular values [count, min(m,
** n)], of which those up to max(atol, rtol * the largest) count as 0. */
fl_status fl_solver_pinv(const fl_solver *solver, void *x, void *values, double atol, double rtol);

/* ---- reports ---- */

/* The codes as a result of the op, or NULL; and as its error, with this trouble, or NULL. */
fl_status fl_solver_report(const fl_solver *solver, const fl_view *codes, const char *trouble);

#endif
