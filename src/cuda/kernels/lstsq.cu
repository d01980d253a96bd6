/*
** lstsq.cu -- least squares: X = A^+ B, by singular values whatever the driver, which decides what counts as full rank.
*/
#include "copies.h"
#include "cusolver.h"
#include "gemm.h"

#include <float.h>

enum { THREADS = FL_SOLVER_THREADS };

/* Operands, results, attributes and drivers of linalg_least_squares. */
enum { A, B };
enum { X, RESIDUALS, RANK, VALUES };
enum { RCOND, DRIVER };
enum { GELS, GELSY, GELSD, GELSS };

/* Row-major: the operand B, whose elements are finite, the results X and S, what A X is. */
struct squares {
    fl_cuda_array x, values;
    void *b, *product;
    int k; /* columns of B and X */
    int driver;
    double rtol;
};

static int least(const fl_solver *solver) { return solver->m < solver->n ? solver->m : solver->n; }

/* ---- products ---- */

/* c [count, m, n] = a [count, m, k] b [count, k, n], row-major. */
static fl_status multiply(const fl_solver *solver, void *c, const void *a, const void *b, int64_t m, int64_t n,
                          int64_t k)
{
    fl_cuda_gemm g;
    memset(&g, 0, sizeof g);
    g.dtype = solver->dtype;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = (char *)a;
    g.b = (char *)b;
    g.c = (char *)c;
    g.a_row = k;
    g.b_row = n;
    g.a_col = g.b_col = 1;
    g.batch = solver->count > 1;
    g.size[0] = solver->count;
    g.a_step[0] = m * k;
    g.b_step[0] = k * n;
    return fl_cuda_gemm_run(&g);
}

static fl_status solve(const fl_solver *solver, const struct squares *squares)
{
    void *inverse;
    fl_cuda_array a;
    FL_TRY(fl_cuda_malloc(&inverse, (size_t)(solver->count * solver->n * solver->m) * fl_dtype_size(solver->dtype)));
    fl_status status = fl_solver_pinv(solver, inverse, squares->values.view.data, 0, squares->rtol);
    if (status == FL_OK && squares->k)
        status = multiply(solver, squares->x.view.data, inverse, squares->b, solver->n, squares->k, solver->m);
    fl_cuda_free(inverse);
    if (status != FL_OK || squares->k == 0) return status;
    FL_TRY(fl_cuda_array_open(&a, &solver->kernel->in[A], solver->dtype));
    status = multiply(solver, squares->product, a.view.data, squares->x.view.data, solver->m, squares->k, solver->n);
    fl_cuda_array_close(&a);
    return status;
}

/* ---- ranks and residuals ---- */

/* Singular values above the tolerance. The driver without ranks fails where there are fewer than it needs. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    count_values(int64_t *rank, int *info, const T *values, int64_t count, int k, double rtol, bool full)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int above = 0;
    for (int j = 0; j < k; j++) above += (double)values[i * k + j] > rtol * (double)values[i * k];
    rank[i] = above;
    if (full && above < k) info[i] = above + 1;
}

/* Squares of a column of B - A X, where A has more rows than columns; NaN without full rank, if the driver knows it. */
template<typename T>
__global__ void __launch_bounds__(THREADS) residuals(T *out, const T *b, const T *product, const int64_t *rank,
                                                     int64_t elements, int m, int n, int k, bool knows)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    int64_t at = i / k * m * k + i % k;
    double sum = 0;
    for (int r = 0; r < m && m > n && product; r++, at += k) {
        double off = (double)b[at] - (double)product[at];
        sum += off * off;
    }
    out[i] = knows && rank[i / k] < n ? (T)NAN : (T)sum;
}

static fl_status judge(const fl_solver *solver, const struct squares *squares, int64_t *rank, void *sums)
{
    return fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        int64_t columns = solver->count * squares->k;
        FL_LAUNCH((count_values<T>), fl_blocks(solver->count, THREADS), THREADS, 0, rank, solver->info,
                  (const T *)squares->values.view.data, solver->count, least(solver), squares->rtol,
                  squares->driver == GELS);
        if (columns)
            FL_LAUNCH((residuals<T>), fl_blocks(columns, THREADS), THREADS, 0, (T *)sums, (const T *)squares->b,
                      (const T *)(least(solver) ? squares->product : NULL), (const int64_t *)rank, columns, solver->m,
                      solver->n, squares->k, squares->driver >= GELSD);
        return fl_cuda_check(solver->name);
    });
}

static fl_status store_judgement(const fl_solver *solver, const struct squares *squares)
{
    const fl_view *out = solver->kernel->out;
    fl_cuda_array rank, sums;
    FL_TRY(fl_cuda_array_room(&rank, &out[RANK], FL_INT64));
    fl_status status = fl_cuda_array_room(&sums, &out[RESIDUALS], solver->dtype);
    if (status == FL_OK) {
        status = judge(solver, squares, (int64_t *)rank.view.data, sums.view.data);
        if (status == FL_OK) status = fl_cuda_array_store(&out[RESIDUALS], &sums);
        fl_cuda_array_close(&sums);
    }
    if (status == FL_OK) status = fl_cuda_array_store(&out[RANK], &rank);
    fl_cuda_array_close(&rank);
    return status;
}

/* ---- the op ---- */

/* B in memory of its own, and behind it room for A X. */
static fl_status take_b(const fl_solver *solver, struct squares *squares)
{
    const fl_view *b = &solver->kernel->in[B];
    size_t bytes = (size_t)b->numel * fl_dtype_size(solver->dtype);
    int64_t stride[FL_MAX_NDIM];
    squares->b = squares->product = NULL;
    if (b->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_malloc(&squares->b, 2 * bytes));
    squares->product = (char *)squares->b + bytes;
    fl_view copy = fl_view_array(b, squares->b, solver->dtype, stride);
    FL_TRY(fl_cuda_copy_view(&copy, b));
    return fl_solver_keep_finite(solver, squares->b, solver->m, squares->k);
}

/* Matrices without elements have the solution 0. */
static fl_status least_squares(const fl_solver *solver, struct squares *squares)
{
    const fl_view *out = solver->kernel->out;
    FL_TRY(take_b(solver, squares));
    if (least(solver)) FL_TRY(solve(solver, squares));
    else if (squares->x.view.numel)
        cudaMemsetAsync(squares->x.view.data, 0, (size_t)squares->x.view.numel * fl_dtype_size(solver->dtype),
                        fl_cuda_stream());
    FL_TRY(store_judgement(solver, squares));
    FL_TRY(fl_cuda_array_store(&out[X], &squares->x));
    FL_TRY(fl_cuda_array_store(&out[VALUES], &squares->values));
    return fl_solver_report(solver, NULL, FL_MATRIX_NOT_FULL_RANK);
}

static void read_attributes(struct squares *squares, const fl_solver *solver)
{
    const fl_attr *attr = solver->kernel->attrs->at;
    const fl_view *b = &solver->kernel->in[B];
    double epsilon = solver->dtype == FL_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;
    squares->k = (int)b->size[b->ndim - 1];
    squares->driver = (int)attr[DRIVER].integer;
    squares->rtol = attr[RCOND].given && squares->driver != GELS
        ? attr[RCOND].number
        : epsilon * (solver->m > solver->n ? solver->m : solver->n);
}

static fl_status launch_lstsq(fl_kernel *kernel)
{
    fl_solver s;
    struct squares q;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.lstsq"));
    read_attributes(&q, &s);
    fl_status status = fl_cuda_array_room(&q.x, &kernel->out[X], s.dtype);
    if (status == FL_OK) {
        status = fl_cuda_array_room(&q.values, &kernel->out[VALUES], s.dtype);
        if (status == FL_OK) {
            status = least_squares(&s, &q);
            if (q.b) fl_cuda_free(q.b);
            fl_cuda_array_close(&q.values);
        }
        fl_cuda_array_close(&q.x);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_OP(linalg_least_squares, launch_lstsq);
