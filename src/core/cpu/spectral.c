/*
** spectral.c -- singular values, eigenvalues, and least squares: see matrices.h.
**
** The factors that LAPACK gives of the transpose, A^T = V S U^T, are stored by columns: they are U and V^T by rows.
*/
#include "matrices.h"

#include <math.h>

static int at_least_one(int n) { return n > 1 ? n : 1; }
static int least_of(const fl_matrices *job) { return job->m < job->n ? job->m : job->n; }
static size_t whole(const fl_matrices *job) { return fl_matrices_room(job, (int64_t)job->m * job->n); }

/* The workspace size that LAPACK gave (a query with lwork -1), at least `least`. */
static int work_size(const fl_matrices *job, const double query[2], int least)
{
    int size = (int)fl_matrices_get(job, query, 0);
    return size > least ? size : at_least_one(least);
}

/* ---- singular values ---- */

enum { SVD_FULL, SVD_REDUCED, SVD_VALUES };

static const char *svd_job(const fl_matrices *job)
{
    return job->choice == SVD_FULL ? "A" : job->choice == SVD_REDUCED ? "S" : "N";
}

/* gesdd of a transpose [n, m]: lwork, and the room for it and what it is given. */
static size_t plan_gesdd(fl_matrices *job, const char *how)
{
    int m = job->m, n = job->n, k = least_of(job), ldu = at_least_one(n), ldvt = at_least_one(how[0] == 'A' ? m : k),
        ask = -1, info, ints = 0;
    double query[2] = {0};
    job->lapack->gesdd(how, &n, &m, NULL, &ldu, NULL, NULL, &ldu, NULL, &ldvt, (void *)query, &ask, &ints, &info, 1);
    job->lwork = work_size(job, query, 1);
    return whole(job) + fl_matrices_room(job, job->lwork) + fl_matrices_room_of_ints(8 * (int64_t)k);
}

/* u [m, .], s, vt [., n] by rows. scratch: as plan_gesdd says */
static int gesdd(const fl_matrices *job, const char *how, void *u, void *s, void *vt, const void *matrix, char *scratch)
{
    int m = job->m, n = job->n, k = least_of(job), ldv = at_least_one(n), ldu = at_least_one(how[0] == 'A' ? m : k),
        info;
    void *a = fl_matrices_take(&scratch, whole(job));
    int *ints = fl_matrices_take(&scratch, fl_matrices_room_of_ints(8 * (int64_t)k));
    if (!fl_matrices_finite(job, matrix, (int64_t)m * n)) return FL_MATRIX_NOT_FINITE;
    fl_matrices_copy(job, a, matrix, (int64_t)m * n);
    job->lapack->gesdd(how, &n, &m, a, &ldv, s, vt, &ldv, u, &ldu, scratch, &job->lwork, ints, &info, 1);
    return info;
}

static void plan_svd(fl_matrices *job) { job->bytes = plan_gesdd(job, svd_job(job)); }

static void identity(const fl_matrices *job, void *out, int64_t n)
{
    fl_matrices_clear(job, out, n * n);
    for (int64_t i = 0; i < n; i++) fl_matrices_set(job, out, i * n + i, 1);
}

static int run_svd(const fl_matrices *job, int64_t i, char *scratch)
{
    int64_t m = job->m, n = job->n, k = least_of(job), full = job->choice == SVD_FULL;
    const void *matrix = fl_matrices_in(job, 0, i, m * n);
    if (full && k == 0) {
        identity(job, fl_matrices_out(job, 0, i, m * m), m);
        identity(job, fl_matrices_out(job, 2, i, n * n), n);
        return 0;
    }
    if (job->choice == SVD_VALUES) return gesdd(job, "N", NULL, fl_matrices_out(job, 0, i, k), NULL, matrix, scratch);
    return gesdd(job, svd_job(job), fl_matrices_out(job, 0, i, m * (full ? m : k)), fl_matrices_out(job, 1, i, k),
                 fl_matrices_out(job, 2, i, (full ? n : k) * n), matrix, scratch);
}

static double svd_operations(const fl_matrices *job)
{
    return (job->choice == SVD_VALUES ? 4.0 : 20.0) * job->m * job->n * least_of(job);
}
const fl_matrix_routine fl_matrix_svd = {plan_svd, run_svd, svd_operations};

static size_t room_of_u(const fl_matrices *job) { return fl_matrices_room(job, (int64_t)job->m * least_of(job)); }
static size_t room_of_vt(const fl_matrices *job) { return fl_matrices_room(job, (int64_t)job->n * least_of(job)); }

static void plan_pinv(fl_matrices *job)
{
    job->bytes = plan_gesdd(job, "S") + room_of_u(job) + room_of_vt(job) + fl_matrices_room(job, least_of(job));
}

/* V S^-1 U^T, [n, m] by rows. */
static int run_pinv(const fl_matrices *job, int64_t i, char *scratch)
{
    int m = job->m, n = job->n, k = least_of(job), ldu = at_least_one(k), ldv = at_least_one(n), ldx = at_least_one(m);
    void *u = fl_matrices_take(&scratch, room_of_u(job)), *vt = fl_matrices_take(&scratch, room_of_vt(job));
    void *s = fl_matrices_take(&scratch, fl_matrices_room(job, k));
    int info = gesdd(job, "S", u, s, vt, fl_matrices_in(job, 0, i, (int64_t)m * n), scratch);
    if (info) return info;
    double largest = k ? fl_matrices_get(job, s, 0) : 0;
    double limit = fmax(job->atol, job->rtol * largest);
    for (int r = 0; r < k; r++) {
        double value = fl_matrices_get(job, s, r), by = value > limit ? 1 / value : 0;
        for (int c = 0; c < n; c++)
            fl_matrices_set(job, vt, (int64_t)r * n + c, by * fl_matrices_get(job, vt, (int64_t)r * n + c));
    }
    /* by columns u is U^T [k, m] and vt V [n, k]: X^T = U (V S^-1)^T is [m, n] */
    job->lapack->gemm("T", "T", &m, &n, &k, fl_matrices_one(job), u, &ldu, vt, &ldv, fl_matrices_zero(job),
                      fl_matrices_out(job, 0, i, (int64_t)n * m), &ldx, 1, 1);
    return 0;
}
const fl_matrix_routine fl_matrix_pinv = {plan_pinv, run_pinv, svd_operations};

/* ---- symmetric matrices ---- */

static void plan_eigh(fl_matrices *job)
{
    int n = job->n, lda = at_least_one(n), ask = -1, ints = 0, info;
    double query[2] = {0};
    job->lapack->syevd(job->out[1] ? "V" : "N", "U", &n, NULL, &lda, NULL, (void *)query, &ask, &ints, &ask, &info, 1,
                       1);
    job->lwork = work_size(job, query, 1);
    job->liwork = at_least_one(ints);
    job->bytes = whole(job) + fl_matrices_room(job, job->lwork) + fl_matrices_room_of_ints(job->liwork);
}

/* The half that is read has numbers only. */
static bool half_finite(const fl_matrices *job, const void *a, bool upper)
{
    int64_t n = job->n;
    for (int64_t r = 0; r < n; r++) {
        int64_t from = upper ? r : 0, to = upper ? n : r + 1;
        if (!fl_matrices_finite(job, (const char *)a + (size_t)(r * n + from) * job->item, to - from)) return false;
    }
    return true;
}

static int run_eigh(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, lda = at_least_one(n), info;
    const void *matrix = fl_matrices_in(job, 0, i, (int64_t)n * n);
    void *a = fl_matrices_take(&scratch, whole(job));
    int *ints = fl_matrices_take(&scratch, fl_matrices_room_of_ints(job->liwork));
    if (!half_finite(job, matrix, job->choice == 1)) return FL_MATRIX_NOT_FINITE;
    fl_matrices_copy(job, a, matrix, (int64_t)n * n);
    job->lapack->syevd(job->out[1] ? "V" : "N", job->choice == 1 ? "L" : "U", &n, a, &lda,
                       fl_matrices_out(job, 0, i, n), scratch, &job->lwork, ints, &job->liwork, &info, 1, 1);
    if (job->out[1] && !info) fl_matrices_transpose(job, fl_matrices_out(job, 1, i, (int64_t)n * n), n, a, n, n, n);
    return info;
}

static double eigh_operations(const fl_matrices *job) { return (job->out[1] ? 9.0 : 2.0) * job->n * job->n * job->n; }
const fl_matrix_routine fl_matrix_eigh = {plan_eigh, run_eigh, eigh_operations};

/* ---- other square matrices ---- */

static void plan_eig(fl_matrices *job)
{
    int n = job->n, lda = at_least_one(n), ask = -1, info;
    double query[2] = {0};
    job->lapack->geev("N", job->out[1] ? "V" : "N", &n, NULL, &lda, NULL, NULL, NULL, &lda, NULL, &lda, (void *)query,
                      &ask, &info, 1, 1);
    job->lwork = work_size(job, query, 4 * n);
    job->bytes = 2 * whole(job) + fl_matrices_room(job, n) + fl_matrices_room(job, job->lwork);
}

static int run_eig(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, lda = at_least_one(n), info;
    const void *matrix = fl_matrices_in(job, 0, i, (int64_t)n * n);
    void *a = fl_matrices_take(&scratch, whole(job)), *vectors = fl_matrices_take(&scratch, whole(job));
    void *imaginary = fl_matrices_take(&scratch, fl_matrices_room(job, n));
    if (!fl_matrices_finite(job, matrix, (int64_t)n * n)) return FL_MATRIX_NOT_FINITE;
    fl_matrices_transpose(job, a, n, matrix, n, n, n);
    job->lapack->geev("N", job->out[1] ? "V" : "N", &n, a, &lda, fl_matrices_out(job, 0, i, n), imaginary, NULL, &lda,
                      vectors, &lda, scratch, &job->lwork, &info, 1, 1);
    for (int j = 0; j < n && !info; j++)
        if (fl_matrices_get(job, imaginary, j) != 0) return FL_MATRIX_COMPLEX;
    if (job->out[1] && !info)
        fl_matrices_transpose(job, fl_matrices_out(job, 1, i, (int64_t)n * n), n, vectors, n, n, n);
    return info;
}

static double eig_operations(const fl_matrices *job) { return 25.0 * job->n * job->n * job->n; }
const fl_matrix_routine fl_matrix_eig = {plan_eig, run_eig, eig_operations};

/* ---- least squares ---- */

/* LAPACK takes one column at least. */
static int columns_of_b(const fl_matrices *job) { return at_least_one(job->k); }
static int rows_of_b(const fl_matrices *job) { return at_least_one(job->m > job->n ? job->m : job->n); }

/* One call of the driver; with lwork -1 a query of the workspace size. */
static int call_driver(const fl_matrices *job, void *a, void *b, void *s, int *ints, int *rank, void *work,
                       const int *lwork)
{
    int m = job->m, n = job->n, k = columns_of_b(job), lda = at_least_one(m), ldb = rows_of_b(job), info = 0;
    double rcond = job->rtol;
    float narrow = (float)rcond;
    const void *limit = job->dtype == FL_FLOAT64 ? (const void *)&rcond : (const void *)&narrow;
    const fl_lapack *lapack = job->lapack;
    switch ((fl_lstsq_driver)job->choice) {
    case FL_LSTSQ_GELS: lapack->gels("N", &m, &n, &k, a, &lda, b, &ldb, work, lwork, &info, 1); break;
    case FL_LSTSQ_GELSY: lapack->gelsy(&m, &n, &k, a, &lda, b, &ldb, ints, limit, rank, work, lwork, &info); break;
    case FL_LSTSQ_GELSD: lapack->gelsd(&m, &n, &k, a, &lda, b, &ldb, s, limit, rank, work, lwork, ints, &info); break;
    case FL_LSTSQ_GELSS: lapack->gelss(&m, &n, &k, a, &lda, b, &ldb, s, limit, rank, work, lwork, &info); break;
    }
    return info;
}

static void plan_lstsq(fl_matrices *job)
{
    double query[2] = {0};
    int ints[1] = {0}, rank = 0, ask = -1;
    call_driver(job, NULL, NULL, NULL, ints, &rank, query, &ask);
    job->lwork = work_size(job, query, 1);
    job->liwork = job->choice == FL_LSTSQ_GELSD ? at_least_one(ints[0]) : at_least_one(job->n);
    job->bytes = whole(job) + fl_matrices_room(job, (int64_t)rows_of_b(job) * columns_of_b(job))
        + fl_matrices_room(job, job->lwork) + fl_matrices_room_of_ints(job->liwork)
        + fl_matrices_room(job, least_of(job));
}

/* b by columns: the solution in its first n rows, and below what is left of each column, rotated; without full rank
** there is more left than that. */
static void take_solution(const fl_matrices *job, int64_t i, const void *b, bool full_rank)
{
    int n = job->n, k = job->k, ldb = rows_of_b(job);
    fl_matrices_transpose(job, fl_matrices_out(job, 0, i, (int64_t)n * k), k, b, ldb, k, n);
    for (int c = 0; c < k; c++) {
        double sum = 0;
        for (int r = n; r < job->m; r++) {
            double left = fl_matrices_get(job, b, (int64_t)c * ldb + r);
            sum += left * left;
        }
        fl_matrices_set(job, job->out[1], i * k + c, full_rank ? sum : NAN);
    }
}

static int run_lstsq(const fl_matrices *job, int64_t i, char *scratch)
{
    int m = job->m, n = job->n, k = job->k, ldb = rows_of_b(job), rank = least_of(job);
    void *a = fl_matrices_take(&scratch, whole(job));
    void *b = fl_matrices_take(&scratch, fl_matrices_room(job, (int64_t)ldb * columns_of_b(job)));
    int *ints = fl_matrices_take(&scratch, fl_matrices_room_of_ints(job->liwork));
    void *s = fl_matrices_take(&scratch, fl_matrices_room(job, rank));
    const void *matrix = fl_matrices_in(job, 0, i, (int64_t)m * n), *right = fl_matrices_in(job, 1, i, (int64_t)m * k);
    if (!fl_matrices_finite(job, matrix, (int64_t)m * n) || !fl_matrices_finite(job, right, (int64_t)m * k))
        return FL_MATRIX_NOT_FINITE;
    fl_matrices_transpose(job, a, at_least_one(m), matrix, n, m, n);
    fl_matrices_clear(job, b, (int64_t)ldb * columns_of_b(job));
    fl_matrices_transpose(job, b, ldb, right, k, m, k);
    memset(ints, 0, (size_t)job->liwork * sizeof *ints);
    if (rank == 0) fl_matrices_clear(job, b, (int64_t)ldb * k); /* A without elements: LAPACK leaves B as it is */
    int info = call_driver(job, a, b, job->out[3] ? fl_matrices_out(job, 3, i, rank) : s, ints, &rank, scratch,
                           &job->lwork);
    take_solution(job, i, b, rank == n || job->choice < FL_LSTSQ_GELSD);
    ((int64_t *)job->out[2])[i] = rank;
    return info;
}

static double lstsq_operations(const fl_matrices *job) { return 4.0 * job->m * job->n * (least_of(job) + job->k); }
const fl_matrix_routine fl_matrix_lstsq = {plan_lstsq, run_lstsq, lstsq_operations};
