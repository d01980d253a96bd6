/*
** gemm.c -- matrix products: oneDNN for large float32 ones, own kernels for the rest.
**
** oneDNN is opened at the first product that is large enough to gain from it, so a program that multiplies
** nothing large runs without it, and so does a machine that lacks it. Products are cut over our team by columns or
** rows of C, and oneDNN is called serially on each part: a second pool of threads would fight with ours. An
** element's value does not depend on the cut in our own kernels.
*/
#include "onednn.h"
#include "row_product.h"

#include <dlfcn.h>

/* From this many multiplications on oneDNN is used. Measured on AVX-512: 480 GF/s both up to 512^3, above that 470
** against 400, as oneDNN blocks for the caches; below, the own kernel also adds the bias in the same pass. */
static const double ONEDNN_FROM[FL_LEVEL_COUNT] = {96.0 * 96 * 96, 128.0 * 128 * 128, 512.0 * 512 * 512};
static const double BF16_FROM = 64.0 * 64 * 64;
/* The same where the rows of A lie apart, as in the gradient of a weight: our tiles read them from far. */
static const double ONEDNN_FROM_TRANSPOSED = 128.0 * 128 * 128;
/* Products of a batch up to this size run whole on one thread each. */
static const double BATCH_SERIAL_UP_TO = 256.0 * 256 * 256;
static const double NS_PER_MULTIPLICATION = 0.01;

/* ---- oneDNN ---- */

typedef int (*sgemm_fn)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                        const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

typedef int (*bf16_gemm_fn)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const void *a, int64_t lda,
                            const void *b, int64_t ldb, float beta, float *c, int64_t ldc);

struct onednn {
    sgemm_fn sgemm;         /* NULL when there is none */
    bf16_gemm_fn bf16_gemm; /* NULL too where the machine has no instructions for it */
};

static bool has_bf16_instructions(void)
{
#if defined(__x86_64__) && !defined(FL_ONE_LEVEL)
    __builtin_cpu_init();
    return fl_cpu_level() == FL_LEVEL_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* Kernels are entered from one thread, so no lock is needed. */
static const struct onednn *onednn(void)
{
    static bool tried;
    static struct onednn found;
    void *handle = tried ? NULL : fl_onednn_library();
    tried = true;
    if (!handle) return &found;
    found.sgemm = (sgemm_fn)dlsym(handle, "dnnl_sgemm");
    if (has_bf16_instructions()) found.bf16_gemm = (bf16_gemm_fn)dlsym(handle, "dnnl_gemm_bf16bf16f32");
    return &found;
}

/* The layout of a matrix in terms of BLAS: rows contiguous, or columns contiguous (transposed). false: neither. */
static bool blas_layout(bool *transposed, int64_t *ld, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if (rows == 1) row = cols;
    if (cols == 1) col = row == 1 ? rows : 1;
    *transposed = !(col == 1 && row >= cols);
    *ld = *transposed ? col : row;
    return !*transposed || (row == 1 && col >= rows);
}

static bool suits_onednn(const fl_gemm *gemm)
{
    bool transposed;
    int64_t ld;
    return !(gemm->bias && gemm->beta != 0) && blas_layout(&transposed, &ld, gemm->m, gemm->k, gemm->a_row, gemm->a_col)
        && blas_layout(&transposed, &ld, gemm->k, gemm->n, gemm->b_row, gemm->b_col);
}

/* On the calling thread alone. */
static void onednn_serial(const fl_gemm *gemm)
{
    bool ta, tb;
    int64_t lda, ldb;
    float *c = gemm->c;
    blas_layout(&ta, &lda, gemm->m, gemm->k, gemm->a_row, gemm->a_col);
    blas_layout(&tb, &ldb, gemm->k, gemm->n, gemm->b_row, gemm->b_col);
    fl_onednn_serial();
    for (int64_t i = 0; gemm->bias && i < gemm->m; i++)
        memcpy(c + i * gemm->c_row, gemm->bias, sizeof(float) * (size_t)gemm->n);
    float beta = gemm->bias ? 1 : (float)gemm->beta;
    if (onednn()->sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', gemm->m, gemm->n, gemm->k, (float)gemm->alpha, gemm->a, lda,
                        gemm->b, ldb, beta, c, gemm->c_row)
        == 0)
        return;
    fl_gemm own = *gemm;
    own.bias = NULL;
    own.beta = beta;
    fl_gemm_kernel(FL_FLOAT32)(&own);
}

/* A and B of bfloat16. */
static void onednn_bf16_serial(const fl_gemm *gemm)
{
    bool ta, tb;
    int64_t lda, ldb;
    float *c = gemm->c;
    blas_layout(&ta, &lda, gemm->m, gemm->k, gemm->a_row, gemm->a_col);
    blas_layout(&tb, &ldb, gemm->k, gemm->n, gemm->b_row, gemm->b_col);
    fl_onednn_serial();
    for (int64_t i = 0; gemm->bias && i < gemm->m; i++)
        memcpy(c + i * gemm->c_row, gemm->bias, sizeof(float) * (size_t)gemm->n);
    onednn()->bf16_gemm(ta ? 'T' : 'N', tb ? 'T' : 'N', gemm->m, gemm->n, gemm->k, (float)gemm->alpha, gemm->a, lda,
                        gemm->b, ldb, gemm->bias ? 1 : (float)gemm->beta, c, gemm->c_row);
}

/* ---- own kernels with the team ---- */

fl_gemm_fn fl_gemm_kernel(fl_dtype dtype)
{
    if (!fl_dtype_is_float(dtype)) return FL_BY_LEVEL(fl_gemm_i64);
    return dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_gemm_f64) : FL_BY_LEVEL(fl_gemm_f32);
}

/* A product, and its activation while it lies in the cache. */
static void run_serial(const fl_gemm *gemm, fl_gemm_fn kernel, size_t item)
{
    kernel(gemm);
    if (!gemm->activation) return;
    bool whole = gemm->c_row == gemm->n;
    int64_t rows = whole ? 1 : gemm->m, length = whole ? gemm->m * gemm->n : gemm->n,
            step = gemm->c_row * (int64_t)item;
    for (int64_t i = 0; i < rows; i++) {
        const void *in = (const char *)gemm->c + i * step;
        gemm->activation((char *)gemm->activated + i * step, &in, length, gemm->attributes);
    }
}

/* Moves C by so many bytes. */
static void move_result(fl_gemm *gemm, int64_t bytes)
{
    gemm->c = (char *)gemm->c + bytes;
    if (gemm->activation) gemm->activated = (char *)gemm->activated + bytes;
}

struct team_product {
    const fl_gemm *g;
    fl_gemm_fn kernel;
    size_t item, a_item, b_item; /* bytes of an element of C, A, B */
    bool by_columns;
    int64_t grain, parts; /* columns or rows of one part; number of parts */
};

static void team_product_part(void *context, int64_t begin, int64_t end)
{
    struct team_product *p = context;
    fl_gemm part = *p->g;
    int64_t whole = p->by_columns ? part.n : part.m, from = begin * p->grain,
            to = end * p->grain < whole ? end * p->grain : whole;
    if (p->by_columns) {
        part.n = to - from;
        part.b = (const char *)part.b + from * part.b_col * (int64_t)p->b_item;
        move_result(&part, from * (int64_t)p->item);
        if (part.bias) part.bias = (const char *)part.bias + from * (int64_t)p->item;
    } else {
        part.m = to - from;
        part.a = (const char *)part.a + from * part.a_row * (int64_t)p->a_item;
        move_result(&part, from * part.c_row * (int64_t)p->item);
    }
    run_serial(&part, p->kernel, p->item);
}

static double multiplications(const fl_gemm *gemm) { return (double)gemm->m * (double)gemm->n * (double)gemm->k; }

/* The dtypes are those of C, A and B. */
static void run_on_team(fl_dtype dtype, fl_dtype a, fl_dtype b, const fl_gemm *gemm, fl_gemm_fn kernel)
{
    struct team_product p = {.g = gemm,
                             .kernel = kernel,
                             .item = fl_dtype_size(dtype),
                             .a_item = fl_dtype_size(a),
                             .b_item = fl_dtype_size(b)};
    int64_t team = fl_team_size();
    p.by_columns = gemm->m == 1 || gemm->n >= 64 * team; /* each thread then packs its own columns of B only */
    p.grain = p.by_columns ? 32 : 12;
    p.parts = ((p.by_columns ? gemm->n : gemm->m) + p.grain - 1) / p.grain;
    fl_team_for(p.parts, multiplications(gemm) * NS_PER_MULTIPLICATION / (double)p.parts, team_product_part, &p);
}

void fl_gemm_run_row(fl_dtype dtype, fl_dtype matrix, const fl_gemm *row)
{
    run_on_team(dtype, dtype, matrix, row, fl_row_product_kernel(dtype, matrix));
}

void fl_gemm_run(fl_dtype dtype, const fl_gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0) return;
    fl_gemm row;
    bool vector = gemm->m == 1 || gemm->n == 1;
    if (vector && fl_dtype_is_float(dtype) && fl_row_product_suits(&row, gemm)) {
        fl_gemm_run_row(dtype, dtype, &row);
        return;
    }
    double from = ONEDNN_FROM[fl_cpu_level()];
    if (gemm->a_row == 1 && gemm->m > 1 && from > ONEDNN_FROM_TRANSPOSED) from = ONEDNN_FROM_TRANSPOSED;
    bool large = dtype == FL_FLOAT32 && multiplications(gemm) >= from;
    run_on_team(dtype, dtype, dtype, gemm,
                large && onednn()->sgemm && suits_onednn(gemm) ? onednn_serial : fl_gemm_kernel(dtype));
}

bool fl_gemm_has_bfloat16(void) { return onednn()->bf16_gemm != NULL; }

bool fl_gemm_run_bf16(const fl_gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0 || multiplications(gemm) < BF16_FROM || !suits_onednn(gemm)) return false;
    run_on_team(FL_FLOAT32, FL_BFLOAT16, FL_BFLOAT16, gemm, onednn_bf16_serial);
    return true;
}

/* ---- batches ---- */

struct team_batch {
    const fl_gemm_batch *batch;
    fl_gemm_fn kernel, row; /* row: for products of a single row, NULL: the same */
    size_t item;
};

static void batch_item(fl_gemm *out, const fl_gemm_batch *batch, int64_t i, size_t item)
{
    *out = batch->one;
    out->a = (const char *)out->a + batch->a_offset[i] * (int64_t)item;
    out->b = (const char *)out->b + batch->b_offset[i] * (int64_t)item;
    move_result(out, i * batch->c_step * (int64_t)item);
}

static void team_batch_part(void *context, int64_t begin, int64_t end)
{
    struct team_batch *t = context;
    for (int64_t i = begin; i < end; i++) {
        fl_gemm one, row;
        batch_item(&one, t->batch, i, t->item);
        if (t->row && fl_row_product_suits(&row, &one)) run_serial(&row, t->row, t->item);
        else run_serial(&one, t->kernel, t->item);
    }
}

void fl_gemm_run_batch(fl_dtype dtype, const fl_gemm_batch *batch)
{
    double each = multiplications(&batch->one);
    if (batch->count > 1 && each <= BATCH_SERIAL_UP_TO) {
        struct team_batch t = {.batch = batch, .kernel = fl_gemm_kernel(dtype), .item = fl_dtype_size(dtype)};
        bool vector = batch->one.m == 1 || batch->one.n == 1;
        if (vector && fl_dtype_is_float(dtype)) t.row = fl_row_product_kernel(dtype, dtype);
        fl_team_for(batch->count, 20 + each * NS_PER_MULTIPLICATION, team_batch_part, &t);
        return;
    }
    for (int64_t i = 0; i < batch->count; i++) {
        fl_gemm one;
        batch_item(&one, batch, i, fl_dtype_size(dtype));
        fl_gemm_run(dtype, &one);
    }
}

/* ---- the BLAS-like entries ---- */

static fl_gemm from_blas(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t lda,
                         const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    return (fl_gemm){.m = m,
                     .n = n,
                     .k = k,
                     .a = a,
                     .b = b,
                     .c = c,
                     .a_row = ta ? 1 : lda,
                     .a_col = ta ? lda : 1,
                     .b_row = tb ? 1 : ldb,
                     .b_col = tb ? ldb : 1,
                     .c_row = ldc,
                     .alpha = alpha,
                     .beta = beta};
}

void fl_cpu_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    fl_gemm g = from_blas(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    fl_gemm_run(FL_FLOAT32, &g);
}
