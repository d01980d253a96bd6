/*
** recurrent.c -- sequences of recurrent layers with the team: see recurrent.h.
**
** Rows of a batch are independent of each other, so a thread takes its rows through all steps and waits for nobody. The
** weight is packed once for all of them.
*/
#include "recurrent.h"
#include "memory/scratch.h"
#include "stage.h"

enum { GRAIN = 12 }; /* rows of a part: the height of the product's tiles */
static const double NS_PER_MULTIPLICATION = 0.015;

struct job {
    const fl_recurrent *r;
    void (*run)(const fl_recurrent *r, int64_t from, int64_t to);
};

static void run_part(void *context, int64_t begin, int64_t end)
{
    const struct job *job = context;
    int64_t to = end * GRAIN < job->r->batch ? end * GRAIN : job->r->batch;
    job->run(job->r, begin * GRAIN, to);
}

fl_status fl_cpu_recurrent(fl_dtype dtype, fl_recurrent *r, bool backward, const char *name)
{
    const fl_recurrent_kernels *kernels = dtype == FL_FLOAT64 ? FL_BY_LEVEL(fl_recurrent_kernels_f64)
                                                              : FL_BY_LEVEL(fl_recurrent_kernels_f32);
    size_t bytes = (size_t)fl_recurrent_packed_size(r) * fl_dtype_size(dtype);
    void *packed = fl_scratch(FL_KERNEL_SCRATCH, bytes ? bytes : 1);
    if (!packed) return fl_fail(FL_ERR_MEMORY, "%s: out of memory: %zu bytes of scratch space", name, bytes);
    kernels->pack(packed, r, backward);
    r->packed = packed;
    struct job job = {r, backward ? kernels->backward : kernels->forward};
    double row = (double)r->steps * (double)(fl_recurrent_gates(r->kind) * r->width) * (double)(r->width + 20);
    fl_team_for((r->batch + GRAIN - 1) / GRAIN, GRAIN * row * NS_PER_MULTIPLICATION, run_part, &job);
    return FL_OK;
}
