/*
** cusolver.cu -- cuSOLVER, opened by the first op that needs it: see cusolver.h.
**
** cuBLAS is found through cuSOLVER, which depends on it. FLOW_CUSOLVER: the library to open instead of those that are
** looked for.
*/
#include "cusolver.h"
#include "copies.h"
#include "cuda/runtime/runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

/* ---- the library ---- */

fl_cusolver<float> fl_cusolver_f32;
fl_cusolver<double> fl_cusolver_f64;

static struct {
    int (*create)(cusolverDnHandle_t *handle);
    int (*set_stream)(cusolverDnHandle_t handle, cudaStream_t stream);
    int (*create_eigen_jacobi)(syevjInfo_t *parameters);
    int (*sort_eigenvalues)(syevjInfo_t parameters, int sorted);
    int (*create_svd_jacobi)(gesvdjInfo_t *parameters);
    int (*sort_singular_values)(gesvdjInfo_t parameters, int sorted);
    int (*create_blas)(cublasHandle_t *handle);
    int (*set_blas_stream)(cublasHandle_t handle, cudaStream_t stream);
    bool tried, found;
    cusolverDnHandle_t handles[FL_CUDA_DEVICES];
    cublasHandle_t blas[FL_CUDA_DEVICES];
    syevjInfo_t eigen_jacobi;
    gesvdjInfo_t svd_jacobi;
} lib;

template<typename F>
static bool find(F *out, void *library, const char *name)
{
    *out = (F)dlsym(library, name);
    return *out != NULL;
}

template<typename T>
static bool find_routines(fl_cusolver<T> *out, void *library, char letter)
{
    char path[48];
    bool found = true;
#define FIND_SOLVER(name, arguments)                              \
    snprintf(path, sizeof path, "cusolverDn%c%s", letter, #name); \
    found = found && find(&out->name, library, path);
#define FIND_BLAS(field, name, arguments)                     \
    snprintf(path, sizeof path, "cublas%c%s", letter, #name); \
    found = found && find(&out->field, library, path);
    FL_CUSOLVER_ROUTINES(FIND_SOLVER)
    FL_CUBLAS_ROUTINES(FIND_BLAS)
    return found;
}

static bool find_all(void *library)
{
    return find(&lib.create, library, "cusolverDnCreate") && find(&lib.set_stream, library, "cusolverDnSetStream")
        && find(&lib.create_eigen_jacobi, library, "cusolverDnCreateSyevjInfo")
        && find(&lib.sort_eigenvalues, library, "cusolverDnXsyevjSetSortEig")
        && find(&lib.create_svd_jacobi, library, "cusolverDnCreateGesvdjInfo")
        && find(&lib.sort_singular_values, library, "cusolverDnXgesvdjSetSortEig")
        && find(&lib.create_blas, library, "cublasCreate_v2")
        && find(&lib.set_blas_stream, library, "cublasSetStream_v2") && find_routines(&fl_cusolver_f32, library, 'S')
        && find_routines(&fl_cusolver_f64, library, 'D');
}

/* cuSOLVER's major version is one less than its toolkit's. */
static bool open_library(void)
{
    static const int toolkits[] = FL_CUDA_MAJORS;
    const int majors[] = {toolkits[0] - 1, toolkits[1] - 1};
    if (lib.tried) return lib.found;
    lib.tried = true;
    void *library = fl_cuda_library("FLOW_CUSOLVER", "cusolver", majors, 2);
    lib.found = library && find_all(library);
    return lib.found;
}

static fl_status missing(const char *name)
{
    return fl_fail(FL_ERR_MISSING,
                   "%s: cuSOLVER (libcusolver.so.12 or .11) was not found; install it, set LD_LIBRARY_PATH or "
                   "FLOW_CUSOLVER, or move the operands to the CPU: x:to(\"cpu\")",
                   name);
}

fl_status fl_solver_check(const fl_solver *solver, const char *what, int status)
{
    if (status == 0) return FL_OK;
    return fl_fail(FL_ERR_STATE, "%s: %s failed with status %d", solver->name, what, status);
}

static fl_status set_jacobi(fl_solver *solver)
{
    if (!lib.eigen_jacobi) {
        FL_TRY(fl_solver_check(solver, "cuSOLVER's CreateSyevjInfo", lib.create_eigen_jacobi(&lib.eigen_jacobi)));
        FL_TRY(fl_solver_check(solver, "cuSOLVER's XsyevjSetSortEig", lib.sort_eigenvalues(lib.eigen_jacobi, 1)));
    }
    if (!lib.svd_jacobi) {
        FL_TRY(fl_solver_check(solver, "cuSOLVER's CreateGesvdjInfo", lib.create_svd_jacobi(&lib.svd_jacobi)));
        FL_TRY(fl_solver_check(solver, "cuSOLVER's XgesvdjSetSortEig", lib.sort_singular_values(lib.svd_jacobi, 1)));
    }
    solver->eigen_jacobi = lib.eigen_jacobi;
    solver->svd_jacobi = lib.svd_jacobi;
    return FL_OK;
}

static fl_status set_handles(fl_solver *solver)
{
    int device = fl_cuda_current()->index;
    if (!lib.handles[device]) FL_TRY(fl_solver_check(solver, "cuSOLVER's Create", lib.create(&lib.handles[device])));
    if (!lib.blas[device]) FL_TRY(fl_solver_check(solver, "cuBLAS's Create", lib.create_blas(&lib.blas[device])));
    solver->handle = lib.handles[device];
    solver->blas = lib.blas[device];
    FL_TRY(fl_solver_check(solver, "cuSOLVER's SetStream", lib.set_stream(solver->handle, fl_cuda_stream())));
    return fl_solver_check(solver, "cuBLAS's SetStream", lib.set_blas_stream(solver->blas, fl_cuda_stream()));
}

/* ---- calls ---- */

bool fl_solver_is_empty(const fl_kernel *kernel)
{
    int64_t elements = 0;
    for (int i = 0; i < kernel->nout; i++) elements += kernel->out[i].numel;
    return elements == 0;
}

/* The routines count in 32 bits. */
static fl_status check_sizes(const fl_kernel *kernel, const char *name)
{
    enum { MOST_ROWS = 23170 };
    for (int i = 0; i < kernel->nin; i++) {
        const fl_view *x = &kernel->in[i];
        int64_t rows = x->size[x->ndim - 2], columns = x->size[x->ndim - 1];
        if (rows > INT_MAX || columns > INT_MAX || (rows > MOST_ROWS && columns > MOST_ROWS))
            return fl_fail(FL_ERR_VALUE, "%s: cuSOLVER takes matrices of at most %d rows or columns", name, MOST_ROWS);
    }
    return FL_OK;
}

fl_status fl_solver_open(fl_solver *solver, fl_kernel *kernel, const char *name)
{
    const fl_view *a = &kernel->in[0];
    memset(solver, 0, sizeof *solver);
    solver->kernel = kernel;
    solver->name = name;
    solver->dtype = a->dtype;
    solver->count = 1;
    for (int axis = 0; axis < a->ndim - 2; axis++) solver->count *= a->size[axis];
    FL_TRY(check_sizes(kernel, name));
    solver->m = (int)a->size[a->ndim - 2];
    solver->n = (int)a->size[a->ndim - 1];
    if (!open_library()) return missing(name);
    FL_TRY(fl_cuda_graph_refuse("a call of cuSOLVER"));
    FL_TRY(set_handles(solver));
    FL_TRY(set_jacobi(solver));
    size_t bytes = (size_t)(3 * solver->count) * sizeof(int);
    FL_TRY(fl_cuda_malloc((void **)&solver->info, bytes));
    cudaMemsetAsync(solver->info, 0, bytes, fl_cuda_stream());
    solver->found = solver->info + solver->count;
    solver->ignored = solver->found + solver->count;
    return FL_OK;
}

void fl_solver_close(fl_solver *solver) { fl_cuda_free(solver->info); }

/* ---- batches ---- */

/* Matrices that are larger keep the GPU busy one by one. */
bool fl_solver_is_batch(const fl_solver *solver, int64_t rows, int64_t columns)
{
    enum { MOST_ROWS = 512, MOST_COLUMNS = 65536 };
    return solver->count > 1 && rows <= MOST_ROWS && columns <= MOST_COLUMNS;
}

__global__ void __launch_bounds__(FL_SOLVER_THREADS)
    list_addresses(char **out, char *data, int64_t bytes, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * FL_SOLVER_THREADS + threadIdx.x;
    if (i < count) out[i] = data + i * bytes;
}

fl_status fl_solver_addresses(void ***out, const fl_solver *solver, void *data, int64_t bytes)
{
    FL_TRY(fl_cuda_malloc((void **)out, (size_t)solver->count * sizeof **out));
    FL_LAUNCH(list_addresses, fl_blocks(solver->count, FL_SOLVER_THREADS), FL_SOLVER_THREADS, 0, (char **)*out,
              (char *)data, bytes, solver->count);
    return fl_cuda_check(solver->name);
}

/* ---- operands ---- */

fl_status fl_solver_columns_room(fl_cuda_array *a, const fl_view *view, int64_t step)
{
    int last = view->ndim - 1;
    int64_t matrices = 1;
    for (int axis = 0; axis < last - 1; axis++) matrices *= view->size[axis];
    a->view = *view;
    a->memory = NULL;
    FL_TRY(
        fl_cuda_malloc(&a->memory, (size_t)(matrices * step > 0 ? matrices * step : 1) * fl_dtype_size(view->dtype)));
    a->stride[last] = fl_solver_leading((int)view->size[last - 1]);
    a->stride[last - 1] = 1;
    for (int axis = last - 2; axis >= 0; axis--) {
        a->stride[axis] = step;
        step *= view->size[axis];
    }
    a->view.data = a->memory;
    a->view.stride = a->stride;
    a->view.contiguous = false;
    return FL_OK;
}

fl_status fl_solver_columns(fl_cuda_array *a, const fl_view *view, int64_t step)
{
    FL_TRY(fl_solver_columns_room(a, view, step));
    fl_status status = view->numel ? fl_cuda_copy_view(&a->view, view) : FL_OK;
    if (status != FL_OK) fl_cuda_array_close(a);
    return status;
}

fl_status fl_solver_take(const fl_view *out, const fl_cuda_array *a)
{
    fl_view part = *out;
    if (out->numel == 0) return FL_OK;
    part.data = a->memory;
    part.stride = a->stride;
    part.contiguous = false;
    return fl_cuda_copy_view(out, &part);
}

/* ---- reports ---- */

template<typename C>
__global__ void __launch_bounds__(FL_SOLVER_THREADS)
    report(const int *info, const int *found, int64_t count, C *codes, fl_cuda_fault *fault)
{
    int64_t i = (int64_t)blockIdx.x * FL_SOLVER_THREADS + threadIdx.x;
    if (i >= count) return;
    int code = found[i] ? found[i] : info[i];
    if (codes) codes[i] = code;
    if (fault && code) fl_cuda_report(fault, i, code);
}

static void word(char *text, size_t size, const void *context, long long matrix, long long code)
{
    fl_matrix_trouble_text(text, size, (const fl_matrix_trouble *)context, matrix, (int)code);
}

template<typename C>
static fl_status issue_report(const fl_solver *solver, void *codes, fl_cuda_fault *fault)
{
    FL_LAUNCH((report<C>), fl_blocks(solver->count, FL_SOLVER_THREADS), FL_SOLVER_THREADS, 0, (const int *)solver->info,
              (const int *)solver->found, solver->count, (C *)codes, fault);
    return fl_cuda_check(solver->name);
}

fl_status fl_solver_report(const fl_solver *solver, const fl_view *codes, const char *trouble)
{
    static_assert(sizeof(fl_matrix_trouble) <= FL_CUDA_FAULT_CONTEXT, "a fault's context");
    fl_cuda_fault *fault = NULL;
    fl_cuda_array a;
    fl_matrix_trouble context;
    if (trouble) {
        fl_matrix_trouble_of(&context, solver->name, trouble, &solver->kernel->in[0]);
        FL_TRY(fl_cuda_fault_new(&fault, word, &context, sizeof context));
    }
    if (!codes) return issue_report<int32_t>(solver, NULL, fault);
    FL_TRY(fl_cuda_array_room(&a, codes, codes->dtype));
    fl_status status = codes->dtype == FL_INT64 ? issue_report<int64_t>(solver, a.view.data, fault)
                                                : issue_report<int32_t>(solver, a.view.data, fault);
    if (status == FL_OK) status = fl_cuda_array_store(codes, &a);
    fl_cuda_array_close(&a);
    return status;
}
