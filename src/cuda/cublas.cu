/*
** cublas.cu -- matrix products by cuBLASLt, which is opened when the first product is made.
**
** C^T = B^T A^T: what is row-major for us is column-major for cuBLASLt, so B is its first operand and nothing is moved. Which
** of its kernels serves a problem is asked once and remembered with the descriptors. Sums of 16-bit floats are never
** rounded between parts of k (no reduction in the type of the result), so results do not depend on the schedule.
**
** FLOW_CUBLASLT: the library to open instead of those that are looked for.
*/
#include "copies.h"
#include "gemm.h"
#include "runtime.h"

extern "C" {
#include "../core/precision.h"
}

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

#define FL_CUBLAS_FUNCTIONS(X)                                                                                       \
    X(Create) X(Matmul) X(MatmulAlgoGetHeuristic) X(MatmulDescCreate) X(MatmulDescSetAttribute) X(MatmulDescDestroy) \
    X(MatrixLayoutCreate) X(MatrixLayoutSetAttribute) X(MatrixLayoutDestroy)                                         \
    X(MatmulPreferenceCreate) X(MatmulPreferenceSetAttribute) X(MatmulPreferenceDestroy)

static struct {
#define FL_CUBLAS_FIELD(name) decltype(&cublasLt##name) name;
    FL_CUBLAS_FUNCTIONS(FL_CUBLAS_FIELD)
    bool tried, found;
    cublasLtHandle_t handles[FL_CUDA_DEVICES];
} lt;

static bool load_functions(void *library)
{
#define FL_CUBLAS_LOAD(name) \
    if (!(lt.name = (decltype(lt.name))dlsym(library, "cublasLt" #name))) return false;
    FL_CUBLAS_FUNCTIONS(FL_CUBLAS_LOAD)
    return true;
}

static void *open_library(void)
{
    const char *own = getenv("FLOW_CUBLASLT");
    if (own) return dlopen(own, RTLD_NOW | RTLD_LOCAL);
#ifndef FL_EMULATED
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    for (const char *name : names) {
        void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    fprintf(stderr, "flowlua: libcublasLt.so.13 and .12 were not found: matrix products are slow; install cuBLAS or set LD_LIBRARY_PATH\n");
#endif
    return NULL;
}

bool fl_cublas_open(void)
{
    if (lt.tried) return lt.found;
    lt.tried = true;
    void *library = open_library();
    lt.found = library && load_functions(library);
    return lt.found;
}

static fl_status failed(const char *what, cublasStatus_t code)
{
    return fl_fail(FL_ERR_STATE, "matmul: cuBLASLt's %s failed with status %d", what, (int)code);
}

#define LT_TRY(name, ...)                                           \
    do {                                                            \
        cublasStatus_t code_ = lt.name(__VA_ARGS__);                \
        if (code_ != CUBLAS_STATUS_SUCCESS) return failed(#name, code_); \
    } while (0)

/* ---- problems ---- */

/* What a choice of kernel depends on. Compared as bytes: zeroed before it is filled. */
typedef struct problem {
    int64_t m, n, k, a_ld, b_ld, batch, a_step, b_step, c_step;
    int32_t device, dtype, compute, a_transposed, b_transposed, has_bias, a_align, b_align, c_align;
} problem;

typedef struct choice {
    problem key;
    bool used, found;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} choice;

enum { CHOICES = 1024, MOST_WORKSPACE = 32 << 20, WIDEST_ALIGNMENT = 256 };
static choice choices[CHOICES];         /* by hash; products are issued by one thread */

/* Row-major with rows at least their length apart, or the transpose of such a matrix. */
static bool is_plain(int64_t row, int64_t col, int64_t rows, int64_t cols) { return (col == 1 || cols == 1) && (rows == 1 || row >= cols); }

bool fl_cublas_takes(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    return is_plain(row, col, rows, cols) || is_plain(col, row, cols, rows);
}

/* Distance of rows, or of columns when it is transposed. */
static int64_t leading(int32_t *transposed, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    *transposed = !is_plain(row, col, rows, cols);
    if (*transposed) return cols == 1 ? rows : col;
    return rows == 1 ? cols : row;
}

static int32_t alignment(uintptr_t bits) { return bits == 0 || (bits & -bits) > WIDEST_ALIGNMENT ? WIDEST_ALIGNMENT : (int32_t)(bits & -bits); }

static uint64_t hash(const problem *p)
{
    const unsigned char *bytes = (const unsigned char *)p;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof *p; i++) h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    return h ^ h >> 32;
}

/* Axis of g's batch that one call takes: the longest; -1: there is none. */
static int longest_axis(const fl_cuda_gemm *g)
{
    int longest = g->batch - 1;
    for (int i = 0; i < g->batch; i++)
        if (g->size[i] > g->size[longest]) longest = i;
    return longest;
}

/* Distance of results along an axis of the batch. */
static int64_t result_step(const fl_cuda_gemm *g, int axis)
{
    int64_t step = g->m * g->n;
    for (int i = axis + 1; i < g->batch; i++) step *= g->size[i];
    return step;
}

static cublasComputeType_t compute_of(int dtype)
{
    if (dtype == FL_FLOAT64) return CUBLAS_COMPUTE_64F;
    return dtype == FL_FLOAT32 && fl_precision_get() != FL_PRECISION_HIGHEST ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static problem problem_of(const fl_cuda_gemm *g, int axis, bool has_bias)
{
    problem p;
    uintptr_t a = (uintptr_t)g->a, b = (uintptr_t)g->b, c = (uintptr_t)g->c, item = fl_dtype_size(g->dtype);
    memset(&p, 0, sizeof p);
    p.m = g->m;
    p.n = g->n;
    p.k = g->k;
    p.a_ld = leading(&p.a_transposed, g->a_row, g->a_col, g->m, g->k);
    p.b_ld = leading(&p.b_transposed, g->b_row, g->b_col, g->k, g->n);
    p.batch = axis < 0 ? 1 : g->size[axis];
    p.a_step = axis < 0 ? 0 : g->a_step[axis];
    p.b_step = axis < 0 ? 0 : g->b_step[axis];
    p.c_step = axis < 0 ? 0 : result_step(g, axis);
    for (int i = 0; i < g->batch; i++) {
        a |= (uintptr_t)g->a_step[i] * item;
        b |= (uintptr_t)g->b_step[i] * item;
        c |= (uintptr_t)result_step(g, i) * item;
    }
    p.device = fl_cuda_current()->index;
    p.dtype = g->dtype;
    p.compute = compute_of(g->dtype);
    p.has_bias = has_bias;
    p.a_align = alignment(a);
    p.b_align = alignment(b);
    p.c_align = alignment(has_bias ? c | (uintptr_t)g->bias : c);
    return p;
}

/* ---- choosing a kernel ---- */

static cudaDataType_t type_of(int dtype)
{
    switch (dtype) {
    case FL_FLOAT16: return CUDA_R_16F;
    case FL_BFLOAT16: return CUDA_R_16BF;
    case FL_FLOAT64: return CUDA_R_64F;
    default: return CUDA_R_32F;
    }
}

/* A row-major rows x cols matrix (or, transposed, cols x rows): column-major with the axes exchanged. */
static fl_status layout_new(cublasLtMatrixLayout_t *out, const problem *p, int64_t rows, int64_t cols, bool transposed, int64_t ld, int64_t step)
{
    int32_t batch = (int32_t)p->batch;
    LT_TRY(MatrixLayoutCreate, out, type_of(p->dtype), (uint64_t)(transposed ? rows : cols), (uint64_t)(transposed ? cols : rows), ld);
    if (batch == 1) return FL_OK;
    LT_TRY(MatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    LT_TRY(MatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    return FL_OK;
}

static fl_status product_new(cublasLtMatmulDesc_t *out, const problem *p, const void *bias)
{
    cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    LT_TRY(MatmulDescCreate, out, (cublasComputeType_t)p->compute, p->dtype == FL_FLOAT64 ? CUDA_R_64F : CUDA_R_32F);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    if (!p->has_bias) return FL_OK;
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    return FL_OK;
}

static fl_status ask(choice *c, cublasLtHandle_t handle, cublasLtMatmulPreference_t preference)
{
    const problem *p = &c->key;
    cublasLtMatmulHeuristicResult_t result;
    size_t workspace = MOST_WORKSPACE;
    uint32_t a = (uint32_t)p->b_align, b = (uint32_t)p->a_align, d = (uint32_t)p->c_align, schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d);
    cublasStatus_t code = lt.MatmulAlgoGetHeuristic(handle, c->product, c->b, c->a, c->c, c->c, preference, 1, &result, &count);
    c->found = code == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (!c->found) return FL_OK; /* it has no kernel for this */
    c->algorithm = result.algo;
    c->workspace = result.workspaceSize;
    return FL_OK;
}

static fl_status fill_choice(choice *c, cublasLtHandle_t handle, const void *bias)
{
    const problem *p = &c->key;
    cublasLtMatmulPreference_t preference;
    FL_TRY(product_new(&c->product, p, bias));
    FL_TRY(layout_new(&c->a, p, p->m, p->k, p->a_transposed, p->a_ld, p->a_step));
    FL_TRY(layout_new(&c->b, p, p->k, p->n, p->b_transposed, p->b_ld, p->b_step));
    FL_TRY(layout_new(&c->c, p, p->m, p->n, false, p->n, p->c_step));
    LT_TRY(MatmulPreferenceCreate, &preference);
    fl_status status = ask(c, handle, preference);
    lt.MatmulPreferenceDestroy(preference);
    return status;
}

static void forget(choice *c)
{
    if (c->product) lt.MatmulDescDestroy(c->product);
    if (c->a) lt.MatrixLayoutDestroy(c->a);
    if (c->b) lt.MatrixLayoutDestroy(c->b);
    if (c->c) lt.MatrixLayoutDestroy(c->c);
    memset(c, 0, sizeof *c);
}

static fl_status find_choice(choice **out, const problem *p, cublasLtHandle_t handle, const void *bias)
{
    choice *c = &choices[hash(p) % CHOICES];
    *out = c;
    if (c->used && memcmp(&c->key, p, sizeof *p) == 0) return FL_OK;
    forget(c);
    c->key = *p;
    fl_status status = fill_choice(c, handle, bias);
    if (status != FL_OK) forget(c);
    else c->used = true;
    return status;
}

/* ---- running ---- */

static fl_status handle_of(cublasLtHandle_t *out, int device)
{
    if (!lt.handles[device]) LT_TRY(Create, &lt.handles[device]);
    *out = lt.handles[device];
    return FL_OK;
}

/* Elements before the matrices of call number `index`, over all axes but the one that a call takes. */
static void call_offsets(int64_t *a, int64_t *b, int64_t *c, const fl_cuda_gemm *g, int axis, int64_t index)
{
    *a = *b = *c = 0;
    for (int i = g->batch - 1; i >= 0; i--) {
        if (i == axis) continue;
        int64_t at = index % g->size[i];
        index /= g->size[i];
        *a += at * g->a_step[i];
        *b += at * g->b_step[i];
        *c += at * result_step(g, i);
    }
}

/* result = A B + beta * result, with the bias if the choice has one. */
static fl_status multiply(choice *by, cublasLtHandle_t handle, const fl_cuda_gemm *g, int axis, double beta, void *workspace)
{
    bool wide = g->dtype == FL_FLOAT64;
    int64_t calls = 1, a, b, c, item = (int64_t)fl_dtype_size(g->dtype);
    double one = 1;
    float one32 = 1, beta32 = (float)beta;
    for (int i = 0; i < g->batch; i++) calls *= i == axis ? 1 : g->size[i];
    if (by->key.has_bias)
        LT_TRY(MatmulDescSetAttribute, by->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
    for (int64_t i = 0; i < calls; i++) {
        call_offsets(&a, &b, &c, g, axis, i);
        LT_TRY(Matmul, handle, by->product, wide ? (void *)&one : &one32, g->b + b * item, by->b, g->a + a * item, by->a,
               wide ? (void *)&beta : &beta32, g->c + c * item, by->c, g->c + c * item, by->c, &by->algorithm, workspace,
               by->workspace, fl_cuda_stream());
    }
    return FL_OK;
}

/* Every row of the result becomes the bias. */
static fl_status spread_bias(const fl_cuda_gemm *g)
{
    int64_t rows = g->m, strides[] = {g->n, 1}, repeated[] = {0, 1};
    for (int i = 0; i < g->batch; i++) rows *= g->size[i];
    int64_t size[] = {rows, g->n};
    fl_view out = {};
    out.data = g->c;
    out.dtype = g->dtype;
    out.ndim = 2;
    out.contiguous = true;
    out.size = size;
    out.stride = strides;
    out.numel = rows * g->n;
    fl_view in = out;
    in.data = g->bias;
    in.contiguous = false;
    in.stride = repeated;
    return fl_cuda_copy_view(&out, &in);
}

static bool is_countable(const fl_cuda_gemm *g, int axis)
{
    return g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX && (axis < 0 || g->size[axis] <= INT32_MAX);
}

fl_status fl_cublas_gemm(bool *done, const fl_cuda_gemm *g)
{
    int axis = longest_axis(g);
    bool in_epilogue = g->bias && g->dtype != FL_FLOAT64;
    cublasLtHandle_t handle = NULL;
    choice *c;
    void *workspace = NULL;
    *done = false;
    if (!is_countable(g, axis)) return FL_OK;
    FL_TRY(handle_of(&handle, fl_cuda_current()->index));
    problem p = problem_of(g, axis, in_epilogue);
    FL_TRY(find_choice(&c, &p, handle, g->bias));
    if (!c->found && in_epilogue) {
        in_epilogue = false;
        p = problem_of(g, axis, false);
        FL_TRY(find_choice(&c, &p, handle, g->bias));
    }
    if (!c->found) return FL_OK;
    bool spread = g->bias && !in_epilogue;
    if (spread) FL_TRY(spread_bias(g));
    if (c->workspace) FL_TRY(fl_cuda_malloc(&workspace, c->workspace));
    fl_status status = multiply(c, handle, g, axis, spread ? 1 : 0, workspace);
    if (workspace) fl_cuda_free(workspace);
    *done = status == FL_OK;
    return status;
}
