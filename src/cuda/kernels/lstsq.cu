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

static int least(const fl_solver *s) { return s->m < s->n ? s->m : s->n; }

/* ---- products ---- */

/* c [count, m, n] = a [count, m, k] b [count, k, n], row-major. */
static fl_status multiply(const fl_solver *s, void *c, const void *a, const void *b, int64_t m, int64_t n, int64_t k)
{
    fl_cuda_gemm g;
    memset(&g, 0, sizeof g);
    g.dtype = s->dtype;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = (char *)a;
    g.b = (char *)b;
    g.c = (char *)c;
    g.a_row = k;
    g.b_row = n;
    g.a_col = g.b_col = 1;
    g.batch = s->count > 1;
    g.size[0] = s->count;
    g.a_step[0] = m * k;
    g.b_step[0] = k * n;
    return fl_cuda_gemm_run(&g);
}

static fl_status solve(const fl_solver *s, const struct squares *q)
{
    void *inverse;
    fl_cuda_array a;
    FL_TRY(fl_cuda_malloc(&inverse, (size_t)(s->count * s->n * s->m) * fl_dtype_size(s->dtype)));
    fl_status status = fl_solver_pinv(s, inverse, q->values.view.data, 0, q->rtol);
    if (status == FL_OK && q->k) status = multiply(s, q->x.view.data, inverse, q->b, s->n, q->k, s->m);
    fl_cuda_free(inverse);
    if (status != FL_OK || q->k == 0) return status;
    FL_TRY(fl_cuda_array_open(&a, &s->kernel->in[A], s->dtype));
    status = multiply(s, q->product, a.view.data, q->x.view.data, s->m, q->k, s->n);
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

static fl_status judge(const fl_solver *s, const struct squares *q, int64_t *rank, void *sums)
{
    return fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        int64_t columns = s->count * q->k;
        FL_LAUNCH((count_values<T>), fl_blocks(s->count, THREADS), THREADS, 0, rank, s->info,
                  (const T *)q->values.view.data, s->count, least(s), q->rtol, q->driver == GELS);
        if (columns)
            FL_LAUNCH((residuals<T>), fl_blocks(columns, THREADS), THREADS, 0, (T *)sums, (const T *)q->b,
                      (const T *)(least(s) ? q->product : NULL), (const int64_t *)rank, columns, s->m, s->n, q->k,
                      q->driver >= GELSD);
        return fl_cuda_check(s->name);
    });
}

static fl_status store_judgement(const fl_solver *s, const struct squares *q)
{
    const fl_view *out = s->kernel->out;
    fl_cuda_array rank, sums;
    FL_TRY(fl_cuda_array_room(&rank, &out[RANK], FL_INT64));
    fl_status status = fl_cuda_array_room(&sums, &out[RESIDUALS], s->dtype);
    if (status == FL_OK) {
        status = judge(s, q, (int64_t *)rank.view.data, sums.view.data);
        if (status == FL_OK) status = fl_cuda_array_store(&out[RESIDUALS], &sums);
        fl_cuda_array_close(&sums);
    }
    if (status == FL_OK) status = fl_cuda_array_store(&out[RANK], &rank);
    fl_cuda_array_close(&rank);
    return status;
}

/* ---- the op ---- */

/* B in memory of its own, and behind it room for A X. */
static fl_status take_b(const fl_solver *s, struct squares *q)
{
    const fl_view *b = &s->kernel->in[B];
    size_t bytes = (size_t)b->numel * fl_dtype_size(s->dtype);
    int64_t stride[FL_MAX_NDIM];
    q->b = q->product = NULL;
    if (b->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_malloc(&q->b, 2 * bytes));
    q->product = (char *)q->b + bytes;
    fl_view copy = fl_view_array(b, q->b, s->dtype, stride);
    FL_TRY(fl_cuda_copy_view(&copy, b));
    return fl_solver_keep_finite(s, q->b, s->m, q->k);
}

/* Matrices without elements have the solution 0. */
static fl_status least_squares(const fl_solver *s, struct squares *q)
{
    const fl_view *out = s->kernel->out;
    FL_TRY(take_b(s, q));
    if (least(s)) FL_TRY(solve(s, q));
    else if (q->x.view.numel)
        cudaMemsetAsync(q->x.view.data, 0, (size_t)q->x.view.numel * fl_dtype_size(s->dtype), fl_cuda_stream());
    FL_TRY(store_judgement(s, q));
    FL_TRY(fl_cuda_array_store(&out[X], &q->x));
    FL_TRY(fl_cuda_array_store(&out[VALUES], &q->values));
    return fl_solver_report(s, NULL, FL_MATRIX_NOT_FULL_RANK);
}

static void read_attributes(struct squares *q, const fl_solver *s)
{
    const fl_attr *attr = s->kernel->attrs->at;
    const fl_view *b = &s->kernel->in[B];
    double epsilon = s->dtype == FL_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;
    q->k = (int)b->size[b->ndim - 1];
    q->driver = (int)attr[DRIVER].integer;
    q->rtol = attr[RCOND].given && q->driver != GELS ? attr[RCOND].number : epsilon * (s->m > s->n ? s->m : s->n);
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
