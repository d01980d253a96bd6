/*
** lu.cu -- LU factors, and what follows from them: determinants, inverses, solutions of square systems.
**
** As on the CPU the factors of square matrices are those of the transpose, which a row-major matrix is to the library.
** Determinants and inverses of a transpose say all about the matrix, and a system is solved with them by asking for the
** transposed solution.
*/
#include "copies.h"
#include "cuda/parts/block.cuh"
#include "cusolver.h"

enum { THREADS = FL_SOLVER_THREADS, WARP = 32 };

/* Matrices [m, n] by columns that become their factors, and LAPACK's exchanges: min(m, n) of each. */
struct factors {
    void *a;
    int *pivots;
};

/* ---- the library's part ---- */

template<typename T>
static fl_status factor_batch(const fl_solver *solver, const struct factors *factors)
{
    void **matrices;
    FL_TRY(fl_solver_addresses(&matrices, solver, factors->a, (int64_t)solver->n * solver->n * (int64_t)sizeof(T)));
    fl_status status = fl_solver_parts(solver, [&](int64_t first, int count) {
        return fl_solver_check(solver, "cuBLAS's getrfBatched",
                               fl_cusolver_of(T()).getrfBatched(solver->blas, solver->n, (T **)matrices + first,
                                                                solver->n, factors->pivots + first * solver->n,
                                                                solver->info + first, count));
    });
    fl_cuda_free(matrices);
    return status;
}

template<typename T>
static fl_status factor_each(const fl_solver *solver, const struct factors *factors)
{
    const fl_cusolver<T> &lib = fl_cusolver_of(T());
    int elements = 0, least = solver->m < solver->n ? solver->m : solver->n, lda = fl_solver_leading(solver->m);
    T *a = (T *)factors->a;
    FL_TRY(fl_solver_check(solver, "cuSOLVER's getrf_bufferSize",
                           lib.getrf_bufferSize(solver->handle, solver->m, solver->n, a, lda, &elements)));
    return fl_solver_each<T>(solver, elements, [&](int64_t i, T *work) {
        return fl_solver_check(solver, "cuSOLVER's getrf",
                               lib.getrf(solver->handle, solver->m, solver->n, a + i * solver->m * solver->n, lda, work,
                                         factors->pivots + i * least, solver->info + i));
    });
}

static fl_status factor(const fl_solver *solver, const struct factors *factors)
{
    bool batch = solver->m == solver->n && fl_solver_is_batch(solver, solver->n, solver->n);
    if (solver->m == 0 || solver->n == 0) return FL_OK;
    return fl_solver_typed(solver, [&](auto like) {
        typedef decltype(like) T;
        return batch ? factor_batch<T>(solver, factors) : factor_each<T>(solver, factors);
    });
}

template<typename T>
static fl_status solve_batch(const fl_solver *solver, const struct factors *factors, T *x, int k, int operation)
{
    int info = 0;
    void **matrices, **results;
    FL_TRY(fl_solver_addresses(&matrices, solver, factors->a, (int64_t)solver->n * solver->n * (int64_t)sizeof(T)));
    fl_status status = fl_solver_addresses(&results, solver, x, (int64_t)solver->n * k * (int64_t)sizeof(T));
    if (status == FL_OK) {
        status = fl_solver_parts(solver, [&](int64_t first, int count) {
            return fl_solver_check(solver, "cuBLAS's getrsBatched",
                                   fl_cusolver_of(T()).getrsBatched(solver->blas, operation, solver->n, k,
                                                                    (T **)matrices + first, solver->n,
                                                                    factors->pivots + first * solver->n,
                                                                    (T **)results + first, solver->n, &info, count));
        });
        fl_cuda_free(results);
    }
    fl_cuda_free(matrices);
    return status;
}

template<typename T>
static fl_status solve_each(const fl_solver *solver, const struct factors *factors, T *x, int k, int operation)
{
    for (int64_t i = 0; i < solver->count; i++)
        FL_TRY(fl_solver_check(solver, "cuSOLVER's getrs",
                               fl_cusolver_of(T()).getrs(solver->handle, operation, solver->n, k,
                                                         (T *)factors->a + i * solver->n * solver->n, solver->n,
                                                         factors->pivots + i * solver->n, x + i * solver->n * k,
                                                         solver->n, solver->ignored + i)));
    return FL_OK;
}

/* x [n, k] by columns becomes the solution with the matrices whose factors these are, or their transposes. */
template<typename T>
static fl_status solve(const fl_solver *solver, const struct factors *factors, T *x, int k, int operation)
{
    if (solver->n == 0 || k == 0) return FL_OK;
    return fl_solver_is_batch(solver, solver->n, k) ? solve_batch(solver, factors, x, k, operation)
                                                    : solve_each(solver, factors, x, k, operation);
}

/* ---- square matrices ---- */

static fl_status square_fill(const fl_solver *solver, struct factors *factors)
{
    int64_t bytes = solver->count * solver->n * solver->n * (int64_t)fl_dtype_size(solver->dtype),
            pivots = solver->count * solver->n;
    factors->a = NULL;
    FL_TRY(fl_cuda_malloc((void **)&factors->pivots, (size_t)(pivots > 0 ? pivots : 1) * sizeof(int)));
    fl_status status = fl_cuda_malloc(&factors->a, (size_t)(bytes > 0 ? bytes : 1));
    if (status == FL_OK && bytes > 0) {
        int64_t stride[FL_MAX_NDIM];
        const fl_view *in = &solver->kernel->in[0];
        fl_view copy = fl_view_array(in, factors->a, solver->dtype, stride);
        status = fl_cuda_copy_view(&copy, in);
    }
    return status == FL_OK ? factor(solver, factors) : status;
}

static void square_close(const struct factors *factors)
{
    if (factors->a) fl_cuda_free(factors->a);
    if (factors->pivots) fl_cuda_free(factors->pivots);
}

/* run(solver, factors of the transposes) for an op on square matrices. */
template<typename F>
static fl_status with_factors(fl_kernel *kernel, const char *name, F &&run)
{
    fl_solver s;
    struct factors f = {NULL, NULL};
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, name));
    fl_status status = square_fill(&s, &f);
    if (status == FL_OK) status = run(&s, &f);
    square_close(&f);
    fl_solver_close(&s);
    return status;
}

/* run(array) with a result of the op as a row-major array. */
template<typename F>
static fl_status with_result(const fl_solver *solver, int result, F &&run)
{
    fl_cuda_array a;
    const fl_view *out = &solver->kernel->out[result];
    FL_TRY(fl_cuda_array_room(&a, out, solver->dtype));
    fl_status status = run(&a);
    if (status == FL_OK) status = fl_cuda_array_store(out, &a);
    fl_cuda_array_close(&a);
    return status;
}

/* ---- determinants ---- */

struct sign_and_log {
    double sign, log;
};

/* The determinant from the factors of one matrix, by a warp. */
template<typename T>
__device__ static double product_of(const T *a, const int *pivots, int n)
{
    double product = 1;
    for (int k = threadIdx.x; k < n; k += WARP) {
        product *= (double)a[(int64_t)k * n + k];
        if (pivots[k] != k + 1) product = -product;
    }
    return fl_lanes_join(product, WARP, [](double x, double y) { return x * y; });
}

template<typename T>
__global__ void __launch_bounds__(WARP) determinants(T *out, const T *a, const int *pivots, int n)
{
    int64_t i = blockIdx.x;
    double det = product_of(a + i * n * n, pivots + i * n, n);
    if (threadIdx.x == 0) out[i] = (T)det;
}

/* A pivot of 0 makes the sign 0, one that is NaN makes it NaN. */
template<typename T>
__global__ void __launch_bounds__(WARP) signs_and_logs(T *sign, T *log_of, const T *a, const int *pivots, int n)
{
    int64_t i = blockIdx.x;
    struct sign_and_log own = {1, 0};
    for (int k = threadIdx.x; k < n; k += WARP) {
        double pivot = (double)a[i * n * n + (int64_t)k * n + k];
        if (pivots[i * n + k] != k + 1) own.sign = -own.sign;
        own.sign *= pivot != pivot ? pivot : pivot < 0 ? -1.0 : pivot > 0 ? 1.0 : 0.0;
        own.log += log(fabs(pivot));
    }
    own = fl_lanes_join(own, WARP, [](const struct sign_and_log &x, const struct sign_and_log &y) {
        struct sign_and_log both = {x.sign * y.sign, x.log + y.log};
        return both;
    });
    if (threadIdx.x > 0) return;
    sign[i] = (T)own.sign;
    log_of[i] = (T)own.log;
}

static fl_status launch_det(fl_kernel *kernel)
{
    return with_factors(kernel, "linalg.det", [](const fl_solver *solver, const struct factors *factors) {
        return with_result(solver, 0, [&](const fl_cuda_array *out) {
            return fl_solver_typed(solver, [&](auto like) {
                typedef decltype(like) T;
                FL_LAUNCH((determinants<T>), (unsigned)solver->count, WARP, 0, (T *)out->view.data,
                          (const T *)factors->a, (const int *)factors->pivots, solver->n);
                return fl_cuda_check(solver->name);
            });
        });
    });
}

static fl_status launch_slogdet(fl_kernel *kernel)
{
    return with_factors(kernel, "linalg.slogdet", [](const fl_solver *solver, const struct factors *factors) {
        return with_result(solver, 0, [&](const fl_cuda_array *sign) {
            return with_result(solver, 1, [&](const fl_cuda_array *log_of) {
                return fl_solver_typed(solver, [&](auto like) {
                    typedef decltype(like) T;
                    FL_LAUNCH((signs_and_logs<T>), (unsigned)solver->count, WARP, 0, (T *)sign->view.data,
                              (T *)log_of->view.data, (const T *)factors->a, (const int *)factors->pivots, solver->n);
                    return fl_cuda_check(solver->name);
                });
            });
        });
    });
}

FL_CUDA_LINALG_OP(det, launch_det);
FL_CUDA_LINALG_OP(slogdet, launch_slogdet);

/* ---- inverses ---- */

/* Row-major x [n, n] becomes the inverses, or by `operation` T their transposes. */
template<typename T>
static fl_status invert(const fl_solver *solver, const struct factors *factors, T *x, int operation)
{
    int64_t elements = solver->count * solver->n * solver->n;
    FL_LAUNCH((fl_solver_identity<T>), fl_blocks(elements, THREADS), THREADS, 0, x, elements, solver->n, solver->n);
    FL_TRY(fl_cuda_check(solver->name));
    return solve(solver, factors, x, solver->n, operation);
}

/* NaN where a matrix has a code. */
template<typename T>
__global__ void __launch_bounds__(THREADS) blank(T *x, const int *info, int64_t elements, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < elements && info[i / each]) x[i] = (T)NAN;
}

template<typename T>
static fl_status inverses(const fl_solver *solver, const struct factors *factors, T *x)
{
    int64_t elements = solver->count * solver->n * solver->n;
    if (elements == 0) return FL_OK;
    FL_TRY(invert(solver, factors, x, OPERATION_N));
    FL_LAUNCH((blank<T>), fl_blocks(elements, THREADS), THREADS, 0, x, (const int *)solver->info, elements,
              (int64_t)solver->n * solver->n);
    return fl_cuda_check(solver->name);
}

static fl_status launch_inverse(fl_kernel *kernel)
{
    bool checked = kernel->nout == 1;
    return with_factors(kernel, kernel->name, [&](const fl_solver *solver, const struct factors *factors) {
        fl_status status = with_result(solver, 0, [&](const fl_cuda_array *out) {
            return fl_solver_typed(solver, [&](auto like) {
                return inverses(solver, factors, (decltype(like) *)out->view.data);
            });
        });
        if (status != FL_OK) return status;
        return fl_solver_report(solver, checked ? NULL : &kernel->out[1], checked ? FL_MATRIX_SINGULAR : NULL);
    });
}

FL_CUDA_LINALG_OP(inv, launch_inverse);
FL_CUDA_LINALG_OP(inv_ex, launch_inverse);

/* A tiny number takes the place of pivots that are 0 (see factor.c); det: the determinants then. */
template<typename T>
__global__ void __launch_bounds__(WARP) fill_pivots(T *a, double *det, const int *pivots, int n, T tiny)
{
    int64_t i = blockIdx.x;
    for (int k = threadIdx.x; k < n; k += WARP) {
        T *pivot = &a[i * n * n + (int64_t)k * n + k];
        if (*pivot == 0) *pivot = tiny;
    }
    double product = product_of(a + i * n * n, pivots + i * n, n); /* of what this thread has filled */
    if (threadIdx.x == 0) det[i] = product;
}

template<typename T>
__global__ void __launch_bounds__(THREADS) scale(T *x, const double *by, int64_t elements, int64_t each)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < elements) x[i] = (T)(by[i / each] * (double)x[i]);
}

/* The cofactors of A: det(A) A^-T. */
template<typename T>
static fl_status cofactors(const fl_solver *solver, const struct factors *factors, T *x, double *det)
{
    int64_t elements = solver->count * solver->n * solver->n;
    T tiny = (T)(sizeof(T) == sizeof(double) ? 0x1p-52 : 0x1p-23);
    FL_LAUNCH((fill_pivots<T>), (unsigned)solver->count, WARP, 0, (T *)factors->a, det, (const int *)factors->pivots,
              solver->n, tiny);
    FL_TRY(fl_cuda_check(solver->name));
    FL_TRY(invert(solver, factors, x, OPERATION_T));
    FL_LAUNCH((scale<T>), fl_blocks(elements, THREADS), THREADS, 0, x, (const double *)det, elements,
              (int64_t)solver->n * solver->n);
    return fl_cuda_check(solver->name);
}

static fl_status launch_cofactor(fl_kernel *kernel)
{
    return with_factors(kernel, "linalg.det", [](const fl_solver *solver, const struct factors *factors) {
        return with_result(solver, 0, [&](const fl_cuda_array *out) {
            double *det;
            FL_TRY(fl_cuda_malloc((void **)&det, (size_t)solver->count * sizeof *det));
            fl_status status = fl_solver_typed(solver, [&](auto like) {
                return cofactors(solver, factors, (decltype(like) *)out->view.data, det);
            });
            fl_cuda_free(det);
            return status;
        });
    });
}

FL_CUDA_OP(linalg_cofactor, launch_cofactor);

/* ---- A X = B ---- */

static fl_status launch_solve(fl_kernel *kernel)
{
    enum { TRANSPOSED };
    return with_factors(kernel, "linalg.solve", [&](const fl_solver *solver, const struct factors *factors) {
        const fl_view *b = &kernel->in[1];
        fl_cuda_array x;
        int k = (int)b->size[b->ndim - 1];
        int operation = kernel->attrs->at[TRANSPOSED].integer ? OPERATION_N : OPERATION_T;
        FL_TRY(fl_solver_columns(&x, b, (int64_t)solver->n * k));
        fl_status status = fl_solver_typed(solver, [&](auto like) {
            return solve(solver, factors, (decltype(like) *)x.memory, k, operation);
        });
        if (status == FL_OK) status = fl_solver_take(&kernel->out[0], &x);
        fl_cuda_array_close(&x);
        return status == FL_OK ? fl_solver_report(solver, NULL, FL_MATRIX_SINGULAR) : status;
    });
}

FL_CUDA_OP(linalg_solve_square, launch_solve);

/* ---- factors as results ---- */

/* The exchanges of a matrix, and the order of its rows that they lead to. */
__global__ void __launch_bounds__(THREADS)
    order_rows(int64_t *order, int32_t *exchanges, const int *pivots, int64_t count, int m, int k)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    order += i * m;
    for (int r = 0; r < m; r++) order[r] = r;
    for (int r = 0; r < k; r++) {
        int other = pivots[i * k + r] - 1;
        int64_t moved = order[r];
        order[r] = order[other];
        order[other] = moved;
        exchanges[i * k + r] = other + 1;
    }
}

/* The results of linalg_lu. */
enum { LU_FACTORS, LU_ORDER, LU_PIVOTS, LU_INFO };

static fl_status store_order(const fl_solver *solver, const int *pivots)
{
    const fl_view *out = solver->kernel->out;
    fl_cuda_array order, exchanges;
    FL_TRY(fl_cuda_array_room(&order, &out[LU_ORDER], FL_INT64));
    fl_status status = fl_cuda_array_room(&exchanges, &out[LU_PIVOTS], FL_INT32);
    if (status == FL_OK) {
        FL_LAUNCH(order_rows, fl_blocks(solver->count, THREADS), THREADS, 0, (int64_t *)order.view.data,
                  (int32_t *)exchanges.view.data, pivots, solver->count, solver->m,
                  solver->m < solver->n ? solver->m : solver->n);
        status = fl_cuda_check(solver->name);
        if (status == FL_OK) status = fl_cuda_array_store(&out[LU_PIVOTS], &exchanges);
        fl_cuda_array_close(&exchanges);
    }
    if (status == FL_OK) status = fl_cuda_array_store(&out[LU_ORDER], &order);
    fl_cuda_array_close(&order);
    return status;
}

static fl_status store_factors(const fl_solver *solver, const fl_cuda_array *a)
{
    int64_t pivots = solver->count * (solver->m < solver->n ? solver->m : solver->n);
    struct factors f = {a->memory, NULL};
    FL_TRY(fl_cuda_malloc((void **)&f.pivots, (size_t)(pivots > 0 ? pivots : 1) * sizeof(int)));
    fl_status status = factor(solver, &f);
    if (status == FL_OK) status = fl_solver_take(&solver->kernel->out[LU_FACTORS], a);
    if (status == FL_OK) status = store_order(solver, f.pivots);
    fl_cuda_free(f.pivots);
    return status == FL_OK ? fl_solver_report(solver, &solver->kernel->out[LU_INFO], NULL) : status;
}

static fl_status launch_lu(fl_kernel *kernel)
{
    fl_solver s;
    fl_cuda_array a;
    if (fl_solver_is_empty(kernel)) return FL_OK;
    FL_TRY(fl_solver_open(&s, kernel, "linalg.lu_factor"));
    fl_status status = fl_solver_columns(&a, &kernel->in[0], (int64_t)s.m * s.n);
    if (status == FL_OK) {
        status = store_factors(&s, &a);
        fl_cuda_array_close(&a);
    }
    fl_solver_close(&s);
    return status;
}

FL_CUDA_OP(linalg_lu, launch_lu);
