/*
** qr.cu -- QR factors by Householder reflections, as LAPACK's geqrf and orgqr make them.
*/
#include "copies.h"
#include "cusolver.h"

enum { THREADS = FL_SOLVER_THREADS };

/* Matrices by columns, `step` elements from one to the next, and the factors of their reflections: min(m, n) each. */
struct reflections {
    fl_cuda_array a;
    int64_t step;
    int least;
    void *tau;
};

/* ---- the library's part ---- */

template<typename T>
static fl_status reflect(const fl_solver *solver, const struct reflections *reflections)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0, lda = fl_solver_leading(solver->m);
    T *a = (T *)reflections->a.memory, *tau = (T *)reflections->tau;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's geqrf_bufferSize",
                           lib.geqrf_bufferSize(solver->handle, solver->m, solver->n, a, lda, &elements)));
    return fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's geqrf",
                               lib.geqrf(solver->handle, solver->m, solver->n, a + i * reflections->step, lda,
                                         tau + i * reflections->least, work, elements, solver->ignored + i));
    });
}

/* The first k columns of Q in place of the reflections. */
template<typename T>
static fl_status expand(const fl_solver *solver, const struct reflections *reflections, int k)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0, lda = fl_solver_leading(solver->m);
    T *a = (T *)reflections->a.memory, *tau = (T *)reflections->tau;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's orgqr_bufferSize",
                           lib.orgqr_bufferSize(solver->handle, solver->m, k, reflections->least, a, lda, tau,
                                                &elements)));
    return fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's orgqr",
                               lib.orgqr(solver->handle, solver->m, k, reflections->least, a + i * reflections->step,
                                         lda, tau + i * reflections->least, work, elements, solver->ignored + i));
    });
}

/* The reflections of the operand, in matrices with room for `columns`; tau: where their factors go, NULL: to memory of
** their own. */
static fl_status reflections_open(struct reflections *reflections, const fl_solver *solver, int columns, void *tau)
{
    size_t item = fl_dtype_size(solver->dtype);
    reflections->least = solver->m < solver->n ? solver->m : solver->n;
    reflections->step = (int64_t)solver->m * columns;
    reflections->tau = tau;
    FL_TRY(fl_solver_columns(&reflections->a, &solver->kernel->in[0], reflections->step));
    fl_status status = FL_OK;
    if (!tau)
        status = fl_cuda_malloc(&reflections->tau,
                                (size_t)(solver->count * (reflections->least > 0 ? reflections->least : 1)) * item);
    if (status == FL_OK && reflections->least > 0)
        status = fl_solver_typed(solver, [&](auto like) { return reflect<decltype(like)>(solver, reflections); });
    if (status != FL_OK) fl_cuda_array_close(&reflections->a);
    if (status != FL_OK && !tau && reflections->tau) fl_cuda_free(reflections->tau);
    return status;
}

/* ---- Q and R ---- */

enum { QR_Q, QR_R };

static fl_status store_r(const fl_solver *solver, const struct reflections *reflections)
{
    const fl_view *out = &solver->kernel->out[QR_R];
    int rows = (int)out->size[out->ndim - 2];
    fl_cuda_array a;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_room(&a, out, solver->dtype));
    fl_status status = fl_solver_take(&a.view, &reflections->a);
    if (status == FL_OK)
        status = fl_solver_typed(solver, [&](auto like) {
            typedef decltype(like) T;
            FL_LAUNCH((fl_solver_clear<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)a.view.data, out->numel,
                      rows, solver->n, false);
            return fl_cuda_check(solver->name);
        });
    if (status == FL_OK) status = fl_cuda_array_store(out, &a);
    fl_cuda_array_close(&a);
    return status;
}

/* Without reflections Q is the identity. */
static fl_status store_q(const fl_solver *solver, const struct reflections *reflections)
{
    const fl_view *out = &solver->kernel->out[QR_Q];
    if (out->numel == 0) return FL_OK;
    int k = (int)out->size[out->ndim - 1];
    FL_TRY(fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        if (reflections->least > 0) return expand<T>(solver, reflections, k);
        FL_LAUNCH((fl_solver_identity<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)reflections->a.memory,
                  out->numel, solver->m, k);
        return fl_cuda_check(solver->name);
    }));
    return fl_solver_take(out, &reflections->a);
}

static fl_status launch_qr(fl_kernel *kernel)
{
    fl_solver s;
    struct reflections r;
    const fl_view *out = &kernel->out[QR_R];
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.qr"));
    int k = (int)out->size[out->ndim - 2];
    fl_status status = reflections_open(&r, &s, s.n > k ? s.n : k, NULL);
    if (status == FL_OK) {
        status = store_r(&s, &r);
        if (status == FL_OK) status = store_q(&s, &r);
        fl_cuda_free(r.tau);
        fl_cuda_array_close(&r.a);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_LINALG_OP(qr, launch_qr);

/* ---- reflections as results ---- */

static fl_status store_reflections(const fl_solver *solver, const fl_cuda_array *tau)
{
    struct reflections r;
    fl_kernel *kernel = solver->kernel;
    FL_TRY(reflections_open(&r, solver, solver->n, tau->view.data));
    fl_status status = fl_solver_take(&kernel->out[0], &r.a);
    if (status == FL_OK) status = fl_cuda_array_store(&kernel->out[1], tau);
    fl_cuda_array_close(&r.a);
    return status;
}

static fl_status launch_reflections(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array tau;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "geqrf"));
    fl_status status = fl_cuda_array_room(&tau, &kernel->out[1], s.dtype);
    if (status == FL_OK) {
        status = store_reflections(&s, &tau);
        fl_cuda_array_close(&tau);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_OP(linalg_geqrf, launch_reflections);
