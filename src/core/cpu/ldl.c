/*
** ldl.c -- L D L^T factors of symmetric matrices, and systems with them: see matrices.h.
*/
#include "matrices.h"

static int leading(int n) { return n > 1 ? n : 1; }

static double cube(const fl_matrices *job) { return (double)job->n * job->n * job->n / 3; }

static void plan_ldl(fl_matrices *job)
{
    int n = job->n, lda = leading(n), ask = -1, info;
    double query[2] = {0};
    job->lapack->sytrf("L", &n, NULL, &lda, NULL, (void *)query, &ask, &info, 1);
    job->lwork = (int)fl_matrices_get(job, query, 0);
    if (job->lwork < leading(n)) job->lwork = leading(n);
    job->bytes = fl_matrices_room(job, (int64_t)n * n) + fl_matrices_room(job, job->lwork)
        + fl_matrices_room_of_ints(n);
}

/* The factors from a matrix by columns, with zeros above the diagonal. */
static void take_lower(const fl_matrices *job, void *out, const void *a)
{
    int64_t n = job->n;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++)
            fl_matrices_set(job, out, r * n + c, c > r ? 0 : fl_matrices_get(job, a, c * n + r));
}

static int run_ldl(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, lda = leading(n), info = 0;
    int64_t elements = (int64_t)n * n, *exchanges = (int64_t *)job->out[1] + i * n;
    void *a = fl_matrices_take(&scratch, fl_matrices_room(job, elements));
    void *work = fl_matrices_take(&scratch, fl_matrices_room(job, job->lwork));
    int *pivots = (int *)scratch;
    fl_matrices_transpose(job, a, n, fl_matrices_in(job, 0, i, elements), n, n, n);
    if (n) job->lapack->sytrf("L", &n, a, &lda, pivots, work, &job->lwork, &info, 1);
    take_lower(job, fl_matrices_out(job, 0, i, elements), a);
    for (int j = 0; j < n; j++) exchanges[j] = pivots[j];
    ((int64_t *)job->out[2])[i] = info;
    return 0;
}
const fl_matrix_routine fl_matrix_ldl = {plan_ldl, run_ldl, cube};

/* ---- systems ---- */

static void plan_ldl_solve(fl_matrices *job)
{
    int64_t n = job->n;
    job->bytes = fl_matrices_room(job, n * n) + fl_matrices_room(job, n * job->k) + fl_matrices_room_of_ints(n);
}

static double solve_operations(const fl_matrices *job) { return 2.0 * job->n * job->n * job->k; }

/* Exchanges as LAPACK takes them: a row from 1 on, or the same negative number twice where D has a block of two rows.
** The first entry that is neither, from 1; 0: there is none. */
static int copy_pivots(int *pivots, const int64_t *given, int n)
{
    for (int i = 0, rows; i < n; i += rows) {
        rows = given[i] < 0 ? 2 : 1;
        if (given[i] == 0 || given[i] > n || given[i] < -n || i + rows > n || given[i + rows - 1] != given[i])
            return i + 1;
        for (int r = 0; r < rows; r++) pivots[i + r] = (int)given[i];
    }
    return 0;
}

static int run_ldl_solve(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, k = job->k, lda = leading(n), info = 0;
    int64_t elements = (int64_t)n * n, columns = (int64_t)n * k;
    void *a = fl_matrices_take(&scratch, fl_matrices_room(job, elements));
    void *b = fl_matrices_take(&scratch, fl_matrices_room(job, columns));
    int *pivots = (int *)scratch, wrong = copy_pivots(pivots, (const int64_t *)job->in[1] + i * n, n);
    if (wrong) return wrong;
    fl_matrices_transpose(job, a, n, fl_matrices_in(job, 0, i, elements), n, n, n);
    fl_matrices_transpose(job, b, n, fl_matrices_in(job, 2, i, columns), k, n, k);
    job->lapack->sytrs("L", &n, &k, a, &lda, pivots, b, &lda, &info, 1);
    fl_matrices_transpose(job, fl_matrices_out(job, 0, i, columns), k, b, n, k, n);
    return 0;
}
const fl_matrix_routine fl_matrix_ldl_solve = {plan_ldl_solve, run_ldl_solve, solve_operations};
