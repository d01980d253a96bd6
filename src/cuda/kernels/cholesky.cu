/*
** cholesky.cu -- Cholesky factors, and systems with triangular matrices.
**
** Row-major matrices are the transposes of what the libraries see: a lower triangle is an upper one there.
*/
#include "copies.h"
#include "cusolver.h"

/* ---- Cholesky ---- */

template<typename T>
static fl_status factor_batch(const fl_solver *solver, T *a, int fill)
{
    void **matrices;
    FL_TRY(fl_solver_addresses(&matrices, solver, a, (int64_t)solver->n * solver->n * (int64_t)sizeof(T)));
    fl_status status = fl_solver_parts(solver, [&](int64_t first, int count) {
        return fl_solver_check(solver, "cuSOLVER's potrfBatched",
                               fl_cusolver_of(T()).potrfBatched(solver->handle, fill, solver->n, (T **)matrices + first,
                                                                solver->n, solver->info + first, count));
    });
    fl_cuda_free(matrices);
    return status;
}

template<typename T>
static fl_status factor_each(const fl_solver *solver, T *a, int fill)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's potrf_bufferSize",
                           lib.potrf_bufferSize(solver->handle, fill, solver->n, a, solver->n, &elements)));
    return fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's potrf",
                               lib.potrf(solver->handle, fill, solver->n, a + i * solver->n * solver->n, solver->n,
                                         work, elements, solver->info + i));
    });
}

template<typename T>
static fl_status factor(const fl_solver *solver, T *a, int64_t elements, int fill)
{
    FL_TRY(fl_solver_is_batch(solver, solver->n, solver->n) ? factor_batch(solver, a, fill)
                                                            : factor_each(solver, a, fill));
    FL_LAUNCH((fl_solver_clear<T>), fl_blocks(elements, FL_SOLVER_THREADS), FL_SOLVER_THREADS, 0, a, elements,
              solver->n, solver->n, fill == FILL_UPPER);
    return fl_cuda_check(solver->name);
}

/* cuSOLVER is up to three times as fast at lower triangles (2048 x 2048 on an H100: 667 us, 1853): of large matrices
** two copies by columns are less than that. */
static bool pays_columns(const fl_solver *solver)
{
    enum { FEWEST_ROWS = 256 };
    return solver->n >= FEWEST_ROWS && !fl_solver_is_batch(solver, solver->n, solver->n);
}

static fl_status cholesky(const fl_solver *solver)
{
    enum { UPPER };
    const fl_view *in = &solver->kernel->in[0], *out = &solver->kernel->out[0];
    bool upper = solver->kernel->attrs->at[UPPER].integer != 0, columns = !upper && pays_columns(solver);
    fl_cuda_array a;
    FL_TRY(columns ? fl_solver_columns(&a, in, (int64_t)solver->n * solver->n)
                   : fl_cuda_array_room(&a, out, solver->dtype));
    fl_status status = columns || in->numel == 0 ? FL_OK : fl_cuda_copy_view(&a.view, in);
    if (status == FL_OK && in->numel)
        status = fl_solver_typed(solver, [&](auto like) {
            typedef decltype(like) T;
            return factor(solver, (T *)a.view.data, a.view.numel, upper || columns ? FILL_LOWER : FILL_UPPER);
        });
    if (status == FL_OK) status = columns ? fl_solver_take(out, &a) : fl_cuda_array_store(out, &a);
    fl_cuda_array_close(&a);
    return status;
}

static fl_status launch_cholesky(fl_kernel *kernel)
{
    fl_solver s;
    bool checked = kernel->nout == 1;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, kernel->name));
    fl_status status = cholesky(&s);
    if (status == FL_OK)
        status = fl_solver_report(&s, checked ? NULL : &kernel->out[1], checked ? FL_MATRIX_NOT_POSITIVE : NULL);
    fl_solver_close(&s);
    return status;
}

FL_CUDA_LINALG_OP(cholesky, launch_cholesky);
FL_CUDA_LINALG_OP(cholesky_ex, launch_cholesky);

/* ---- triangular systems ---- */

/* B^T by columns: X^T A^T = B^T, or A^T X^T = B^T. */
struct triangles {
    int side, fill, diagonal, rows, columns;
};

template<typename T>
static fl_status solve_batch(const fl_solver *solver, const struct triangles *triangles, T *a, T *x)
{
    const T one = 1;
    void **matrices, **results;
    FL_TRY(fl_solver_addresses(&matrices, solver, a, (int64_t)solver->n * solver->n * (int64_t)sizeof(T)));
    fl_status status = fl_solver_addresses(&results, solver, x,
                                           (int64_t)triangles->rows * triangles->columns * (int64_t)sizeof(T));
    if (status == FL_OK) {
        status = fl_solver_parts(solver, [&](int64_t first, int count) {
            return fl_solver_check(solver, "cuBLAS's trsmBatched",
                                   fl_cusolver_of(T()).trsmBatched(solver->blas, triangles->side, triangles->fill,
                                                                   OPERATION_N, triangles->diagonal, triangles->rows,
                                                                   triangles->columns, &one, (T **)matrices + first,
                                                                   solver->n, (T **)results + first, triangles->rows,
                                                                   count));
        });
        fl_cuda_free(results);
    }
    fl_cuda_free(matrices);
    return status;
}

template<typename T>
static fl_status solve_each(const fl_solver *solver, const struct triangles *triangles, T *a, T *x)
{
    const T one = 1;
    for (int64_t i = 0; i < solver->count; i++)
        FL_TRY(fl_solver_check(
            solver, "cuBLAS's trsm",
            fl_cusolver_of(T()).trsm(solver->blas, triangles->side, triangles->fill, OPERATION_N, triangles->diagonal,
                                     triangles->rows, triangles->columns, &one, a + i * solver->n * solver->n,
                                     solver->n, x + i * triangles->rows * triangles->columns, triangles->rows)));
    return FL_OK;
}

static struct triangles triangles_of(const fl_solver *solver)
{
    enum { UPPER, LEFT, UNIT };
    const fl_view *b = &solver->kernel->in[1];
    const fl_attr *attr = solver->kernel->attrs->at;
    bool left = attr[LEFT].integer != 0;
    int others = (int)b->size[b->ndim - (left ? 1 : 2)];
    struct triangles t = {left ? SIDE_RIGHT : SIDE_LEFT, attr[UPPER].integer ? FILL_LOWER : FILL_UPPER,
                          attr[UNIT].integer ? DIAGONAL_UNIT : DIAGONAL_ANY, left ? others : solver->n,
                          left ? solver->n : others};
    return t;
}

static fl_status solve_triangles(const fl_solver *solver, const fl_cuda_array *a, const fl_cuda_array *x)
{
    struct triangles t = triangles_of(solver);
    FL_TRY(fl_cuda_copy_view(&x->view, &solver->kernel->in[1]));
    FL_TRY(fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        T *matrices = (T *)a->view.data, *results = (T *)x->view.data;
        return fl_solver_is_batch(solver, solver->n, t.rows > t.columns ? t.rows : t.columns)
            ? solve_batch(solver, &t, matrices, results)
            : solve_each(solver, &t, matrices, results);
    }));
    return fl_cuda_array_store(&solver->kernel->out[0], x);
}

static fl_status launch_triangles(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array a, x;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.solve_triangular"));
    fl_status status = fl_cuda_array_open(&a, &kernel->in[0], s.dtype);
    if (status == FL_OK) {
        status = fl_cuda_array_room(&x, &kernel->out[0], s.dtype);
        if (status == FL_OK) {
            status = solve_triangles(&s, &a, &x);
            fl_cuda_array_close(&x);
        }
        fl_cuda_array_close(&a);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_OP(linalg_triangles, launch_triangles);
