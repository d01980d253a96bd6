/*
** cublas.cu -- matrix products by cuBLASLt, which is opened when the first product is made.
**
** C^T = B^T A^T: a row-major matrix of ours is the transposed one for cuBLASLt, so B is its first operand and nothing
** is moved. The library chooses its kernel for a problem once; it is kept with the descriptors. Sums of 16-bit floats
** are never rounded between parts of k (no reduction in the type of the result), so results do not depend on the
** schedule.
**
** An activation is an epilogue where the library has that function: relu, max(x, 0), and gelu in its tanh form. How
** exactly it computes tanh is not documented, so products of float32 that may not be rounded to TF32 do without it:
** a kernel of ours then applies the activation to the product and its bias, as it does where there is no epilogue.
**
** FLOW_CUBLASLT: the library to open instead of those that are looked for.
*/
#include "copies.h"
#include "gemm.h"
#include "cuda/runtime/runtime.h"

extern "C" {
#include "core/base/hash.h"
#include "core/engine/precision.h"
}

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ---- */

/* clang-format off */
#define FL_CUBLAS_FUNCTIONS(X)                                                                                       \
    X(Create) X(Matmul) X(MatmulAlgoGetHeuristic) X(MatmulDescCreate) X(MatmulDescSetAttribute) X(MatmulDescDestroy) \
    X(MatrixLayoutCreate) X(MatrixLayoutSetAttribute) X(MatrixLayoutDestroy)                                         \
    X(MatmulPreferenceCreate) X(MatmulPreferenceSetAttribute) X(MatmulPreferenceDestroy)
/* clang-format on */

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
    static const int majors[] = FL_CUDA_MAJORS;
    void *library = fl_cuda_library("FLOW_CUBLASLT", "cublasLt", majors, 2);
#ifndef FL_EMULATED
    if (!library && !getenv("FLOW_CUBLASLT"))
        fprintf(stderr,
                "flowlua: libcublasLt.so.13 and .12 were not found: matrix products are slow; install cuBLAS or set "
                "LD_LIBRARY_PATH\n");
#endif
    return library;
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

#define LT_TRY(name, ...)                                                \
    do {                                                                 \
        cublasStatus_t code_ = lt.name(__VA_ARGS__);                     \
        if (code_ != CUBLAS_STATUS_SUCCESS) return failed(#name, code_); \
    } while (0)

/* ---- problems ---- */

/* The key of a choice of kernel. Compared as bytes: zeroed before it is filled. */
struct problem {
    int64_t m, n, k, a_ld, b_ld, batch, a_step, b_step, c_step;
    int32_t device, dtype, compute, epilogue, a_transposed, b_transposed, a_align, b_align, c_align;
};

struct choice {
    problem key;
    bool used, found;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
};

enum { CHOICES = 1024, MOST_WORKSPACE = 32 << 20, WIDEST_ALIGNMENT = 256 };
static choice choices[CHOICES]; /* by hash; products are issued by one thread */

/* Row-major with rows at least their length apart, or the transpose of such a matrix. */
static bool is_plain(int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    return (col == 1 || cols == 1) && (rows == 1 || row >= cols);
}

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

static int32_t alignment(uintptr_t bits)
{
    return bits == 0 || (bits & -bits) > WIDEST_ALIGNMENT ? WIDEST_ALIGNMENT : (int32_t)(bits & -bits);
}

static uint64_t hash(const problem *problem)
{
    uint64_t h = fl_hash_bytes(FL_HASH_START, problem, sizeof *problem);
    return h ^ h >> 32;
}

/* Axis of g's batch that one call takes: the longest; -1: there is none. */
static int longest_axis(const fl_cuda_gemm *gemm)
{
    int longest = gemm->batch - 1;
    for (int i = 0; i < gemm->batch; i++)
        if (gemm->size[i] > gemm->size[longest]) longest = i;
    return longest;
}

/* Distance of results along an axis of the batch. */
static int64_t result_step(const fl_cuda_gemm *gemm, int axis)
{
    int64_t step = gemm->m * gemm->n;
    for (int i = axis + 1; i < gemm->batch; i++) step *= gemm->size[i];
    return step;
}

/* ---- epilogues ---- */

/* GPUs before compute 8.0 have no TF32. */
static bool rounds_to_tf32(const fl_cuda_gemm *gemm)
{
    return gemm->dtype == FL_FLOAT32 && fl_precision_get() != FL_PRECISION_HIGHEST
        && fl_cuda_current()->capability >= 80;
}

/* Rows of what is kept before gelu are a multiple of 8 elements apart: the library requires it. */
static bool has_epilogue(const fl_cuda_gemm *gemm)
{
    enum { KEPT_ROWS = 8 };
    if (gemm->dtype == FL_FLOAT64) return !gemm->bias && !gemm->activation;
    if (gemm->activation != FL_CUDA_GELU_TANH) return gemm->activation != FL_CUDA_GELU;
    return (gemm->dtype != FL_FLOAT32 || rounds_to_tf32(gemm)) && !(gemm->before && gemm->n % KEPT_ROWS != 0);
}

static int32_t epilogue_of(const fl_cuda_gemm *gemm)
{
    int32_t epilogue = gemm->bias ? CUBLASLT_EPILOGUE_BIAS : 0;
    if (gemm->activation == FL_CUDA_RELU) epilogue |= CUBLASLT_EPILOGUE_RELU;
    if (gemm->activation == FL_CUDA_GELU_TANH)
        epilogue |= gemm->before ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    return epilogue ? epilogue : CUBLASLT_EPILOGUE_DEFAULT;
}

static bool adds_bias(int32_t epilogue) { return epilogue & CUBLASLT_EPILOGUE_BIAS; }

static bool keeps_before(int32_t epilogue)
{
    return (epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX;
}

/* ---- keys ---- */

static problem problem_of(const fl_cuda_gemm *gemm, int axis)
{
    problem p;
    uintptr_t a = (uintptr_t)gemm->a, b = (uintptr_t)gemm->b, c = (uintptr_t)gemm->c, item = fl_dtype_size(gemm->dtype);
    memset(&p, 0, sizeof p);
    p.m = gemm->m;
    p.n = gemm->n;
    p.k = gemm->k;
    p.a_ld = leading(&p.a_transposed, gemm->a_row, gemm->a_col, gemm->m, gemm->k);
    p.b_ld = leading(&p.b_transposed, gemm->b_row, gemm->b_col, gemm->k, gemm->n);
    p.batch = axis < 0 ? 1 : gemm->size[axis];
    p.a_step = axis < 0 ? 0 : gemm->a_step[axis];
    p.b_step = axis < 0 ? 0 : gemm->b_step[axis];
    p.c_step = axis < 0 ? 0 : result_step(gemm, axis);
    for (int i = 0; i < gemm->batch; i++) {
        a |= (uintptr_t)gemm->a_step[i] * item;
        b |= (uintptr_t)gemm->b_step[i] * item;
        c |= (uintptr_t)result_step(gemm, i) * item;
    }
    p.device = fl_cuda_current()->index;
    p.dtype = gemm->dtype;
    p.compute = rounds_to_tf32(gemm) ? CUBLAS_COMPUTE_32F_FAST_TF32
        : gemm->dtype == FL_FLOAT64  ? CUBLAS_COMPUTE_64F
                                     : CUBLAS_COMPUTE_32F;
    p.epilogue = epilogue_of(gemm);
    p.a_align = alignment(a);
    p.b_align = alignment(b);
    p.c_align = alignment(c | (uintptr_t)gemm->bias | (uintptr_t)gemm->before);
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
static fl_status layout_new(cublasLtMatrixLayout_t *out, const problem *problem, int64_t rows, int64_t cols,
                            bool transposed, int64_t ld, int64_t step)
{
    int32_t batch = (int32_t)problem->batch;
    LT_TRY(MatrixLayoutCreate, out, type_of(problem->dtype), (uint64_t)(transposed ? rows : cols),
           (uint64_t)(transposed ? cols : rows), ld);
    if (batch == 1) return FL_OK;
    LT_TRY(MatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    LT_TRY(MatrixLayoutSetAttribute, *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
    return FL_OK;
}

/* Sets the addresses of the epilogue's bias and of its stored input; the library chooses its kernel by the alignment of
** these addresses too. */
static fl_status point_epilogue(cublasLtMatmulDesc_t product, int32_t epilogue, const void *bias, void *before)
{
    if (adds_bias(epilogue))
        LT_TRY(MatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (keeps_before(epilogue))
        LT_TRY(MatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &before, sizeof before);
    return FL_OK;
}

static fl_status product_new(cublasLtMatmulDesc_t *out, const problem *problem, const fl_cuda_gemm *gemm)
{
    cublasOperation_t first = problem->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      second = problem->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(MatmulDescCreate, out, (cublasComputeType_t)problem->compute,
           problem->dtype == FL_FLOAT64 ? CUDA_R_64F : CUDA_R_32F);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, &problem->epilogue, sizeof problem->epilogue);
    if (keeps_before(problem->epilogue)) {
        LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &problem->n, sizeof problem->n);
        LT_TRY(MatmulDescSetAttribute, *out, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &problem->c_step,
               sizeof problem->c_step);
    }
    return point_epilogue(*out, problem->epilogue, gemm->bias, gemm->before);
}

static fl_status ask(choice *choice, cublasLtHandle_t handle, cublasLtMatmulPreference_t preference)
{
    const problem *p = &choice->key;
    cublasLtMatmulHeuristicResult_t result;
    size_t workspace = MOST_WORKSPACE;
    uint32_t a = (uint32_t)p->b_align, b = (uint32_t)p->a_align, d = (uint32_t)p->c_align,
             schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
           sizeof workspace);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
           sizeof schemes);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &d, sizeof d);
    LT_TRY(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d);
    cublasStatus_t code = lt.MatmulAlgoGetHeuristic(handle, choice->product, choice->b, choice->a, choice->c, choice->c,
                                                    preference, 1, &result, &count);
    choice->found = code == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    if (!choice->found) return FL_OK; /* it has no kernel for this */
    choice->algorithm = result.algo;
    choice->workspace = result.workspaceSize;
    return FL_OK;
}

static fl_status fill_choice(choice *choice, cublasLtHandle_t handle, const fl_cuda_gemm *gemm)
{
    const problem *p = &choice->key;
    cublasLtMatmulPreference_t preference;
    FL_TRY(product_new(&choice->product, p, gemm));
    FL_TRY(layout_new(&choice->a, p, p->m, p->k, p->a_transposed, p->a_ld, p->a_step));
    FL_TRY(layout_new(&choice->b, p, p->k, p->n, p->b_transposed, p->b_ld, p->b_step));
    FL_TRY(layout_new(&choice->c, p, p->m, p->n, false, p->n, p->c_step));
    LT_TRY(MatmulPreferenceCreate, &preference);
    fl_status status = ask(choice, handle, preference);
    lt.MatmulPreferenceDestroy(preference);
    return status;
}

static void forget(choice *choice)
{
    if (choice->product) lt.MatmulDescDestroy(choice->product);
    if (choice->a) lt.MatrixLayoutDestroy(choice->a);
    if (choice->b) lt.MatrixLayoutDestroy(choice->b);
    if (choice->c) lt.MatrixLayoutDestroy(choice->c);
    memset(choice, 0, sizeof *choice);
}

static fl_status find_choice(choice **out, const problem *problem, cublasLtHandle_t handle, const fl_cuda_gemm *gemm)
{
    choice *c = &choices[hash(problem) % CHOICES];
    *out = c;
    if (c->used && memcmp(&c->key, problem, sizeof *problem) == 0) return FL_OK;
    forget(c);
    c->key = *problem;
    fl_status status = fill_choice(c, handle, gemm);
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
static void call_offsets(int64_t *a, int64_t *b, int64_t *c, const fl_cuda_gemm *gemm, int axis, int64_t index)
{
    *a = *b = *c = 0;
    for (int i = gemm->batch - 1; i >= 0; i--) {
        if (i == axis) continue;
        int64_t at = index % gemm->size[i];
        index /= gemm->size[i];
        *a += at * gemm->a_step[i];
        *b += at * gemm->b_step[i];
        *c += at * result_step(gemm, i);
    }
}

/* result = epilogue(A B + beta * result) */
static fl_status multiply(choice *by, cublasLtHandle_t handle, const fl_cuda_gemm *gemm, int axis, double beta,
                          void *workspace)
{
    bool wide = gemm->dtype == FL_FLOAT64;
    int64_t calls = 1, a, b, c, item = (int64_t)fl_dtype_size(gemm->dtype);
    double one = 1;
    float one32 = 1, beta32 = (float)beta;
    for (int i = 0; i < gemm->batch; i++) calls *= i == axis ? 1 : gemm->size[i];
    for (int64_t i = 0; i < calls; i++) {
        call_offsets(&a, &b, &c, gemm, axis, i);
        FL_TRY(
            point_epilogue(by->product, by->key.epilogue, gemm->bias, gemm->before ? gemm->before + c * item : NULL));
        LT_TRY(Matmul, handle, by->product, wide ? (void *)&one : &one32, gemm->b + b * item, by->b, gemm->a + a * item,
               by->a, wide ? (void *)&beta : &beta32, gemm->c + c * item, by->c, gemm->c + c * item, by->c,
               &by->algorithm, workspace, by->workspace, fl_cuda_stream());
    }
    return FL_OK;
}

/* Every row of the result becomes the bias. */
static fl_status spread_bias(const fl_cuda_gemm *gemm)
{
    int64_t rows = gemm->m, strides[] = {gemm->n, 1}, repeated[] = {0, 1};
    for (int i = 0; i < gemm->batch; i++) rows *= gemm->size[i];
    int64_t size[] = {rows, gemm->n};
    fl_view out = {};
    out.data = gemm->c;
    out.dtype = gemm->dtype;
    out.ndim = 2;
    out.contiguous = true;
    out.size = size;
    out.stride = strides;
    out.numel = rows * gemm->n;
    fl_view in = out;
    in.data = gemm->bias;
    in.contiguous = false;
    in.stride = repeated;
    return fl_cuda_copy_view(&out, &in);
}

static bool is_countable(const fl_cuda_gemm *gemm, int axis)
{
    return gemm->m <= INT32_MAX && gemm->n <= INT32_MAX && gemm->k <= INT32_MAX
        && (axis < 0 || gemm->size[axis] <= INT32_MAX);
}

/* The product with the epilogue of g. *done = false: there is no kernel for it. */
static fl_status run_choice(bool *done, const fl_cuda_gemm *gemm, double beta)
{
    int axis = longest_axis(gemm);
    cublasLtHandle_t handle = NULL;
    choice *c;
    void *workspace = NULL;
    *done = false;
    FL_TRY(handle_of(&handle, fl_cuda_current()->index));
    problem p = problem_of(gemm, axis);
    FL_TRY(find_choice(&c, &p, handle, gemm));
    if (!c->found) return FL_OK;
    if (c->workspace) FL_TRY(fl_cuda_malloc(&workspace, c->workspace));
    fl_status status = multiply(c, handle, gemm, axis, beta, workspace);
    if (workspace) fl_cuda_free(workspace);
    *done = status == FL_OK;
    return status;
}

/* A product without an activation; where no epilogue adds the bias, it is what the product is added to. */
static fl_status run_plain(bool *done, const fl_cuda_gemm *gemm)
{
    fl_cuda_gemm bare = *gemm;
    *done = false;
    if (has_epilogue(gemm)) FL_TRY(run_choice(done, gemm, 0));
    if (*done || !gemm->bias) return FL_OK;
    FL_TRY(spread_bias(gemm));
    bare.bias = NULL;
    return run_choice(done, &bare, 1);
}

fl_status fl_cublas_gemm(bool *done, const fl_cuda_gemm *gemm)
{
    fl_cuda_gemm plain = *gemm;
    *done = false;
    if (!is_countable(gemm, longest_axis(gemm))) return FL_OK;
    if (!gemm->activation) return run_plain(done, gemm);
    if (has_epilogue(gemm)) FL_TRY(run_choice(done, gemm, 0));
    if (*done) return FL_OK;
    plain.activation = FL_CUDA_NONE;
    plain.before = NULL;
    if (gemm->before) plain.c = gemm->before;
    FL_TRY(run_plain(done, &plain));
    return *done ? fl_cuda_gemm_activate(gemm, plain.c) : FL_OK;
}
