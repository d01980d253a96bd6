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
static fl_status reflect(const fl_solver *s, const struct reflections *r)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0, lda = fl_solver_leading(s->m);
    T *a = (T *)r->a.memory, *tau = (T *)r->tau;
    FL_TRY(fl_solver_check(s, "cuSOLVER's geqrf_bufferSize",
                           lib.geqrf_bufferSize(s->handle, s->m, s->n, a, lda, &elements)));
    return fl_solver_each<T>(s, elements, [&](int64_t i, T *work) {
        return fl_solver_check(s, "cuSOLVER's geqrf",
                               lib.geqrf(s->handle, s->m, s->n, a + i * r->step, lda, tau + i * r->least, work,
                                         elements, s->ignored + i));
    });
}

/* The first k columns of Q in place of the reflections. */
template<typename T>
static fl_status expand(const fl_solver *s, const struct reflections *r, int k)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0, lda = fl_solver_leading(s->m);
    T *a = (T *)r->a.memory, *tau = (T *)r->tau;
    FL_TRY(fl_solver_check(s, "cuSOLVER's orgqr_bufferSize",
                           lib.orgqr_bufferSize(s->handle, s->m, k, r->least, a, lda, tau, &elements)));
    return fl_solver_each<T>(s, elements, [&](int64_t i, T *work) {
        return fl_solver_check(s, "cuSOLVER's orgqr",
                               lib.orgqr(s->handle, s->m, k, r->least, a + i * r->step, lda, tau + i * r->least, work,
                                         elements, s->ignored + i));
    });
}

/* The reflections of the operand, in matrices with room for `columns`; tau: where their factors go, NULL: to memory of
** their own. */
static fl_status reflections_open(struct reflections *r, const fl_solver *s, int columns, void *tau)
{
    size_t item = fl_dtype_size(s->dtype);
    r->least = s->m < s->n ? s->m : s->n;
    r->step = (int64_t)s->m * columns;
    r->tau = tau;
    FL_TRY(fl_solver_columns(&r->a, &s->kernel->in[0], r->step));
    fl_status status = FL_OK;
    if (!tau) status = fl_cuda_malloc(&r->tau, (size_t)(s->count * (r->least > 0 ? r->least : 1)) * item);
    if (status == FL_OK && r->least > 0)
        status = fl_solver_typed(s, [&](auto like) { return reflect<decltype(like)>(s, r); });
    if (status != FL_OK) fl_cuda_array_close(&r->a);
    if (status != FL_OK && !tau && r->tau) fl_cuda_free(r->tau);
    return status;
}

/* ---- Q and R ---- */

enum { QR_Q, QR_R };

static fl_status store_r(const fl_solver *s, const struct reflections *r)
{
    const fl_view *out = &s->kernel->out[QR_R];
    int rows = (int)out->size[out->ndim - 2];
    fl_cuda_array a;
    if (out->numel == 0) return FL_OK;
    FL_TRY(fl_cuda_array_room(&a, out, s->dtype));
    fl_status status = fl_solver_take(&a.view, &r->a);
    if (status == FL_OK)
        status = fl_solver_typed(s, [&](auto like) {
            typedef decltype(like) T;
            FL_LAUNCH((fl_solver_clear<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)a.view.data, out->numel,
                      rows, s->n, false);
            return fl_cuda_check(s->name);
        });
    if (status == FL_OK) status = fl_cuda_array_store(out, &a);
    fl_cuda_array_close(&a);
    return status;
}

/* Without reflections Q is the identity. */
static fl_status store_q(const fl_solver *s, const struct reflections *r)
{
    const fl_view *out = &s->kernel->out[QR_Q];
    if (out->numel == 0) return FL_OK;
    int k = (int)out->size[out->ndim - 1];
    FL_TRY(fl_solver_typed(s, [&](auto like) {
        typedef decltype(like) T;
        if (r->least > 0) return expand<T>(s, r, k);
        FL_LAUNCH((fl_solver_identity<T>), fl_blocks(out->numel, THREADS), THREADS, 0, (T *)r->a.memory, out->numel,
                  s->m, k);
        return fl_cuda_check(s->name);
    }));
    return fl_solver_take(out, &r->a);
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

static fl_status store_reflections(const fl_solver *s, const fl_cuda_array *tau)
{
    struct reflections r;
    fl_kernel *kernel = s->kernel;
    FL_TRY(reflections_open(&r, s, s->n, tau->view.data));
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
