/*
** cusolver_abi.h -- the part of cuSOLVER's and cuBLAS's interfaces that cusolver.cu calls by name, as NVIDIA publishes
** them: they are opened at run time, and a machine that builds need not have their headers.
**
** T: float or double. Matrices lie by columns; arrays of matrices, `info` and `pivots` are device memory.
*/
#ifndef FL_CUSOLVER_ABI_H
#define FL_CUSOLVER_ABI_H

typedef struct cusolverDnContext *cusolverDnHandle_t;
typedef struct cublasContext *cublasHandle_t;
typedef struct syevjInfo *syevjInfo_t;
typedef struct gesvdjInfo *gesvdjInfo_t;

enum { FILL_LOWER, FILL_UPPER };      /* cublasFillMode_t */
enum { OPERATION_N, OPERATION_T };    /* cublasOperation_t */
enum { SIDE_LEFT, SIDE_RIGHT };       /* cublasSideMode_t */
enum { DIAGONAL_ANY, DIAGONAL_UNIT }; /* cublasDiagType_t */
enum { EIGEN_VALUES, EIGEN_VECTORS }; /* cusolverEigMode_t */

/* X(name, arguments): cusolverDnSname and cusolverDnDname, which return 0 or a status. */
#define FL_CUSOLVER_ROUTINES(X)                                                                                        \
    X(potrf_bufferSize, (cusolverDnHandle_t, int fill, int n, T *a, int lda, int *elements))                           \
    X(potrf, (cusolverDnHandle_t, int fill, int n, T *a, int lda, T *work, int elements, int *info))                   \
    X(potrfBatched, (cusolverDnHandle_t, int fill, int n, T **a, int lda, int *info, int count))                       \
    X(getrf_bufferSize, (cusolverDnHandle_t, int m, int n, T *a, int lda, int *elements))                              \
    X(getrf, (cusolverDnHandle_t, int m, int n, T *a, int lda, T *work, int *pivots, int *info))                       \
    X(getrs,                                                                                                           \
      (cusolverDnHandle_t, int operation, int n, int k, const T *a, int lda, const int *pivots, T *b, int ldb,         \
       int *info))                                                                                                     \
    X(geqrf_bufferSize, (cusolverDnHandle_t, int m, int n, T *a, int lda, int *elements))                              \
    X(geqrf, (cusolverDnHandle_t, int m, int n, T *a, int lda, T *tau, T *work, int elements, int *info))              \
    X(orgqr_bufferSize, (cusolverDnHandle_t, int m, int n, int k, const T *a, int lda, const T *tau, int *elements))   \
    X(orgqr, (cusolverDnHandle_t, int m, int n, int k, T *a, int lda, const T *tau, T *work, int elements, int *info)) \
    X(syevd_bufferSize,                                                                                                \
      (cusolverDnHandle_t, int mode, int fill, int n, const T *a, int lda, const T *values, int *elements))            \
    X(syevd,                                                                                                           \
      (cusolverDnHandle_t, int mode, int fill, int n, T *a, int lda, T *values, T *work, int elements, int *info))     \
    X(syevjBatched_bufferSize,                                                                                         \
      (cusolverDnHandle_t, int mode, int fill, int n, const T *a, int lda, const T *values, int *elements,             \
       syevjInfo_t, int count))                                                                                        \
    X(syevjBatched,                                                                                                    \
      (cusolverDnHandle_t, int mode, int fill, int n, T *a, int lda, T *values, T *work, int elements, int *info,      \
       syevjInfo_t, int count))                                                                                        \
    X(gesvd_bufferSize, (cusolverDnHandle_t, int m, int n, int *elements))                                             \
    X(gesvd,                                                                                                           \
      (cusolverDnHandle_t, signed char u_job, signed char vt_job, int m, int n, T *a, int lda, T *s, T *u, int ldu,    \
       T *vt, int ldvt, T *work, int elements, T *off_diagonal, int *info))                                            \
    X(gesvdjBatched_bufferSize,                                                                                        \
      (cusolverDnHandle_t, int mode, int m, int n, const T *a, int lda, const T *s, const T *u, int ldu, const T *v,   \
       int ldv, int *elements, gesvdjInfo_t, int count))                                                               \
    X(gesvdjBatched,                                                                                                   \
      (cusolverDnHandle_t, int mode, int m, int n, T *a, int lda, T *s, T *u, int ldu, T *v, int ldv, T *work,         \
       int elements, int *info, gesvdjInfo_t, int count))

/* X(field, name, arguments): cublasSname and cublasDname. alpha, and the info of getrsBatched, are host memory. */
#define FL_CUBLAS_ROUTINES(X)                                                                                       \
    X(trsm, trsm_v2,                                                                                                \
      (cublasHandle_t, int side, int fill, int operation, int diagonal, int m, int n, const T *alpha, const T *a,   \
       int lda, T *b, int ldb))                                                                                     \
    X(trsmBatched, trsmBatched,                                                                                     \
      (cublasHandle_t, int side, int fill, int operation, int diagonal, int m, int n, const T *alpha,               \
       const T *const *a, int lda, T *const *b, int ldb, int count))                                                \
    X(getrfBatched, getrfBatched, (cublasHandle_t, int n, T *const *a, int lda, int *pivots, int *info, int count)) \
    X(getrsBatched, getrsBatched,                                                                                   \
      (cublasHandle_t, int operation, int n, int k, const T *const *a, int lda, const int *pivots, T *const *b,     \
       int ldb, int *info, int count))

template<typename T>
struct fl_cusolver {
#define FL_CUSOLVER_FIELD(name, arguments) int(*name) arguments;
#define FL_CUBLAS_FIELD(field, name, arguments) int(*field) arguments;
    FL_CUSOLVER_ROUTINES(FL_CUSOLVER_FIELD)
    FL_CUBLAS_ROUTINES(FL_CUBLAS_FIELD)
#undef FL_CUSOLVER_FIELD
#undef FL_CUBLAS_FIELD
};

#endif
