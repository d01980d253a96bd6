/*
** lu.c -- LU factors as results of their own: see matrices.h.
*/
#include "matrices.h"

static int least(const fl_matrices *job) { return job->m < job->n ? job->m : job->n; }
static int leading(int n) { return n > 1 ? n : 1; }

static void plan_lu(fl_matrices *job)
{
    job->bytes = fl_matrices_room(job, (int64_t)job->m * job->n) + fl_matrices_room_of_ints(least(job));
}

static double lu_operations(const fl_matrices *job) { return (double)job->m * job->n * least(job); }

/* The rows of A in the order in which the exchanges leave them. */
static void order_rows(int64_t *order, const int *pivots, int m, int k)
{
    for (int i = 0; i < m; i++) order[i] = i;
    for (int i = 0; i < k; i++) {
        int64_t moved = order[i];
        order[i] = order[pivots[i] - 1];
        order[pivots[i] - 1] = moved;
    }
}

static int run_lu(const fl_matrices *job, int64_t i, char *scratch)
{
    int m = job->m, n = job->n, k = least(job), lda = leading(m), info = 0;
    int64_t *order = (int64_t *)job->out[1] + i * m, *exchanges = (int64_t *)job->out[2] + i * k;
    void *columns = fl_matrices_take(&scratch, fl_matrices_room(job, (int64_t)m * n));
    int *pivots = (int *)scratch;
    fl_matrices_transpose(job, columns, m, fl_matrices_in(job, 0, i, (int64_t)m * n), n, m, n);
    if (k) job->lapack->getrf(&m, &n, columns, &lda, pivots, &info);
    fl_matrices_transpose(job, fl_matrices_out(job, 0, i, (int64_t)m * n), n, columns, m, n, m);
    order_rows(order, pivots, m, k);
    for (int j = 0; j < k; j++) exchanges[j] = pivots[j];
    ((int64_t *)job->out[3])[i] = info;
    return 0;
}
const fl_matrix_routine fl_matrix_lu = {plan_lu, run_lu, lu_operations};
