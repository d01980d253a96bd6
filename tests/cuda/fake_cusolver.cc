/*
** fake_cusolver.cc -- the part of cuSOLVER's and cuBLAS's interfaces that the plug-in uses, computed by LAPACK in the
** order of the stream: for the emulation (FLOW_CUSOLVER). It refuses what they refuse: leading dimensions that are too
** short, work areas of another size than they asked for, singular values of matrices with fewer rows than columns.
** The declarations of cusolver_abi.h are compared with the toolkit's headers.
*/
#include "../emulator/emulate.h"
#include "cuda/kernels/cusolver_abi.h"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <type_traits>
#include <vector>

/* ---- the declarations ---- */

template<typename A>
using plain = typename std::conditional<std::is_enum<A>::value, int, A>::type;
template<typename F>
struct as_numbers;
template<typename R, typename... A>
struct as_numbers<R (*)(A...)> {
    typedef int (*type)(plain<A>...);
};

#define AGREES(field, function)                                                                                   \
    static_assert(std::is_same<decltype(fl_cusolver<real>::field), as_numbers<decltype(&function)>::type>::value, \
                  #function " is declared as the toolkit has it");
#define SOLVER_AGREES_S(name, arguments) AGREES(name, cusolverDnS##name)
#define SOLVER_AGREES_D(name, arguments) AGREES(name, cusolverDnD##name)
#define BLAS_AGREES_S(field, name, arguments) AGREES(field, cublasS##name)
#define BLAS_AGREES_D(field, name, arguments) AGREES(field, cublasD##name)
namespace single
{
typedef float real;
FL_CUSOLVER_ROUTINES(SOLVER_AGREES_S)
FL_CUBLAS_ROUTINES(BLAS_AGREES_S)
} // namespace single
namespace twofold
{
typedef double real;
FL_CUSOLVER_ROUTINES(SOLVER_AGREES_D)
FL_CUBLAS_ROUTINES(BLAS_AGREES_D)
} // namespace twofold

static_assert((int)FILL_LOWER == CUBLAS_FILL_MODE_LOWER && (int)FILL_UPPER == CUBLAS_FILL_MODE_UPPER
                  && (int)OPERATION_N == CUBLAS_OP_N && (int)OPERATION_T == CUBLAS_OP_T
                  && (int)SIDE_LEFT == CUBLAS_SIDE_LEFT && (int)SIDE_RIGHT == CUBLAS_SIDE_RIGHT
                  && (int)DIAGONAL_ANY == CUBLAS_DIAG_NON_UNIT && (int)DIAGONAL_UNIT == CUBLAS_DIAG_UNIT
                  && (int)EIGEN_VALUES == CUSOLVER_EIG_MODE_NOVECTOR && (int)EIGEN_VECTORS == CUSOLVER_EIG_MODE_VECTOR,
              "the numbers are the toolkit's");

/* ---- LAPACK ---- */

namespace
{

const int WORK = 40; /* elements that a routine asks for */

cudaStream_t solver_stream, blas_stream;

void issue(cudaStream_t stream, std::function<void()> work)
{
    ((const fl_emulated_stream *)stream)->issue(stream, work);
}

/* LAPACK's routine for T, by its name without the letter: all arguments by address. */
template<typename T, typename... A>
void lapack(const char *name, A... arguments)
{
    static void *library = dlopen("libopenblas.so.0", RTLD_NOW) ?: dlopen("liblapack.so.3", RTLD_NOW);
    char whole[16];
    snprintf(whole, sizeof whole, "%c%s_", sizeof(T) == 4 ? 's' : 'd', name);
    void *found = library ? dlsym(library, whole) : NULL;
    if (!found) abort();
    ((void (*)(A...))found)(arguments...);
}

const char *letter(cublasFillMode_t fill) { return fill == CUBLAS_FILL_MODE_LOWER ? "L" : "U"; }
const char *letter(cublasOperation_t operation) { return operation == CUBLAS_OP_N ? "N" : "T"; }
const char *letter(cublasSideMode_t side) { return side == CUBLAS_SIDE_LEFT ? "L" : "R"; }
const char *letter(cublasDiagType_t diagonal) { return diagonal == CUBLAS_DIAG_UNIT ? "U" : "N"; }

int eigen_parameters, svd_parameters; /* 1: values are sorted */

template<typename P>
bool is_sorted(P parameters, const int *own)
{
    return (const int *)parameters == own && *own == 1;
}

bool fits(int rows, int columns, int ld) { return rows >= 0 && columns >= 0 && ld >= (rows > 1 ? rows : 1); }
int work_area(int rows, int columns) { return columns > rows ? columns * 64 : rows * 64; }

template<typename T>
cusolverStatus_t workspace_size(bool valid, int *elements)
{
    *elements = WORK;
    return valid ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;
}

cusolverStatus_t solver(bool valid, const void *room, int elements, std::function<void()> work)
{
    if (!valid || !room || elements != WORK) return CUSOLVER_STATUS_INVALID_VALUE;
    issue(solver_stream, work);
    return CUSOLVER_STATUS_SUCCESS;
}

cublasStatus_t blas(bool valid, std::function<void()> work)
{
    if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
    issue(blas_stream, work);
    return CUBLAS_STATUS_SUCCESS;
}

template<typename T>
void run_potrf(cublasFillMode_t fill, int n, T *a, int lda, int *info)
{
    lapack<T>("potrf", letter(fill), &n, a, &lda, info, (size_t)1);
}

template<typename T>
void run_getrf(int m, int n, T *a, int lda, int *pivots, int *info)
{
    lapack<T>("getrf", &m, &n, a, &lda, pivots, info);
}

template<typename T>
void run_getrs(cublasOperation_t operation, int n, int k, const T *a, int lda, const int *pivots, T *b, int ldb,
               int *info)
{
    lapack<T>("getrs", letter(operation), &n, &k, a, &lda, pivots, b, &ldb, info, (size_t)1);
}

template<typename T>
void run_trsm(cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t operation, cublasDiagType_t diagonal,
              int m, int n, T alpha, const T *a, int lda, T *b, int ldb)
{
    lapack<T>("trsm", letter(side), letter(fill), letter(operation), letter(diagonal), &m, &n, &alpha, a, &lda, b, &ldb,
              (size_t)1, (size_t)1, (size_t)1, (size_t)1);
}

template<typename T>
void run_geqrf(int m, int n, T *a, int lda, T *tau, int *info)
{
    int room = work_area(m, n);
    std::vector<T> own((size_t)room);
    lapack<T>("geqrf", &m, &n, a, &lda, tau, own.data(), &room, info);
}

template<typename T>
void run_orgqr(int m, int n, int k, T *a, int lda, const T *tau, int *info)
{
    int room = work_area(m, n);
    std::vector<T> own((size_t)room);
    lapack<T>("orgqr", &m, &n, &k, a, &lda, tau, own.data(), &room, info);
}

template<typename T>
void run_syevd(cusolverEigMode_t mode, cublasFillMode_t fill, int n, T *a, int lda, T *values, int *info)
{
    int room = 1 + 6 * n + 2 * n * n, room_of_ints = 3 + 5 * n;
    std::vector<T> own((size_t)room);
    std::vector<int> ints((size_t)room_of_ints);
    lapack<T>("syevd", mode == CUSOLVER_EIG_MODE_VECTOR ? "V" : "N", letter(fill), &n, a, &lda, values, own.data(),
              &room, ints.data(), &room_of_ints, info, (size_t)1, (size_t)1);
}

template<typename T>
void run_gesvd(signed char u_job, signed char vt_job, int m, int n, T *a, int lda, T *s, T *u, int ldu, T *vt, int ldvt,
               int *info)
{
    char jobs[] = {(char)u_job, (char)vt_job};
    int room = 8 * work_area(m, n);
    std::vector<T> own((size_t)room);
    lapack<T>("gesvd", &jobs[0], &jobs[1], &m, &n, a, &lda, s, u, &ldu, vt, &ldvt, own.data(), &room, info, (size_t)1,
              (size_t)1);
}

/* m >= n here; v itself, not transposed. */
template<typename T>
void run_gesvdj(cusolverEigMode_t mode, int m, int n, T *a, int lda, T *s, T *u, int ldu, T *v, int ldv, int *info)
{
    signed char job = mode == CUSOLVER_EIG_MODE_VECTOR ? 'A' : 'N';
    std::vector<T> vt((size_t)n * (size_t)n);
    run_gesvd(job, job, m, n, a, lda, s, u, ldu, vt.data(), n, info);
    for (int r = 0; r < n && job == 'A'; r++)
        for (int c = 0; c < n; c++) v[r + c * ldv] = vt[(size_t)(c + r * n)];
}

} // namespace

/* ---- cuSOLVER ---- */

#define API extern "C" __attribute__((visibility("default")))

API cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *out)
{
    *out = (cusolverDnHandle_t)1;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t, cudaStream_t stream)
{
    solver_stream = stream;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnCreateSyevjInfo(syevjInfo_t *out)
{
    *out = (syevjInfo_t)&eigen_parameters;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXsyevjSetSortEig(syevjInfo_t parameters, int sorted)
{
    *(int *)parameters = sorted;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnCreateGesvdjInfo(gesvdjInfo_t *out)
{
    *out = (gesvdjInfo_t)&svd_parameters;
    return CUSOLVER_STATUS_SUCCESS;
}

API cusolverStatus_t cusolverDnXgesvdjSetSortEig(gesvdjInfo_t parameters, int sorted)
{
    *(int *)parameters = sorted;
    return CUSOLVER_STATUS_SUCCESS;
}

#define SOLVER_ROUTINES(letter, T)                                                                                     \
    API cusolverStatus_t cusolverDn##letter##potrf_bufferSize(cusolverDnHandle_t, cublasFillMode_t, int n, T *,        \
                                                              int lda, int *elements)                                  \
    {                                                                                                                  \
        return workspace_size<T>(fits(n, n, lda), elements);                                                           \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##potrf(cusolverDnHandle_t, cublasFillMode_t fill, int n, T *a, int lda,    \
                                                   T *work, int elements, int *info)                                   \
    {                                                                                                                  \
        return solver(fits(n, n, lda), work, elements, [=] { run_potrf(fill, n, a, lda, info); });                     \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##potrfBatched(cusolverDnHandle_t, cublasFillMode_t fill, int n, T *a[],    \
                                                          int lda, int *info, int count)                               \
    {                                                                                                                  \
        return solver(fits(n, n, lda), a, WORK, [=] {                                                                  \
            for (int i = 0; i < count; i++) run_potrf(fill, n, a[i], lda, info + i);                                   \
        });                                                                                                            \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##getrf_bufferSize(cusolverDnHandle_t, int m, int n, T *, int lda,          \
                                                              int *elements)                                           \
    {                                                                                                                  \
        return workspace_size<T>(fits(m, n, lda), elements);                                                           \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##getrf(cusolverDnHandle_t, int m, int n, T *a, int lda, T *work,           \
                                                   int *pivots, int *info)                                             \
    {                                                                                                                  \
        return solver(fits(m, n, lda) && pivots, work, WORK, [=] { run_getrf(m, n, a, lda, pivots, info); });          \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##getrs(cusolverDnHandle_t, cublasOperation_t operation, int n, int k,      \
                                                   const T *a, int lda, const int *pivots, T *b, int ldb, int *info)   \
    {                                                                                                                  \
        return solver(fits(n, n, lda) && fits(n, k, ldb), a, WORK,                                                     \
                      [=] { run_getrs(operation, n, k, a, lda, pivots, b, ldb, info); });                              \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##geqrf_bufferSize(cusolverDnHandle_t, int m, int n, T *, int lda,          \
                                                              int *elements)                                           \
    {                                                                                                                  \
        return workspace_size<T>(fits(m, n, lda), elements);                                                           \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##geqrf(cusolverDnHandle_t, int m, int n, T *a, int lda, T *tau, T *work,   \
                                                   int elements, int *info)                                            \
    {                                                                                                                  \
        return solver(fits(m, n, lda), work, elements, [=] { run_geqrf(m, n, a, lda, tau, info); });                   \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##orgqr_bufferSize(cusolverDnHandle_t, int m, int n, int k, const T *,      \
                                                              int lda, const T *, int *elements)                       \
    {                                                                                                                  \
        return workspace_size<T>(fits(m, n, lda) && m >= n && n >= k, elements);                                       \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##orgqr(cusolverDnHandle_t, int m, int n, int k, T *a, int lda,             \
                                                   const T *tau, T *work, int elements, int *info)                     \
    {                                                                                                                  \
        return solver(fits(m, n, lda) && m >= n && n >= k, work, elements,                                             \
                      [=] { run_orgqr(m, n, k, a, lda, tau, info); });                                                 \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##syevd_bufferSize(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, \
                                                              int n, const T *, int lda, const T *, int *elements)     \
    {                                                                                                                  \
        return workspace_size<T>(fits(n, n, lda), elements);                                                           \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##syevd(cusolverDnHandle_t, cusolverEigMode_t mode, cublasFillMode_t fill,  \
                                                   int n, T *a, int lda, T *values, T *work, int elements, int *info)  \
    {                                                                                                                  \
        return solver(fits(n, n, lda), work, elements, [=] { run_syevd(mode, fill, n, a, lda, values, info); });       \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##syevjBatched_bufferSize(cusolverDnHandle_t, cusolverEigMode_t,            \
                                                                     cublasFillMode_t, int n, const T *, int lda,      \
                                                                     const T *, int *elements, syevjInfo_t jacobi,     \
                                                                     int)                                              \
    {                                                                                                                  \
        return workspace_size<T>(fits(n, n, lda) && is_sorted(jacobi, &eigen_parameters), elements);                   \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##syevjBatched(cusolverDnHandle_t, cusolverEigMode_t mode,                  \
                                                          cublasFillMode_t fill, int n, T *a, int lda, T *values,      \
                                                          T *work, int elements, int *info, syevjInfo_t jacobi,        \
                                                          int count)                                                   \
    {                                                                                                                  \
        return solver(fits(n, n, lda) && is_sorted(jacobi, &eigen_parameters), work, elements, [=] {                   \
            for (int64_t i = 0; i < count; i++)                                                                        \
                run_syevd(mode, fill, n, a + i * lda * n, lda, values + i * n, info + i);                              \
        });                                                                                                            \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##gesvdjBatched_bufferSize(cusolverDnHandle_t, cusolverEigMode_t, int m,    \
                                                                      int n, const T *, int lda, const T *, const T *, \
                                                                      int ldu, const T *, int ldv, int *elements,      \
                                                                      gesvdjInfo_t jacobi, int)                        \
    {                                                                                                                  \
        return workspace_size<T>(m <= 32 && n <= 32 && fits(m, n, lda) && fits(m, m, ldu) && fits(n, n, ldv)           \
                                     && is_sorted(jacobi, &svd_parameters),                                            \
                                 elements);                                                                            \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##gesvdjBatched(cusolverDnHandle_t, cusolverEigMode_t mode, int m, int n,   \
                                                           T *a, int lda, T *s, T *u, int ldu, T *v, int ldv, T *work, \
                                                           int elements, int *info, gesvdjInfo_t jacobi, int count)    \
    {                                                                                                                  \
        return solver(u && v && is_sorted(jacobi, &svd_parameters), work, elements, [=] {                              \
            for (int64_t i = 0; i < count; i++)                                                                        \
                run_gesvdj(mode, m, n, a + i * lda * n, lda, s + i * n, u + i * ldu * m, ldu, v + i * ldv * n, ldv,    \
                           info + i);                                                                                  \
        });                                                                                                            \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##gesvd_bufferSize(cusolverDnHandle_t, int m, int n, int *elements)         \
    {                                                                                                                  \
        return workspace_size<T>(m >= n, elements);                                                                    \
    }                                                                                                                  \
    API cusolverStatus_t cusolverDn##letter##gesvd(cusolverDnHandle_t, signed char u_job, signed char vt_job, int m,   \
                                                   int n, T *a, int lda, T *s, T *u, int ldu, T *vt, int ldvt,         \
                                                   T *work, int elements, T *off_diagonal, int *info)                  \
    {                                                                                                                  \
        return solver(m >= n && fits(m, n, lda) && fits(m, n, ldu) && fits(n, n, ldvt) && off_diagonal, work,          \
                      elements, [=] { run_gesvd(u_job, vt_job, m, n, a, lda, s, u, ldu, vt, ldvt, info); });           \
    }
SOLVER_ROUTINES(S, float)
SOLVER_ROUTINES(D, double)

/* ---- cuBLAS ---- */

API cublasStatus_t cublasCreate_v2(cublasHandle_t *out)
{
    *out = (cublasHandle_t)1;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t stream)
{
    blas_stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

#define BLAS_ROUTINES(letter, T)                                                                                       \
    API cublasStatus_t cublas##letter##trsm_v2(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill,           \
                                               cublasOperation_t operation, cublasDiagType_t diagonal, int m, int n,   \
                                               const T *alpha, const T *a, int lda, T *b, int ldb)                     \
    {                                                                                                                  \
        T by = *alpha;                                                                                                 \
        return blas(fits(m, n, ldb) && lda >= (side == CUBLAS_SIDE_LEFT ? m : n),                                      \
                    [=] { run_trsm(side, fill, operation, diagonal, m, n, by, a, lda, b, ldb); });                     \
    }                                                                                                                  \
    API cublasStatus_t cublas##letter##trsmBatched(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill,       \
                                                   cublasOperation_t operation, cublasDiagType_t diagonal, int m,      \
                                                   int n, const T *alpha, const T *const a[], int lda, T *const b[],   \
                                                   int ldb, int count)                                                 \
    {                                                                                                                  \
        T by = *alpha;                                                                                                 \
        return blas(fits(m, n, ldb) && lda >= (side == CUBLAS_SIDE_LEFT ? m : n), [=] {                                \
            for (int i = 0; i < count; i++) run_trsm(side, fill, operation, diagonal, m, n, by, a[i], lda, b[i], ldb); \
        });                                                                                                            \
    }                                                                                                                  \
    API cublasStatus_t cublas##letter##getrfBatched(cublasHandle_t, int n, T *const a[], int lda, int *pivots,         \
                                                    int *info, int count)                                              \
    {                                                                                                                  \
        return blas(fits(n, n, lda) && pivots, [=] {                                                                   \
            for (int i = 0; i < count; i++) run_getrf(n, n, a[i], lda, pivots + i * n, info + i);                      \
        });                                                                                                            \
    }                                                                                                                  \
    API cublasStatus_t cublas##letter##getrsBatched(cublasHandle_t, cublasOperation_t operation, int n, int k,         \
                                                    const T *const a[], int lda, const int *pivots, T *const b[],      \
                                                    int ldb, int *info, int count)                                     \
    {                                                                                                                  \
        *info = 0;                                                                                                     \
        return blas(fits(n, n, lda) && fits(n, k, ldb), [=] {                                                          \
            int own;                                                                                                   \
            for (int i = 0; i < count; i++) run_getrs(operation, n, k, a[i], lda, pivots + i * n, b[i], ldb, &own);    \
        });                                                                                                            \
    }
BLAS_ROUTINES(S, float)
BLAS_ROUTINES(D, double)
