/*
** lapack.h -- LAPACK and the BLAS below it, opened at the first call that needs them.
**
** Fortran's calling convention: every argument by address, matrices by columns, the length of each text behind the
** last argument. `real`: float or double, as the table's dtype says.
*/
#ifndef FL_LAPACK_H
#define FL_LAPACK_H

#include "cpu.h"

#define FL_LAPACK_TEXT const char * /* one letter: a choice */
typedef const int *fl_lapack_int;
typedef void *fl_lapack_real;

/* Field, arguments, and the name without its leading s or d. The routines that take texts get their lengths. */
#define FL_LAPACK_ROUTINES(X)                                                                                          \
    X(getrf, (fl_lapack_int m, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, int *pivots, int *info))          \
    X(getrs,                                                                                                           \
      (FL_LAPACK_TEXT trans, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a, fl_lapack_int lda,                 \
       const int *pivots, fl_lapack_real b, fl_lapack_int ldb, int *info, size_t))                                     \
    X(getri,                                                                                                           \
      (fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, const int *pivots, fl_lapack_real work,                   \
       fl_lapack_int lwork, int *info))                                                                                \
    X(potrf, (FL_LAPACK_TEXT uplo, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, int *info, size_t))           \
    X(trsm,                                                                                                            \
      (FL_LAPACK_TEXT side, FL_LAPACK_TEXT uplo, FL_LAPACK_TEXT trans, FL_LAPACK_TEXT diag, fl_lapack_int m,           \
       fl_lapack_int n, const void *alpha, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real b, fl_lapack_int ldb,   \
       size_t, size_t, size_t, size_t))                                                                                \
    X(trsv,                                                                                                            \
      (FL_LAPACK_TEXT uplo, FL_LAPACK_TEXT trans, FL_LAPACK_TEXT diag, fl_lapack_int n, const void *a,                 \
       fl_lapack_int lda, fl_lapack_real x, fl_lapack_int step, size_t, size_t, size_t))                               \
    X(gemm,                                                                                                            \
      (FL_LAPACK_TEXT ta, FL_LAPACK_TEXT tb, fl_lapack_int m, fl_lapack_int n, fl_lapack_int k, const void *alpha,     \
       const void *a, fl_lapack_int lda, const void *b, fl_lapack_int ldb, const void *beta, fl_lapack_real c,         \
       fl_lapack_int ldc, size_t, size_t))                                                                             \
    X(geqrf,                                                                                                           \
      (fl_lapack_int m, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real tau, fl_lapack_real work, \
       fl_lapack_int lwork, int *info))                                                                                \
    X(orgqr,                                                                                                           \
      (fl_lapack_int m, fl_lapack_int n, fl_lapack_int k, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real tau,     \
       fl_lapack_real work, fl_lapack_int lwork, int *info))                                                           \
    X(sytrf,                                                                                                           \
      (FL_LAPACK_TEXT uplo, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, int *pivots, fl_lapack_real work,    \
       fl_lapack_int lwork, int *info, size_t))                                                                        \
    X(sytrs,                                                                                                           \
      (FL_LAPACK_TEXT uplo, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a, fl_lapack_int lda,                  \
       const int *pivots, fl_lapack_real b, fl_lapack_int ldb, int *info, size_t))                                     \
    X(gesdd,                                                                                                           \
      (FL_LAPACK_TEXT job, fl_lapack_int m, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real s,    \
       fl_lapack_real u, fl_lapack_int ldu, fl_lapack_real vt, fl_lapack_int ldvt, fl_lapack_real work,                \
       fl_lapack_int lwork, int *iwork, int *info, size_t))                                                            \
    X(syevd,                                                                                                           \
      (FL_LAPACK_TEXT job, FL_LAPACK_TEXT uplo, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda,                  \
       fl_lapack_real w, fl_lapack_real work, fl_lapack_int lwork, int *iwork, fl_lapack_int liwork, int *info,        \
       size_t, size_t))                                                                                                \
    X(geev,                                                                                                            \
      (FL_LAPACK_TEXT left, FL_LAPACK_TEXT right, fl_lapack_int n, fl_lapack_real a, fl_lapack_int lda,                \
       fl_lapack_real re, fl_lapack_real im, fl_lapack_real vl, fl_lapack_int ldvl, fl_lapack_real vr,                 \
       fl_lapack_int ldvr, fl_lapack_real work, fl_lapack_int lwork, int *info, size_t, size_t))                       \
    X(gels,                                                                                                            \
      (FL_LAPACK_TEXT trans, fl_lapack_int m, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a,                   \
       fl_lapack_int lda, fl_lapack_real b, fl_lapack_int ldb, fl_lapack_real work, fl_lapack_int lwork, int *info,    \
       size_t))                                                                                                        \
    X(gelsy,                                                                                                           \
      (fl_lapack_int m, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real b,    \
       fl_lapack_int ldb, int *pivots, const void *rcond, int *rank, fl_lapack_real work, fl_lapack_int lwork,         \
       int *info))                                                                                                     \
    X(gelsd,                                                                                                           \
      (fl_lapack_int m, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real b,    \
       fl_lapack_int ldb, fl_lapack_real s, const void *rcond, int *rank, fl_lapack_real work, fl_lapack_int lwork,    \
       int *iwork, int *info))                                                                                         \
    X(gelss,                                                                                                           \
      (fl_lapack_int m, fl_lapack_int n, fl_lapack_int nrhs, fl_lapack_real a, fl_lapack_int lda, fl_lapack_real b,    \
       fl_lapack_int ldb, fl_lapack_real s, const void *rcond, int *rank, fl_lapack_real work, fl_lapack_int lwork,    \
       int *info))

typedef struct fl_lapack {
#define FL_LAPACK_FIELD(name, arguments) void(*name) arguments;
    FL_LAPACK_ROUTINES(FL_LAPACK_FIELD)
#undef FL_LAPACK_FIELD
} fl_lapack;

/* The routines for float32 or float64; they run on the calling thread alone. Error FL_ERR_MISSING names the package to
** install. Kernels call it on the thread that runs them, before they cut their work. */
fl_status fl_lapack_open(const fl_lapack **out, const char *who, fl_dtype dtype);

#endif
