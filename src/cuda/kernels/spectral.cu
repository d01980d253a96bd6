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

static fl_status look(const fl_solver *solver, void *a, int64_t rows, int64_t columns, int half)
{
    int64_t elements = solver->count * rows * columns;
    if (elements == 0) return FL_OK;
    return fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((keep_finite<T>), fl_blocks(elements, THREADS), THREADS, 0, (T *)a, solver->found, elements, rows,
                  columns, half);
        return fl_cuda_check(solver->name);
    });
}

fl_status fl_solver_keep_finite(const fl_solver *solver, void *a, int64_t rows, int64_t columns)
{
    return look(solver, a, rows, columns, WHOLE);
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
static fl_status eigen_batch(const fl_solver *solver, const struct symmetric *symmetric)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    T *a = (T *)symmetric->a, *values = (T *)symmetric->values;
    return fl_solver_parts(solver, [&](int64_t first, int count) {
        int elements = 0;
        T *own = a + first * solver->n * solver->n, *own_values = values + first * solver->n, *work;
        FL_TRY(fl_solver_check(solver, "cuSOLVER's syevjBatched_bufferSize",
                               lib.syevjBatched_bufferSize(solver->handle, symmetric->mode, symmetric->fill, solver->n,
                                                           own, solver->n, own_values, &elements, solver->eigen_jacobi,
                                                           count)));
        FL_TRY(fl_cuda_malloc((void **)&work, (size_t)(elements > 0 ? elements : 1) * sizeof(T)));
        fl_status status = fl_solver_check(solver, "cuSOLVER's syevjBatched",
                                           lib.syevjBatched(solver->handle, symmetric->mode, symmetric->fill, solver->n,
                                                            own, solver->n, own_values, work, elements,
                                                            solver->info + first, solver->eigen_jacobi, count));
        fl_cuda_free(work);
        return status;
    });
}

template<typename T>
static fl_status eigen_each(const fl_solver *solver, const struct symmetric *symmetric)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0;
    T *a = (T *)symmetric->a, *values = (T *)symmetric->values;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's syevd_bufferSize",
                           lib.syevd_bufferSize(solver->handle, symmetric->mode, symmetric->fill, solver->n, a,
                                                solver->n, values, &elements)));
    return fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's syevd",
                               lib.syevd(solver->handle, symmetric->mode, symmetric->fill, solver->n,
                                         a + i * solver->n * solver->n, solver->n, values + i * solver->n, work,
                                         elements, solver->info + i));
    });
}

/* A symmetric matrix by columns is its other half by rows. */
static fl_status eigh(const fl_solver *solver, const fl_cuda_array *a, const fl_cuda_array *values)
{
    enum { ATTRIBUTE };
    fl_kernel *kernel = solver->kernel;
    bool upper = kernel->attrs->at[ATTRIBUTE].integer != 0, vectors = kernel->nout == 2;
    int64_t stride[FL_MAX_NDIM];
    fl_view rows = fl_view_array(&kernel->in[0], a->memory, solver->dtype, stride);
    FL_TRY(fl_cuda_copy_view(&rows, &kernel->in[0]));
    FL_TRY(look(solver, a->memory, solver->n, solver->n, upper ? UPPER : LOWER));
    struct symmetric d = {vectors ? EIGEN_VECTORS : EIGEN_VALUES, upper ? FILL_LOWER : FILL_UPPER, a->memory,
                          values->view.data};
    FL_TRY(fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        return fl_solver_is_small_batch(solver, solver->n) ? eigen_batch<T>(solver, &d) : eigen_each<T>(solver, &d);
    }));
    if (vectors) FL_TRY(fl_solver_take(&kernel->out[1], a));
    FL_TRY(fl_cuda_array_store(&kernel->out[0], values));
    return fl_solver_report(solver, NULL, FL_MATRIX_NO_EIGENVALUES);
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

static struct decomposition decomposition_of(const fl_solver *solver, char job)
{
    struct decomposition d = {};
    d.wide = solver->m <= solver->n;
    d.job = job;
    return d;
}

static int least(const fl_solver *solver) { return solver->m < solver->n ? solver->m : solver->n; }

/* The operands and results of the routine, by columns: matrices [rows, columns], their first factor [rows, .] and the
** transposed second one [columns, columns]; elements from one to the next. */
template<typename T>
struct by_columns {
    int rows, columns;
    T *a, *s, *first, *second; /* the factors: NULL where only values are wanted */
    int64_t first_step, second_step;
};

template<typename T>
static struct by_columns<T> by_columns_of(const fl_solver *solver, const struct decomposition *decomposition) {
    struct by_columns<T> c = {
    };
    c.rows = decomposition->wide ? solver->n : solver->m;
    c.columns = decomposition->wide ? solver->m : solver->n;
    c.a = (T *)decomposition->a;
    c.s = (T *)decomposition->s;
    c.first = (T *)(decomposition->wide ? decomposition->vt : decomposition->u);
    c.second = (T *)(decomposition->wide ? decomposition->u : decomposition->vt);
    c.first_step = c.first ? (int64_t)c.rows * (decomposition->wide ? decomposition->vt_rows : decomposition->u_columns)
                           : 0;
    c.second_step = c.second ? (int64_t)c.columns * c.columns : 0;
    return c;
}

template<typename T>
static fl_status decompose_each(const fl_solver *solver, const struct by_columns<T> *c, char job)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0;
    T *off_diagonal;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's gesvd_bufferSize",
                           lib.gesvd_bufferSize(solver->handle, c->rows, c->columns, &elements)));
    FL_TRY(fl_cuda_malloc((void **)&off_diagonal, (size_t)c->columns * sizeof(T)));
    fl_status status = fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's gesvd",
                               lib.gesvd(solver->handle, job, job, c->rows, c->columns, c->a + i * c->rows * c->columns,
                                         c->rows, c->s + i * c->columns, c->first + i * c->first_step, c->rows,
                                         c->second + i * c->second_step, c->columns, work, elements, off_diagonal,
                                         solver->info + i));
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
static fl_status decompose_parts(const fl_solver *solver, const struct by_columns<T> *c, T *u, T *v)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int mode = c->first ? EIGEN_VECTORS : EIGEN_VALUES, m = c->rows, n = c->columns;
    return fl_solver_parts(solver, [&](int64_t first, int count) {
        int elements = 0;
        T *a = c->a + first * m * n, *values = c->s + first * n, *own_u = u + first * m * m, *own_v = v + first * n * n,
          *work;
        FL_TRY(fl_solver_check(solver, "cuSOLVER's gesvdjBatched_bufferSize",
                               lib.gesvdjBatched_bufferSize(solver->handle, mode, m, n, a, m, values, own_u, m, own_v,
                                                            n, &elements, solver->svd_jacobi, count)));
        FL_TRY(fl_cuda_malloc((void **)&work, (size_t)(elements > 0 ? elements : 1) * sizeof(T)));
        fl_status status = fl_solver_check(solver, "cuSOLVER's gesvdjBatched",
                                           lib.gesvdjBatched(solver->handle, mode, m, n, a, m, values, own_u, m, own_v,
                                                             n, work, elements, solver->info + first,
                                                             solver->svd_jacobi, count));
        fl_cuda_free(work);
        return status;
    });
}

template<typename T>
static fl_status decompose_batch(const fl_solver *solver, const struct by_columns<T> *c)
{
    int64_t of_u = solver->count * c->rows * c->rows, of_v = solver->count * c->columns * c->columns;
    T *u;
    FL_TRY(fl_cuda_malloc((void **)&u, (size_t)(of_u + of_v) * sizeof(T)));
    fl_status status = decompose_parts(solver, c, u, u + of_u);
    if (status == FL_OK && c->first) {
        int64_t most = of_v > solver->count * c->first_step ? of_v : solver->count * c->first_step;
        FL_LAUNCH((take_vectors<T>), fl_blocks(most, THREADS), THREADS, 0, *c, (const T *)u, (const T *)(u + of_u),
                  solver->count);
        status = fl_cuda_check(solver->name);
    }
    fl_cuda_free(u);
    return status;
}

template<typename T>
static fl_status decompose(const fl_solver *solver, const struct decomposition *decomposition)
{
    struct by_columns<T> c = by_columns_of<T>(solver, decomposition);
    return fl_solver_is_small_batch(solver, c.rows) ? decompose_batch(solver, &c)
                                                    : decompose_each(solver, &c, decomposition->job);
}

/* The operand as the routine takes it, and its decomposition into u, s, vt. */
static fl_status decompose_operand(const fl_solver *solver, struct decomposition *decomposition)
{
    fl_cuda_array a;
    const fl_view *in = &solver->kernel->in[0];
    FL_TRY(fl_solver_columns_room(&a, in, (int64_t)solver->m * solver->n));
    int64_t stride[FL_MAX_NDIM];
    fl_view rows = fl_view_array(in, a.memory, solver->dtype, stride);
    fl_status status = fl_cuda_copy_view(decomposition->wide ? &rows : &a.view, in);
    if (status == FL_OK) status = fl_solver_keep_finite(solver, a.memory, solver->m, solver->n);
    decomposition->a = a.memory;
    if (status == FL_OK)
        status = fl_solver_typed(solver, [&](auto like) { return decompose<decltype(like)>(solver, decomposition); });
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

static fl_status identities(const fl_solver *solver, const fl_cuda_array *a, const fl_view *out)
{
    int n = (int)out->size[out->ndim - 1];
    if (out->numel == 0) return FL_OK;
    return fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((fl_solver_identity<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)a->view.data, out->numel, n,
                  n);
        return fl_cuda_check(solver->name);
    });
}

/* Of matrices without elements the vectors are those of the identity. */
static fl_status svd_into(const fl_solver *solver, struct decomposition *decomposition, const fl_cuda_array *u,
                          const fl_cuda_array *values, const fl_cuda_array *vt)
{
    const fl_view *out = solver->kernel->out;
    if (least(solver) == 0) {
        FL_TRY(identities(solver, u, &out[SVD_U]));
        FL_TRY(identities(solver, vt, &out[SVD_VT]));
    } else {
        decomposition->u = u->view.data;
        decomposition->s = values->view.data;
        decomposition->vt = vt->view.data;
        FL_TRY(decompose_operand(solver, decomposition));
    }
    FL_TRY(store(&out[SVD_U], u, decomposition->wide));
    FL_TRY(store(&out[SVD_VT], vt, decomposition->wide));
    FL_TRY(fl_cuda_array_store(&out[SVD_S], values));
    return fl_solver_report(solver, NULL, FL_MATRIX_NO_DECOMPOSITION);
}

static fl_status svd(const fl_solver *solver)
{
    const fl_view *out = solver->kernel->out;
    fl_cuda_array u, values, vt;
    enum { FULL };
    struct decomposition d = decomposition_of(solver, solver->kernel->attrs->at[FULL].integer ? 'A' : 'S');
    d.u_columns = (int)out[SVD_U].size[out[SVD_U].ndim - 1];
    d.vt_rows = (int)out[SVD_VT].size[out[SVD_VT].ndim - 2];
    FL_TRY(room_of(&u, &out[SVD_U], d.wide));
    fl_status status = room_of(&vt, &out[SVD_VT], d.wide);
    if (status == FL_OK) {
        status = fl_cuda_array_room(&values, &out[SVD_S], solver->dtype);
        if (status == FL_OK) {
            status = svd_into(solver, &d, &u, &values, &vt);
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
static fl_status multiply(const fl_solver *solver, const struct decomposition *decomposition, void *x)
{
    fl_cuda_gemm g;
    int k = least(solver);
    memset(&g, 0, sizeof g);
    g.dtype = solver->dtype;
    g.m = solver->n;
    g.n = solver->m;
    g.k = k;
    g.a = (char *)decomposition->vt;
    g.b = (char *)decomposition->u;
    g.c = (char *)x;
    g.a_row = decomposition->wide ? 1 : k;
    g.a_col = decomposition->wide ? solver->n : 1;
    g.b_row = decomposition->wide ? 1 : solver->m;
    g.b_col = decomposition->wide ? k : 1;
    g.batch = solver->count > 1;
    g.size[0] = solver->count;
    g.a_step[0] = (int64_t)k * solver->n;
    g.b_step[0] = (int64_t)solver->m * k;
    return fl_cuda_gemm_run(&g);
}

static fl_status invert(const fl_solver *solver, struct decomposition *decomposition, void *x, double atol, double rtol)
{
    int k = least(solver);
    int64_t elements = solver->count * k * k;
    FL_TRY(decompose_operand(solver, decomposition));
    FL_TRY(fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        FL_LAUNCH((divide_by_values<T>), fl_blocks(elements, THREADS), THREADS, 0,
                  (T *)(decomposition->wide ? decomposition->u : decomposition->vt), (const T *)decomposition->s,
                  elements, k, atol, rtol);
        return fl_cuda_check(solver->name);
    }));
    return multiply(solver, decomposition, x);
}

fl_status fl_solver_pinv(const fl_solver *solver, void *x, void *values, double atol, double rtol)
{
    struct decomposition d = decomposition_of(solver, 'S');
    size_t item = fl_dtype_size(solver->dtype), vectors = (size_t)solver->count * (size_t)least(solver);
    d.u_columns = d.vt_rows = least(solver);
    d.s = values;
    FL_TRY(fl_cuda_malloc(&d.u, vectors * ((size_t)solver->m + (size_t)solver->n) * item));
    d.vt = (char *)d.u + vectors * (size_t)solver->m * item;
    fl_status status = invert(solver, &d, x, atol, rtol);
    fl_cuda_free(d.u);
    return status;
}

static fl_status pseudoinverse(const fl_solver *solver, void *x)
{
    double atol, rtol;
    void *values;
    fl_pinv_tolerances(&atol, &rtol, solver->kernel->attrs, solver->dtype, solver->m, solver->n);
    FL_TRY(fl_cuda_malloc(&values, (size_t)solver->count * (size_t)least(solver) * fl_dtype_size(solver->dtype)));
    fl_status status = fl_solver_pinv(solver, x, values, atol, rtol);
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
