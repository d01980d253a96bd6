/*
** matrices.c -- batches of matrices shared out to the team: see matrices.h.
*/
#include "matrices.h"
#include "memory/scratch.h"
#include "stage.h"

#include <math.h>

static const double NS_PER_OPERATION = 0.3, NS_PER_CALL = 400;

static const double one_f64 = 1, zero_f64 = 0;
static const float one_f32 = 1, zero_f32 = 0;

const void *fl_matrices_one(const fl_matrices *job)
{
    return job->dtype == FL_FLOAT64 ? (const void *)&one_f64 : (const void *)&one_f32;
}
const void *fl_matrices_zero(const fl_matrices *job)
{
    return job->dtype == FL_FLOAT64 ? (const void *)&zero_f64 : (const void *)&zero_f32;
}

/* In blocks, so that reads and writes both stay in the cache. */
enum { BLOCK = 16 };
#define TRANSPOSE(type)                                                                                            \
    static void transpose_##type(type *out, int64_t out_step, const type *in, int64_t step, int rows, int columns) \
    {                                                                                                              \
        for (int i0 = 0; i0 < rows; i0 += BLOCK)                                                                   \
            for (int j0 = 0; j0 < columns; j0 += BLOCK)                                                            \
                for (int j = j0; j < j0 + BLOCK && j < columns; j++)                                               \
                    for (int i = i0; i < i0 + BLOCK && i < rows; i++) out[j * out_step + i] = in[i * step + j];    \
    }
TRANSPOSE(float)
TRANSPOSE(double)

void fl_matrices_transpose(const fl_matrices *job, void *out, int out_step, const void *in, int step, int rows,
                           int columns)
{
    if (job->dtype == FL_FLOAT64) transpose_double(out, out_step, in, step, rows, columns);
    else transpose_float(out, out_step, in, step, rows, columns);
}

bool fl_matrices_finite(const fl_matrices *job, const void *array, int64_t elements)
{
    bool good = true;
    for (int64_t i = 0; i < elements; i++) good &= isfinite(fl_matrices_get(job, array, i)) != 0;
    return good;
}

struct batch {
    fl_matrices *job;
    const fl_matrix_routine *routine;
};

/* Of several matrices with something wrong the first one is kept. */
static void note_failure(fl_matrices *job, int64_t i, int info)
{
    static char taken;
    while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) continue;
    if (i < job->failed) {
        job->failed = i;
        job->info = info;
    }
    __atomic_clear(&taken, __ATOMIC_RELEASE);
}

static void run_some(void *context, int64_t begin, int64_t end)
{
    struct batch *b = context;
    char *scratch = fl_scratch(FL_KERNEL_SCRATCH, b->job->bytes + 64);
    if (!scratch) {
        note_failure(b->job, -1, FL_MATRIX_NO_MEMORY);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int info = b->routine->run(b->job, i, scratch);
        if (info) note_failure(b->job, i, info);
    }
}

fl_status fl_matrices_run(fl_matrices *job, const fl_matrix_routine *routine)
{
    FL_TRY(fl_lapack_open(&job->lapack, job->name, job->dtype));
    job->item = fl_dtype_size(job->dtype);
    job->failed = job->count;
    job->info = 0;
    routine->plan(job);
    struct batch b = {job, routine};
    fl_team_for(job->count, NS_PER_CALL + routine->operations(job) * NS_PER_OPERATION, run_some, &b);
    if (job->info == FL_MATRIX_NO_MEMORY)
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", job->name, job->bytes);
    return FL_OK;
}
