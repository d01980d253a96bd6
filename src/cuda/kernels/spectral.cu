/*
** spectral.cu -- eigenvalues of symmetric matrices, singular values, pseudoinverses.
**
** The library never sees what is not a number: such elements become 0 in its copy, and the matrix is reported.
*/
#include "copies.h"
#include "cusolver.h"
#include "gemm.h"

extern "C" {
#include "core/op/pinv.h"
}

enum { THREADS = FL_SOLVER_THREADS };
enum { WHOLE, LOWER, UPPER }; /* the part of a matrix that is read */

/* a [count, rows, columns], row-major; of a matrix and its transpose the same elements are read. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    keep_finite(T *a, int *found, int64_t elements, int64_t rows, int64_t columns, int half)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    int64_t row = i / columns % rows, column = i % columns;
    bool read = half == WHOLE || (half == LOWER ? column <= row : column >= row);
    if (!read || isfinite(a[i])) return;
    a[i] = 0;
    found[i / columns / rows] = FL_MATRIX_NOT_FINITE;
}

static fl_status look(const fl_solver *s, void *a, int64_t rows, int64_t columns, int half)
{
    int64_t elements = s->count * rows * columns;
    if (elements == 0) return FL_OK;
    return fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((keep_finite<T>), fl_blocks(elements, THREADS), THREADS, 0, (T *)a, s->found, elements, rows, columns,
                  half);
        return fl_cuda_check(s->name);
    });
}

fl_status fl_solver_keep_finite(const fl_solver *s, void *a, int64_t rows, int64_t columns)
{
    return look(s, a, rows, columns, WHOLE);
}

/* ---- symmetric matrices ---- */

/* Row-major matrices, which the routine reads by columns: the halves change places. They become the vectors, as
** columns. */
struct symmetric {
    int mode, fill;
    void *a, *values;
};

/* By Jacobi's method: many small matrices at once. */
template<typename T>
static fl_status eigen_batch(const fl_solver *s, const struct symmetric *d)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    T *a = (T *)d->a, *values = (T *)d->values;
    return fl_solver_parts(s, [&](int64_t first, int count) {
        int elements = 0;
        T *own = a + first * s->n * s->n, *own_values = values + first * s->n, *work;
        FL_TRY(fl_solver_check(s, "cuSOLVER's syevjBatched_bufferSize",
                               lib.syevjBatched_bufferSize(s->handle, d->mode, d->fill, s->n, own, s->n, own_values,
                                                           &elements, s->eigen_jacobi, count)));
        FL_TRY(fl_cuda_malloc((void **)&work, (size_t)(elements > 0 ? elements : 1) * sizeof(T)));
        fl_status status = fl_solver_check(s, "cuSOLVER's syevjBatched",
                                           lib.syevjBatched(s->handle, d->mode, d->fill, s->n, own, s->n, own_values,
                                                            work, elements, s->info + first, s->eigen_jacobi, count));
        fl_cuda_free(work);
        return status;
    });
}

template<typename T>
static fl_status eigen_each(const fl_solver *s, const struct symmetric *d)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0;
    T *a = (T *)d->a, *values = (T *)d->values;
    FL_TRY(fl_solver_check(s, "cuSOLVER's syevd_bufferSize",
                           lib.syevd_bufferSize(s->handle, d->mode, d->fill, s->n, a, s->n, values, &elements)));
    return fl_solver_each<T>(s, elements, [&](int64_t i, T *work) {
        return fl_solver_check(s, "cuSOLVER's syevd",
                               lib.syevd(s->handle, d->mode, d->fill, s->n, a + i * s->n * s->n, s->n,
                                         values + i * s->n, work, elements, s->info + i));
    });
}

/* A symmetric matrix by columns is its other half by rows. */
static fl_status eigh(const fl_solver *s, const fl_cuda_array *a, const fl_cuda_array *values)
{
    enum { ATTRIBUTE };
    fl_kernel *kernel = s->kernel;
    bool upper = kernel->attrs->at[ATTRIBUTE].integer != 0, vectors = kernel->nout == 2;
    int64_t stride[FL_MAX_NDIM];
    fl_view rows = fl_view_array(&kernel->in[0], a->memory, s->dtype, stride);
    FL_TRY(fl_cuda_copy_view(&rows, &kernel->in[0]));
    FL_TRY(look(s, a->memory, s->n, s->n, upper ? UPPER : LOWER));
    struct symmetric d = {vectors ? EIGEN_VECTORS : EIGEN_VALUES, upper ? FILL_LOWER : FILL_UPPER, a->memory,
                          values->view.data};
    FL_TRY(fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        return fl_solver_is_small_batch(s, s->n) ? eigen_batch<T>(s, &d) : eigen_each<T>(s, &d);
    }));
    if (vectors) FL_TRY(fl_solver_take(&kernel->out[1], a));
    FL_TRY(fl_cuda_array_store(&kernel->out[0], values));
    return fl_solver_report(s, NULL, FL_MATRIX_NO_EIGENVALUES);
}

static fl_status launch_eigh(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array a, values;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, kernel->name));
    fl_status status = fl_solver_columns_room(&a, &kernel->in[0], (int64_t)s.n * s.n);
    if (status == FL_OK) {
        status = fl_cuda_array_room(&values, &kernel->out[0], s.dtype);
        if (status == FL_OK) {
            status = eigh(&s, &a, &values);
            fl_cuda_array_close(&values);
        }
        fl_cuda_array_close(&a);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_LINALG_OP(eigh, launch_eigh);
FL_CUDA_LINALG_OP(eigvalsh, launch_eigh);

/* ---- singular values ---- */

/* The routine takes matrices with at least as many rows as columns. A wide A is given to it as its transpose, which it
** is by columns: A^T = V S U^T, and what it writes by columns is V^T and U by rows. */
struct decomposition {
    bool wide;
    char job; /* as LAPACK's: A, S or N */
    void *a, *u, *s, *vt;
    int u_columns, vt_rows; /* of the results, by rows or by columns */
};

static struct decomposition decomposition_of(const fl_solver *s, char job)
{
    struct decomposition d = {};
    d.wide = s->m <= s->n;
    d.job = job;
    return d;
}

static int least(const fl_solver *s) { return s->m < s->n ? s->m : s->n; }

/* The operands and results of the routine, by columns: matrices [rows, columns], their first factor [rows, .] and the
** transposed second one [columns, columns]; elements from one to the next. */
template<typename T>
struct by_columns {
    int rows, columns;
    T *a, *s, *first, *second; /* the factors: NULL where only values are wanted */
    int64_t first_step, second_step;
};

template<typename T>
static struct by_columns<T> by_columns_of(const fl_solver *s, const struct decomposition *d) {
    struct by_columns<T> c = {
    };
    c.rows = d->wide ? s->n : s->m;
    c.columns = d->wide ? s->m : s->n;
    c.a = (T *)d->a;
    c.s = (T *)d->s;
    c.first = (T *)(d->wide ? d->vt : d->u);
    c.second = (T *)(d->wide ? d->u : d->vt);
    c.first_step = c.first ? (int64_t)c.rows * (d->wide ? d->vt_rows : d->u_columns) : 0;
    c.second_step = c.second ? (int64_t)c.columns * c.columns : 0;
    return c;
}

template<typename T>
static fl_status decompose_each(const fl_solver *s, const struct by_columns<T> *c, char job)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0;
    T *off_diagonal;
    FL_TRY(fl_solver_check(s, "cuSOLVER's gesvd_bufferSize",
                           lib.gesvd_bufferSize(s->handle, c->rows, c->columns, &elements)));
    FL_TRY(fl_cuda_malloc((void **)&off_diagonal, (size_t)c->columns * sizeof(T)));
    fl_status status = fl_solver_each<T>(s, elements, [&](int64_t i, T *work) {
        return fl_solver_check(s, "cuSOLVER's gesvd",
                               lib.gesvd(s->handle, job, job, c->rows, c->columns, c->a + i * c->rows * c->columns,
                                         c->rows, c->s + i * c->columns, c->first + i * c->first_step, c->rows,
                                         c->second + i * c->second_step, c->columns, work, elements, off_diagonal,
                                         s->info + i));
    });
    fl_cuda_free(off_diagonal);
    return status;
}

/* first: the first columns of u [rows, rows]; second: v [columns, columns] transposed. */
template<typename T>
__global__ void __launch_bounds__(THREADS) take_vectors(struct by_columns<T> c, const T *u, const T *v, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, square = (int64_t)c.columns * c.columns;
    if (i < count * c.first_step) c.first[i] = u[i / c.first_step * c.rows * c.rows + i % c.first_step];
    if (i < count * square) {
        int64_t matrix = i / square, row = i % c.columns, column = i % square / c.columns;
        c.second[i] = v[matrix * square + row * c.columns + column];
    }
}

/* By Jacobi's method: many small matrices at once. u, v: room for square factors of each */
template<typename T>
static fl_status decompose_parts(const fl_solver *s, const struct by_columns<T> *c, T *u, T *v)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int mode = c->first ? EIGEN_VECTORS : EIGEN_VALUES, m = c->rows, n = c->columns;
    return fl_solver_parts(s, [&](int64_t first, int count) {
        int elements = 0;
        T *a = c->a + first * m * n, *values = c->s + first * n, *own_u = u + first * m * m, *own_v = v + first * n * n,
          *work;
        FL_TRY(fl_solver_check(s, "cuSOLVER's gesvdjBatched_bufferSize",
                               lib.gesvdjBatched_bufferSize(s->handle, mode, m, n, a, m, values, own_u, m, own_v, n,
                                                            &elements, s->svd_jacobi, count)));
        FL_TRY(fl_cuda_malloc((void **)&work, (size_t)(elements > 0 ? elements : 1) * sizeof(T)));
        fl_status status = fl_solver_check(s, "cuSOLVER's gesvdjBatched",
                                           lib.gesvdjBatched(s->handle, mode, m, n, a, m, values, own_u, m, own_v, n,
                                                             work, elements, s->info + first, s->svd_jacobi, count));
        fl_cuda_free(work);
        return status;
    });
}

template<typename T>
static fl_status decompose_batch(const fl_solver *s, const struct by_columns<T> *c)
{
    int64_t of_u = s->count * c->rows * c->rows, of_v = s->count * c->columns * c->columns;
    T *u;
    FL_TRY(fl_cuda_malloc((void **)&u, (size_t)(of_u + of_v) * sizeof(T)));
    fl_status status = decompose_parts(s, c, u, u + of_u);
    if (status == FL_OK && c->first) {
        int64_t most = of_v > s->count * c->first_step ? of_v : s->count * c->first_step;
        FL_LAUNCH((take_vectors<T>), fl_blocks(most, THREADS), THREADS, 0, *c, (const T *)u, (const T *)(u + of_u),
                  s->count);
        status = fl_cuda_check(s->name);
    }
    fl_cuda_free(u);
    return status;
}

template<typename T>
static fl_status decompose(const fl_solver *s, const struct decomposition *d)
{
    struct by_columns<T> c = by_columns_of<T>(s, d);
    return fl_solver_is_small_batch(s, c.rows) ? decompose_batch(s, &c) : decompose_each(s, &c, d->job);
}

/* The operand as the routine takes it, and its decomposition into u, s, vt. */
static fl_status decompose_operand(const fl_solver *s, struct decomposition *d)
{
    fl_cuda_array a;
    const fl_view *in = &s->kernel->in[0];
    FL_TRY(fl_solver_columns_room(&a, in, (int64_t)s->m * s->n));
    int64_t stride[FL_MAX_NDIM];
    fl_view rows = fl_view_array(in, a.memory, s->dtype, stride);
    fl_status status = fl_cuda_copy_view(d->wide ? &rows : &a.view, in);
    if (status == FL_OK) status = fl_solver_keep_finite(s, a.memory, s->m, s->n);
    d->a = a.memory;
    if (status == FL_OK) status = fl_solver_typed(s, [&](auto like) { return decompose<decltype(like)>(s, d); });
    fl_cuda_array_close(&a);
    return status;
}

/* The results of linalg.svd. */
enum { SVD_U, SVD_S, SVD_VT };

/* Room for the first matrix of a decomposition: where a wide A leaves it, or by columns. */
static fl_status room_of(fl_cuda_array *a, const fl_view *out, bool wide)
{
    if (wide) return fl_cuda_array_room(a, out, out->dtype);
    return fl_solver_columns_room(a, out, out->size[out->ndim - 2] * out->size[out->ndim - 1]);
}

static fl_status store(const fl_view *out, const fl_cuda_array *a, bool wide)
{
    return wide ? fl_cuda_array_store(out, a) : fl_solver_take(out, a);
}

static fl_status identities(const fl_solver *s, const fl_cuda_array *a, const fl_view *out)
{
    int n = (int)out->size[out->ndim - 1];
    if (out->numel == 0) return FL_OK;
    return fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((fl_solver_identity<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)a->view.data, out->numel, n,
                  n);
        return fl_cuda_check(s->name);
    });
}

/* Of matrices without elements the vectors are those of the identity. */
static fl_status svd_into(const fl_solver *s, struct decomposition *d, const fl_cuda_array *u,
                          const fl_cuda_array *values, const fl_cuda_array *vt)
{
    const fl_view *out = s->kernel->out;
    if (least(s) == 0) {
        FL_TRY(identities(s, u, &out[SVD_U]));
        FL_TRY(identities(s, vt, &out[SVD_VT]));
    } else {
        d->u = u->view.data;
        d->s = values->view.data;
        d->vt = vt->view.data;
        FL_TRY(decompose_operand(s, d));
    }
    FL_TRY(store(&out[SVD_U], u, d->wide));
    FL_TRY(store(&out[SVD_VT], vt, d->wide));
    FL_TRY(fl_cuda_array_store(&out[SVD_S], values));
    return fl_solver_report(s, NULL, FL_MATRIX_NO_DECOMPOSITION);
}

static fl_status svd(const fl_solver *s)
{
    const fl_view *out = s->kernel->out;
    fl_cuda_array u, values, vt;
    enum { FULL };
    struct decomposition d = decomposition_of(s, s->kernel->attrs->at[FULL].integer ? 'A' : 'S');
    d.u_columns = (int)out[SVD_U].size[out[SVD_U].ndim - 1];
    d.vt_rows = (int)out[SVD_VT].size[out[SVD_VT].ndim - 2];
    FL_TRY(room_of(&u, &out[SVD_U], d.wide));
    fl_status status = room_of(&vt, &out[SVD_VT], d.wide);
    if (status == FL_OK) {
        status = fl_cuda_array_room(&values, &out[SVD_S], s->dtype);
        if (status == FL_OK) {
            status = svd_into(s, &d, &u, &values, &vt);
            fl_cuda_array_close(&values);
        }
        fl_cuda_array_close(&vt);
    }
    fl_cuda_array_close(&u);
    return status;
}

static fl_status launch_svd(fl_kernel *kernel)
{
    fl_solver s;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.svd"));
    fl_status status = svd(&s);
    fl_solver_close(&s);
    return status;
}

FL_CUDA_LINALG_OP(svd, launch_svd);

static fl_status launch_svdvals(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array values;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.svdvals"));
    fl_status status = fl_cuda_array_room(&values, &kernel->out[0], s.dtype);
    if (status == FL_OK) {
        struct decomposition d = decomposition_of(&s, 'N');
        d.s = values.view.data;
        status = decompose_operand(&s, &d);
        if (status == FL_OK) status = fl_cuda_array_store(&kernel->out[0], &values);
        if (status == FL_OK) status = fl_solver_report(&s, NULL, FL_MATRIX_NO_DECOMPOSITION);
        fl_cuda_array_close(&values);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_LINALG_OP(svdvals, launch_svdvals);

/* ---- pseudoinverses ---- */

/* The square factor [k, k] of each decomposition, whose columns by columns belong to singular values, divided by them;
** values up to the tolerance count as infinite. */
template<typename T>
__global__ void __launch_bounds__(THREADS)
    divide_by_values(T *square, const T *values, int64_t elements, int k, double atol, double rtol)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    const T *own = values + i / k / k * k;
    double value = (double)own[i % k], limit = fmax(atol, rtol * (double)own[0]);
    square[i] = value > limit ? (T)((double)square[i] / value) : (T)0;
}

/* X [n, m] = V [n, k] (U S^-1)^T, where d has U and V^T as the routine leaves them. */
static fl_status multiply(const fl_solver *s, const struct decomposition *d, void *x)
{
    fl_cuda_gemm g;
    int k = least(s);
    memset(&g, 0, sizeof g);
    g.dtype = s->dtype;
    g.m = s->n;
    g.n = s->m;
    g.k = k;
    g.a = (char *)d->vt;
    g.b = (char *)d->u;
    g.c = (char *)x;
    g.a_row = d->wide ? 1 : k;
    g.a_col = d->wide ? s->n : 1;
    g.b_row = d->wide ? 1 : s->m;
    g.b_col = d->wide ? k : 1;
    g.batch = s->count > 1;
    g.size[0] = s->count;
    g.a_step[0] = (int64_t)k * s->n;
    g.b_step[0] = (int64_t)s->m * k;
    return fl_cuda_gemm_run(&g);
}

static fl_status invert(const fl_solver *s, struct decomposition *d, void *x, double atol, double rtol)
{
    int k = least(s);
    int64_t elements = s->count * k * k;
    FL_TRY(decompose_operand(s, d));
    FL_TRY(fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((divide_by_values<T>), fl_blocks(elements, THREADS), THREADS, 0, (T *)(d->wide ? d->u : d->vt),
                  (const T *)d->s, elements, k, atol, rtol);
        return fl_cuda_check(s->name);
    }));
    return multiply(s, d, x);
}

fl_status fl_solver_pinv(const fl_solver *s, void *x, void *values, double atol, double rtol)
{
    struct decomposition d = decomposition_of(s, 'S');
    size_t item = fl_dtype_size(s->dtype), vectors = (size_t)s->count * (size_t)least(s);
    d.u_columns = d.vt_rows = least(s);
    d.s = values;
    FL_TRY(fl_cuda_malloc(&d.u, vectors * ((size_t)s->m + (size_t)s->n) * item));
    d.vt = (char *)d.u + vectors * (size_t)s->m * item;
    fl_status status = invert(s, &d, x, atol, rtol);
    fl_cuda_free(d.u);
    return status;
}

static fl_status pseudoinverse(const fl_solver *s, void *x)
{
    double atol, rtol;
    void *values;
    fl_pinv_tolerances(&atol, &rtol, s->kernel->attrs, s->dtype, s->m, s->n);
    FL_TRY(fl_cuda_malloc(&values, (size_t)s->count * (size_t)least(s) * fl_dtype_size(s->dtype)));
    fl_status status = fl_solver_pinv(s, x, values, atol, rtol);
    fl_cuda_free(values);
    return status;
}

static fl_status launch_pinv(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array x;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.pinv"));
    fl_status status = fl_cuda_array_room(&x, &kernel->out[0], s.dtype);
    if (status == FL_OK) {
        status = pseudoinverse(&s, x.view.data);
        if (status == FL_OK) status = fl_cuda_array_store(&kernel->out[0], &x);
        if (status == FL_OK) status = fl_solver_report(&s, NULL, FL_MATRIX_NO_DECOMPOSITION);
        fl_cuda_array_close(&x);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_OP(linalg_pseudoinverse, launch_pinv);
