/*
** quantized.c -- products with a quantized matrix: see quantized.h.
**
** A few rows of x read the matrix as it is, which is what takes the time; for more of them blocks of its rows become
** floats in the cache, and each block is one product of floats.
*/
#include "quantized.h"
#include "gemm.h"
#include "memory/scratch.h"
#include "stage.h"

enum { FEW = 4, BLOCK = 32, LONG = 256 }; /* rows of x; rows of the matrix; columns of a group */

struct job {
    const fl_quantized *matrix;
    const fl_quantized_table *loops;
    float *y;
    const float *x, *bias;
    int64_t count;
    bool failed;
};

static const char *row_at(const fl_quantized *quantized, int64_t row)
{
    return (const char *)quantized->matrix + row * (quantized->is_int4 ? quantized->columns / 2 : quantized->columns);
}

static const float *scales_at(const fl_quantized *quantized, int64_t row)
{
    return quantized->scales + row * (quantized->columns / quantized->group);
}

/* Each row of x times each row of the matrix. A sum over a group of 8 bits is multiplied by its scale; where groups are
** short, or of 4 bits, the row becomes floats first. */
static void few_rows(const struct job *job, float *row, int64_t begin, int64_t end)
{
    const fl_quantized *m = job->matrix;
    bool unpacked = m->is_int4 || m->group < LONG;
    for (int64_t r = begin; r < end; r++) {
        const char *numbers = row_at(m, r);
        const float *scales = scales_at(m, r);
        if (unpacked) job->loops->unpack[m->is_int4](row, numbers, scales, m->columns, m->group);
        for (int64_t i = 0; i < job->count; i++) {
            const float *x = job->x + i * m->columns;
            float sum = unpacked ? job->loops->dot(x, row, m->columns)
                                 : job->loops->dot_int8(x, (const int8_t *)numbers, scales, m->columns, m->group);
            job->y[i * m->rows + r] = sum + (job->bias ? job->bias[r] : 0);
        }
    }
}

static void many_rows(const struct job *job, float *block, int64_t begin, int64_t end)
{
    const fl_quantized *m = job->matrix;
    for (int64_t r = begin; r < end; r++)
        job->loops->unpack[m->is_int4](block + (r - begin) * m->columns, row_at(m, r), scales_at(m, r), m->columns,
                                       m->group);
    fl_gemm product = {.m = job->count,
                       .n = end - begin,
                       .k = m->columns,
                       .a = job->x,
                       .a_row = m->columns,
                       .a_col = 1,
                       .b = block,
                       .b_row = 1,
                       .b_col = m->columns,
                       .c = job->y + begin,
                       .c_row = m->rows,
                       .bias = job->bias ? job->bias + begin : NULL,
                       .alpha = 1};
    fl_gemm_kernel(FL_FLOAT32)(&product);
}

static void run_blocks(void *context, int64_t first, int64_t last)
{
    struct job *job = context;
    const fl_quantized *m = job->matrix;
    size_t floats = (size_t)(m->columns * (job->count > FEW ? BLOCK : 1) + 1);
    float *block = fl_scratch(FL_KERNEL_SCRATCH, floats * sizeof *block);
    if (!block) __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    for (int64_t b = first; b < last && block; b++) {
        int64_t begin = b * BLOCK, end = begin + BLOCK < m->rows ? begin + BLOCK : m->rows;
        if (job->count <= FEW) few_rows(job, block, begin, end);
        else many_rows(job, block, begin, end);
    }
}

fl_status fl_cpu_quantized(float *y, const float *x, const float *bias, int64_t count, const fl_quantized *matrix)
{
    struct job job = {
        .matrix = matrix, .loops = FL_BY_LEVEL(fl_quantized_table), .y = y, .x = x, .bias = bias, .count = count};
    double cost_ns = 0.05 * BLOCK * (double)matrix->columns * (double)count;
    if (count > 0) fl_team_for((matrix->rows + BLOCK - 1) / BLOCK, cost_ns, run_blocks, &job);
    return job.failed ? fl_fail(FL_ERR_MEMORY, "linear_quantized: out of memory for a block of the weight") : FL_OK;
}
