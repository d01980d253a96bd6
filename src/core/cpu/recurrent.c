/*
** recurrent.c -- sequences of recurrent layers with the team: see recurrent.h.
**
** Rows of a batch are independent of each other. If there are many, each thread takes some through all steps without
** waiting for others; few rows would make thin products by the whole weight, so then the threads share the hidden units
** of every step. The weight is packed once for all steps.
*/
#include "recurrent.h"
#include "memory/scratch.h"
#include "stage.h"

#include <string.h>

enum {
    MANY_ROWS = 12, /* of a thread: the height of the product's tiles */
    MOST_ROWS = 96, /* of a thread at a time: their states stay in the L2 */
    FEW_ROWS = 4,   /* as few may have a thread of their own if steps are too short to be shared */
    BLOCK = 48,     /* rows of a piece of a step */
};
static const double NS_PER_MULTIPLICATION = 0.015, SHARED_STEP_NS = 12000;

struct job {
    const fl_recurrent *r;
    const fl_recurrent_kernels *kernels;
    bool backward;
    int64_t rows;  /* of a part */
    int64_t count; /* of a shared step */
};

static int64_t parts_of(int64_t all, int64_t each) { return (all + each - 1) / each; }

static int64_t end_of(int64_t part, int64_t each, int64_t all) { return part * each < all ? part * each : all; }

/* ---- rows by themselves ---- */

static void run_rows(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    const fl_recurrent *r = job->r;
    for (int64_t i = begin; i < end; i++) {
        fl_recurrent_part part = {i * job->rows, end_of(i + 1, job->rows, r->batch), 0, fl_recurrent_panels(r)};
        for (int64_t count = 0; !job->backward && count < r->steps; count++) job->kernels->forward(r, count, part);
        for (int64_t count = r->steps - 1; job->backward && count >= 0; count--) {
            job->kernels->slopes(r, count, part.row, part.row_to);
            job->kernels->through_weight(r, count, part);
        }
    }
}

/* ---- steps by the whole team ---- */

/* Pieces of a step: all blocks of rows of a panel, then those of the next one. */
static void run_pieces(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    const fl_recurrent *r = job->r;
    const int64_t blocks = parts_of(r->batch, job->rows);
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = i / blocks, block = i % blocks;
        fl_recurrent_part part = {block * job->rows, end_of(block + 1, job->rows, r->batch), panel, panel + 1};
        if (job->backward) job->kernels->through_weight(r, job->count, part);
        else job->kernels->forward(r, job->count, part);
    }
}

static void run_slopes(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    job->kernels->slopes(job->r, job->count, begin, end);
}

static void run_steps(struct job *job, double step_ns)
{
    const fl_recurrent *r = job->r;
    const int64_t pieces = fl_recurrent_panels(r) * parts_of(r->batch, job->rows);
    for (int64_t i = 0; i < r->steps; i++) {
        job->count = job->backward ? r->steps - 1 - i : i;
        if (job->backward) fl_team_for(r->batch, (double)r->width, run_slopes, job);
        fl_team_for(pieces, step_ns / (double)pieces, run_pieces, job);
    }
}

static void clear_states(const fl_recurrent *recurrent, size_t item)
{
    size_t bytes = item * (size_t)(recurrent->batch * recurrent->width);
    memset(recurrent->dh0, 0, bytes);
    if (recurrent->kind == FL_LSTM) memset(recurrent->more, 0, bytes);
}

fl_status fl_cpu_recurrent(fl_dtype dtype, fl_recurrent *recurrent, bool backward, const char *name)
{
    const fl_recurrent_kernels *kernels = dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_recurrent_kernels_f64)
                                                              : FL_BY_LEVEL(fl_recurrent_kernels_f32);
    size_t bytes = (size_t)fl_recurrent_packed_size(recurrent) * fl_dtype_size(dtype);
    void *packed = fl_scratch(FL_KERNEL_SCRATCH, bytes ? bytes : 1);
    if (!packed) return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", name, bytes);
    kernels->pack(packed, recurrent, backward);
    recurrent->packed = packed;
    if (backward) clear_states(recurrent, fl_dtype_size(dtype));
    struct job job = {.r = recurrent, .kernels = kernels, .backward = backward, .rows = BLOCK};
    const int64_t threads = fl_team_size();
    double row = (double)(fl_recurrent_gates(recurrent->kind) * recurrent->width) * (double)(recurrent->width + 20)
        * NS_PER_MULTIPLICATION;
    if (recurrent->batch < MANY_ROWS * threads && row * (double)recurrent->batch >= SHARED_STEP_NS) {
        run_steps(&job, row * (double)recurrent->batch);
        return FL_OK;
    }
    int64_t parts = recurrent->batch / FEW_ROWS < threads ? recurrent->batch / FEW_ROWS : threads;
    parts = parts < 1 ? 1 : parts * parts_of(recurrent->batch, parts * MOST_ROWS);
    job.rows = parts_of(recurrent->batch, parts);
    fl_team_for(parts_of(recurrent->batch, job.rows), (double)job.rows * row * (double)recurrent->steps, run_rows,
                &job);
    return FL_OK;
}
