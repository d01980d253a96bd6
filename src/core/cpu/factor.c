/*
** factor.c -- LU, Cholesky and QR factors, and what follows from them: see matrices.h.
**
** A matrix by rows is its transpose by columns. Determinants and inverses of a transpose say all about the matrix, and
** a system is solved with the factors of the transpose by asking for the transposed solution.
*/
#include "matrices.h"

#include <math.h>
#include <stdlib.h>

enum { SMALL_ROWS = 16 }; /* rows up to which our own loops are faster: measured */

#define REAL float
#define REAL_SQRT sqrtf
#define SMALL(name) FL_PASTE(name, f32)
#include "small_factors.inc"
#define REAL double
#define REAL_SQRT sqrt
#define SMALL(name) FL_PASTE(name, f64)
#include "small_factors.inc"

static double cube(const fl_matrices *job) { return (double)job->n * job->n * job->n; }

/* ---- LU ---- */

static size_t square(const fl_matrices *job) { return fl_matrices_room(job, (int64_t)job->n * job->n); }

static void plan_square(fl_matrices *job) { job->bytes = square(job) + fl_matrices_room_of_ints(job->n); }

static int leading(int n) { return n > 1 ? n : 1; }

/* The factors of A^T in `a`, of A's transpose by columns. The pivot that is 0, or 0. */
static int factor(const fl_matrices *job, void *a, const void *matrix, int *pivots)
{
    int n = job->n, lda = leading(n), info = 0;
    fl_matrices_copy(job, a, matrix, (int64_t)n * n);
    if (n <= SMALL_ROWS) return job->dtype == FL_FLOAT64 ? factor_f64(a, n, pivots) : factor_f32(a, n, pivots);
    job->lapack->getrf(&n, &n, a, &lda, pivots, &info);
    return info;
}

/* x [n, k] becomes X of A X = x, with `transposed` of A^T X = x, from the factors `a` of a small A^T. */
static void solve_small(const fl_matrices *job, const void *a, const int *pivots, void *x, int64_t k, bool transposed)
{
    int n = job->n;
    if (job->dtype == FL_FLOAT64) (transposed ? solve_f64 : solve_transposed_f64)(a, n, pivots, x, k);
    else (transposed ? solve_f32 : solve_transposed_f32)(a, n, pivots, x, k);
}

static bool odd_swaps(const int *pivots, int n)
{
    bool odd = false;
    for (int i = 0; i < n; i++) odd ^= pivots[i] != i + 1;
    return odd;
}

static int run_det(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n;
    void *a = fl_matrices_take(&scratch, square(job));
    int *pivots = (int *)scratch;
    factor(job, a, fl_matrices_in(job, 0, i, (int64_t)n * n), pivots);
    double det = odd_swaps(pivots, n) ? -1 : 1;
    for (int k = 0; k < n; k++) {
        det *= fl_matrices_get(job, a, (int64_t)k * n + k);
        if (job->dtype == FL_FLOAT32) det = (float)det;
    }
    fl_matrices_set(job, job->out[0], i, det);
    return 0;
}
const fl_matrix_routine fl_matrix_det = {plan_square, run_det, cube};

static int run_slogdet(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n;
    void *a = fl_matrices_take(&scratch, square(job));
    int *pivots = (int *)scratch;
    factor(job, a, fl_matrices_in(job, 0, i, (int64_t)n * n), pivots);
    double sign = odd_swaps(pivots, n) ? -1 : 1, sum = 0;
    for (int k = 0; k < n; k++) {
        double pivot = fl_matrices_get(job, a, (int64_t)k * n + k);
        if (pivot < 0) sign = -sign;
        else if (pivot == 0) sign = 0;
        else if (pivot != pivot) sign = pivot;
        sum += log(fabs(pivot));
    }
    fl_matrices_set(job, job->out[0], i, sign);
    fl_matrices_set(job, job->out[1], i, sum);
    return 0;
}
const fl_matrix_routine fl_matrix_slogdet = {plan_square, run_slogdet, cube};

/* With getri's workspace size for a matrix of this size. */
static void plan_inverse(fl_matrices *job)
{
    int n = job->n, lda = leading(n), ask = -1, info, pivot = 1;
    double query[2] = {0};
    job->lapack->getri(&n, query, &lda, &pivot, query, &ask, &info);
    job->lwork = (int)fl_matrices_get(job, query, 0);
    if (job->lwork < lda) job->lwork = lda;
    job->bytes = square(job) + fl_matrices_room_of_ints(n) + fl_matrices_room(job, job->lwork);
}

static void fill(const fl_matrices *job, void *out, int64_t elements, double value)
{
    for (int64_t i = 0; i < elements; i++) fl_matrices_set(job, out, i, value);
}

static int run_inverse(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, lda = leading(n), again;
    bool small = n <= SMALL_ROWS;
    void *x = fl_matrices_out(job, 0, i, (int64_t)n * n);
    int *pivots = fl_matrices_take(&scratch, fl_matrices_room_of_ints(n));
    void *a = small ? fl_matrices_take(&scratch, square(job)) : x;
    int info = factor(job, a, fl_matrices_in(job, 0, i, (int64_t)n * n), pivots);
    if (job->out[1]) ((int64_t *)job->out[1])[i] = info;
    if (info || small) fill(job, x, (int64_t)n * n, info ? NAN : 0);
    if (!info && small) {
        for (int k = 0; k < n; k++) fl_matrices_set(job, x, (int64_t)k * n + k, 1);
        solve_small(job, a, pivots, x, n, false);
    } else if (!info) job->lapack->getri(&n, x, &lda, pivots, scratch, &job->lwork, &again);
    return job->unchecked ? 0 : info;
}
const fl_matrix_routine fl_matrix_inverse = {plan_inverse, run_inverse, cube};

/* The cofactors of A: A = P L U has det(A) A^-T, where det and inverse go through U. A pivot of 0 is replaced by a tiny
** number: the cofactors are continuous, and as many of its digits cancel as the dtype has. */
static int run_cofactor(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, lda = leading(n), info;
    void *a = fl_matrices_take(&scratch, square(job)), *out = fl_matrices_out(job, 0, i, (int64_t)n * n);
    int *pivots = fl_matrices_take(&scratch, fl_matrices_room_of_ints(n));
    double tiny = job->dtype == FL_FLOAT64 ? 0x1p-52 : 0x1p-23;
    factor(job, a, fl_matrices_in(job, 0, i, (int64_t)n * n), pivots);
    double det = odd_swaps(pivots, n) ? -1 : 1;
    for (int k = 0; k < n; k++) {
        if (fl_matrices_get(job, a, (int64_t)k * n + k) == 0) fl_matrices_set(job, a, (int64_t)k * n + k, tiny);
        det *= fl_matrices_get(job, a, (int64_t)k * n + k);
    }
    job->lapack->getri(&n, a, &lda, pivots, scratch, &job->lwork, &info);
    for (int64_t k = 0; k < (int64_t)n * n; k++) fl_matrices_set(job, a, k, det * fl_matrices_get(job, a, k));
    fl_matrices_transpose(job, out, n, a, n, n, n);
    return 0;
}
const fl_matrix_routine fl_matrix_cofactor = {plan_inverse, run_cofactor, cube};

/* ---- systems ---- */

static double solve_operations(const fl_matrices *job) { return cube(job) + 2.0 * job->n * job->n * job->k; }

static void plan_solve(fl_matrices *job)
{
    job->bytes = square(job) + fl_matrices_room_of_ints(job->n) + fl_matrices_room(job, (int64_t)job->n * job->k);
}

/* X of A X = B, or of A^T X = B, from the factors `a` of A^T. scratch: for X by columns */
static void solve_factored(const fl_matrices *job, void *a, const int *pivots, void *x, const void *b, char *scratch)
{
    int n = job->n, k = job->k, lda = leading(n), info;
    void *columns = k == 1 ? x : scratch;
    if (n <= SMALL_ROWS) {
        fl_matrices_copy(job, x, b, (int64_t)n * k);
        solve_small(job, a, pivots, x, k, job->choice == 1);
        return;
    }
    if (k == 1) fl_matrices_copy(job, x, b, n);
    else fl_matrices_transpose(job, columns, n, b, k, n, k);
    job->lapack->getrs(job->choice == 1 ? "N" : "T", &n, &k, a, &lda, pivots, columns, &lda, &info, 1);
    if (k != 1) fl_matrices_transpose(job, x, k, columns, n, k, n);
}

static int run_solve(const fl_matrices *job, int64_t i, char *scratch)
{
    int64_t n = job->n, k = job->k;
    void *a = fl_matrices_take(&scratch, square(job));
    int *pivots = fl_matrices_take(&scratch, fl_matrices_room_of_ints(n));
    void *x = fl_matrices_out(job, 0, i, n * k);
    int info = factor(job, a, fl_matrices_in(job, 0, i, n * n), pivots);
    if (info) fill(job, x, n * k, NAN);
    else if (k) solve_factored(job, a, pivots, x, fl_matrices_in(job, 1, i, n * k), scratch);
    return info;
}
const fl_matrix_routine fl_matrix_solve = {plan_solve, run_solve, solve_operations};

static void plan_nothing(fl_matrices *job) { job->bytes = 0; }

enum { VECTOR_FROM = 32 }; /* rows from which trsv of float32 costs less than trsm */

static int run_triangular(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, m = job->m, lda = leading(n), rows = job->left ? m : n, columns = job->left ? n : m,
        ldb = leading(rows);
    void *x = fl_matrices_out(job, 0, i, (int64_t)n * m);
    fl_matrices_copy(job, x, fl_matrices_in(job, 1, i, (int64_t)n * m), (int64_t)n * m);
    if (m == 1 && (n >= VECTOR_FROM || job->dtype == FL_FLOAT64)) { /* without the copy of A that pays for many */
        job->lapack->trsv(job->choice == 1 ? "L" : "U", job->left ? "T" : "N", job->unit ? "U" : "N", &n,
                          fl_matrices_in(job, 0, i, (int64_t)n * n), &lda, x, &m, 1, 1, 1);
        return 0;
    }
    /* B^T by columns: X^T A^T = B^T, or A^T X^T = B^T; the transpose of an upper triangle is a lower one */
    job->lapack->trsm(job->left ? "R" : "L", job->choice == 1 ? "L" : "U", "N", job->unit ? "U" : "N", &rows, &columns,
                      fl_matrices_one(job), (void *)fl_matrices_in(job, 0, i, (int64_t)n * n), &lda, x, &ldb, 1, 1, 1,
                      1);
    return 0;
}

static double triangular_operations(const fl_matrices *job) { return (double)job->n * job->n * job->m; }
const fl_matrix_routine fl_matrix_triangular = {plan_nothing, run_triangular, triangular_operations};

/* ---- Cholesky ---- */

/* Zeros in the other half. */
static void clear_half(const fl_matrices *job, void *a, bool upper)
{
    int n = job->n;
    for (int r = 0; r < n; r++) {
        int from = upper ? 0 : r + 1, to = upper ? r : n;
        fl_matrices_clear(job, (char *)a + ((size_t)r * (size_t)n + (size_t)from) * job->item, to - from);
    }
}

/* potrf; the first NaN on the diagonal is no positive minor either, which not every LAPACK says. */
static int factor_large(const fl_matrices *job, void *a, bool upper)
{
    int n = job->n, info;
    job->lapack->potrf(upper ? "L" : "U", &n, a, &n, &info, 1);
    for (int i = 0; i < n && !info; i++)
        if (isnan(fl_matrices_get(job, a, (int64_t)i * n + i))) info = i + 1;
    return info;
}

static int run_cholesky(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, info;
    bool upper = job->choice == 1;
    void *a = fl_matrices_out(job, 0, i, (int64_t)n * n);
    fl_matrices_copy(job, a, fl_matrices_in(job, 0, i, (int64_t)n * n), (int64_t)n * n);
    if (n > SMALL_ROWS) info = factor_large(job, a, upper);
    else info = job->dtype == FL_FLOAT64 ? cholesky_f64(a, n, upper) : cholesky_f32(a, n, upper);
    if (n > SMALL_ROWS || info) clear_half(job, a, upper);
    if (job->out[1]) ((int64_t *)job->out[1])[i] = info;
    return job->unchecked ? 0 : info;
}
const fl_matrix_routine fl_matrix_cholesky = {plan_nothing, run_cholesky, cube};

/* ---- QR ---- */

static int larger_work_size(const fl_matrices *job, const double query[2], int so_far)
{
    int size = (int)fl_matrices_get(job, query, 0);
    return size > so_far ? size : so_far;
}

static void plan_qr(fl_matrices *job)
{
    int m = job->m, n = job->n, k = job->k, least = m < n ? m : n, lda = leading(m), ask = -1, info;
    double query[2] = {0};
    job->lwork = leading(n > k ? n : k);
    job->lapack->geqrf(&m, &n, NULL, &lda, NULL, (void *)query, &ask, &info);
    job->lwork = larger_work_size(job, query, job->lwork);
    if (job->choice == 0) {
        job->lapack->orgqr(&m, &k, &least, NULL, &lda, NULL, (void *)query, &ask, &info);
        job->lwork = larger_work_size(job, query, job->lwork);
    }
    job->bytes = fl_matrices_room(job, (int64_t)m * (n > k ? n : k)) + fl_matrices_room(job, least)
        + fl_matrices_room(job, job->lwork);
}

/* R [rows, n] from the upper triangle of a matrix by columns. */
static void take_r(const fl_matrices *job, void *out, const void *a, int rows)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < job->n; c++)
            fl_matrices_set(job, out, (int64_t)r * job->n + c,
                            c < r ? 0 : fl_matrices_get(job, a, (int64_t)c * job->m + r));
}

static int run_qr(const fl_matrices *job, int64_t i, char *scratch)
{
    int m = job->m, n = job->n, k = job->k, least = m < n ? m : n, lda = leading(m), info;
    bool with_q = job->choice == 0;
    void *a = fl_matrices_take(&scratch, fl_matrices_room(job, (int64_t)m * (n > k ? n : k)));
    void *tau = fl_matrices_take(&scratch, fl_matrices_room(job, least));
    fl_matrices_transpose(job, a, m, fl_matrices_in(job, 0, i, (int64_t)m * n), n, m, n);
    job->lapack->geqrf(&m, &n, a, &lda, tau, scratch, &job->lwork, &info);
    take_r(job, fl_matrices_out(job, 1, i, (int64_t)k * n), a, k);
    if (!with_q) return 0;
    job->lapack->orgqr(&m, &k, &least, a, &lda, tau, scratch, &job->lwork, &info);
    fl_matrices_transpose(job, fl_matrices_out(job, 0, i, (int64_t)m * k), k, a, m, k, m);
    return 0;
}

static double qr_operations(const fl_matrices *job) { return 3.0 * job->m * job->n * (job->k + 1); }
const fl_matrix_routine fl_matrix_qr = {plan_qr, run_qr, qr_operations};

static void plan_reflections(fl_matrices *job)
{
    int m = job->m, n = job->n, lda = leading(m), ask = -1, info;
    double query[2] = {0};
    job->lapack->geqrf(&m, &n, NULL, &lda, NULL, (void *)query, &ask, &info);
    job->lwork = larger_work_size(job, query, leading(n));
    job->bytes = fl_matrices_room(job, (int64_t)m * n) + fl_matrices_room(job, job->lwork);
}

static int run_reflections(const fl_matrices *job, int64_t i, char *scratch)
{
    int m = job->m, n = job->n, least = m < n ? m : n, lda = leading(m), info;
    int64_t elements = (int64_t)m * n;
    void *a = fl_matrices_take(&scratch, fl_matrices_room(job, elements));
    fl_matrices_transpose(job, a, m, fl_matrices_in(job, 0, i, elements), n, m, n);
    job->lapack->geqrf(&m, &n, a, &lda, fl_matrices_out(job, 1, i, least), scratch, &job->lwork, &info);
    fl_matrices_transpose(job, fl_matrices_out(job, 0, i, elements), n, a, m, n, m);
    return 0;
}
const fl_matrix_routine fl_matrix_reflections = {plan_reflections, run_reflections, qr_operations};
