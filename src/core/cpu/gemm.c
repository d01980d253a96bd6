/*
** gemm.c -- matrix products: oneDNN for large float32 ones, own kernels for the rest.
**
** oneDNN is opened at the first product that is large enough to gain from it, so a program that multiplies
** nothing large runs without it, and so does a machine that lacks it. Products are cut over our team by columns or
** rows of C, and oneDNN is called serially on each part: a second pool of threads would fight with ours. An
** element's value does not depend on the cut in our own kernels.
*/
#include "gemm.h"

#include <dlfcn.h>

/* From this many multiplications on oneDNN is used. Measured on AVX-512: 480 GF/s both up to 512^3, above that 470
** against 400, as oneDNN blocks for the caches; below, the own kernel also adds the bias in the same pass. */
static const double ONEDNN_FROM[FL_LEVEL_COUNT] = {96.0 * 96 * 96, 128.0 * 128 * 128, 512.0 * 512 * 512};
/* Products of a batch up to this size run whole on one thread each. */
static const double BATCH_SERIAL_UP_TO = 256.0 * 256 * 256;
static const double NS_PER_MULTIPLICATION = 0.01;

/* ---- oneDNN ---- */

typedef int (*sgemm_fn)(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                        const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

static void (*set_onednn_threads)(int); /* of the libgomp that came with it; per calling thread */

static void *open_onednn(void)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
    }
    return NULL;
}

static sgemm_fn load_onednn(void)
{
    void *handle = open_onednn();
    if (!handle) return NULL;
    set_onednn_threads = (void (*)(int))dlsym(handle, "omp_set_num_threads");
    return (sgemm_fn)dlsym(handle, "dnnl_sgemm");
}

/* NULL when there is none. Kernels are entered from one thread, so no lock is needed. */
static sgemm_fn onednn(void)
{
    static bool tried;
    static sgemm_fn sgemm;
    if (!tried) {
        tried = true;
        sgemm = load_onednn();
    }
    return sgemm;
}

/* BLAS's way to say how a matrix lies: rows contiguous, or columns contiguous (transposed). false: neither. */
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
    if (set_onednn_threads) set_onednn_threads(1);
    for (int64_t i = 0; gemm->bias && i < gemm->m; i++)
        memcpy(c + i * gemm->c_row, gemm->bias, sizeof(float) * (size_t)gemm->n);
    float beta = gemm->bias ? 1 : (float)gemm->beta;
    if (onednn()(ta ? 'T' : 'N', tb ? 'T' : 'N', gemm->m, gemm->n, gemm->k, (float)gemm->alpha, gemm->a, lda, gemm->b,
                 ldb, beta, c, gemm->c_row)
        == 0)
        return;
    fl_gemm own = *gemm;
    own.bias = NULL;
    own.beta = beta;
    fl_gemm_kernel(FL_FLOAT32)(&own);
}

/* ---- own kernels with the team ---- */

fl_gemm_fn fl_gemm_kernel(fl_dtype dtype)
{
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
    size_t item; /* bytes of an element */
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
        part.b = (const char *)part.b + from * part.b_col * (int64_t)p->item;
        move_result(&part, from * (int64_t)p->item);
        if (part.bias) part.bias = (const char *)part.bias + from * (int64_t)p->item;
    } else {
        part.m = to - from;
        part.a = (const char *)part.a + from * part.a_row * (int64_t)p->item;
        move_result(&part, from * part.c_row * (int64_t)p->item);
    }
    run_serial(&part, p->kernel, p->item);
}

static double multiplications(const fl_gemm *gemm) { return (double)gemm->m * (double)gemm->n * (double)gemm->k; }

static void run_on_team(fl_dtype dtype, const fl_gemm *gemm, fl_gemm_fn kernel)
{
    struct team_product p = {.g = gemm, .kernel = kernel, .item = fl_dtype_size(dtype)};
    int64_t team = fl_team_size();
    p.by_columns = gemm->n >= 64 * team; /* each thread then packs its own columns of B only */
    p.grain = p.by_columns ? 32 : 12;
    p.parts = ((p.by_columns ? gemm->n : gemm->m) + p.grain - 1) / p.grain;
    fl_team_for(p.parts, multiplications(gemm) * NS_PER_MULTIPLICATION / (double)p.parts, team_product_part, &p);
}

void fl_gemm_run(fl_dtype dtype, const fl_gemm *gemm)
{
    if (gemm->m == 0 || gemm->n == 0) return;
    bool large = dtype == FL_FLOAT32 && multiplications(gemm) >= ONEDNN_FROM[fl_cpu_level()];
    run_on_team(dtype, gemm, large && onednn() && suits_onednn(gemm) ? onednn_serial : fl_gemm_kernel(dtype));
}

/* ---- batches ---- */

struct team_batch {
    const fl_gemm_batch *batch;
    fl_gemm_fn kernel;
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
        fl_gemm one;
        batch_item(&one, t->batch, i, t->item);
        run_serial(&one, t->kernel, t->item);
    }
}

/* Integers: plain loops, wrapping around as unsigned arithmetic does. */
static void multiply_integers(const fl_gemm *gemm)
{
    const uint64_t *a = gemm->a, *b = gemm->b;
    uint64_t *c = gemm->c;
    for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) {
            uint64_t sum = gemm->bias ? ((const uint64_t *)gemm->bias)[j] : 0;
            for (int64_t p = 0; p < gemm->k; p++)
                sum += a[i * gemm->a_row + p * gemm->a_col] * b[p * gemm->b_row + j * gemm->b_col];
            c[i * gemm->c_row + j] = sum;
        }
}

static void multiply_integer_batch(const fl_gemm_batch *batch)
{
    for (int64_t i = 0; i < batch->count; i++) {
        fl_gemm g = batch->one;
        g.a = (const uint64_t *)g.a + batch->a_offset[i];
        g.b = (const uint64_t *)g.b + batch->b_offset[i];
        g.c = (uint64_t *)g.c + i * batch->c_step;
        multiply_integers(&g);
    }
}

void fl_gemm_run_batch(fl_dtype dtype, const fl_gemm_batch *batch)
{
    if (!fl_dtype_is_float(dtype)) {
        multiply_integer_batch(batch);
        return;
    }
    double each = multiplications(&batch->one);
    if (batch->count > 1 && each <= BATCH_SERIAL_UP_TO) {
        struct team_batch t = {batch, fl_gemm_kernel(dtype), fl_dtype_size(dtype)};
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
