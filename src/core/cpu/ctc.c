/*
** ctc.c -- connectionist temporal classification: see ctc.h.
**
** The labels of a target stand at odd places, blanks at even ones. Paths go from place to place, or over a blank
** between two labels that differ; the probabilities of their beginnings (alpha) and ends (beta) are sums over the
** places before and behind, kept as logarithms.
*/
#include "ctc.h"
#include "memory/scratch.h"
#include "stage.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#define T float
#define FN(name) name##_f32
#define REAL(x) (x)
#define EXP(x) expf(x)
#define LOG1P_EXP(x) log1pf(expf(x))
#include "ctc.inc"

#define T double
#define FN(name) name##_f64
#define REAL(x) (x)
#define EXP(x) exp(x)
#define LOG1P_EXP(x) log1p(exp(x))
#include "ctc.inc"

#define T double complex
#define FN(name) name##_complex
#define REAL(x) creal(x)
#define EXP(x) cexp(x)
#define LOG1P_EXP(x) clog(1 + cexp(x))
#include "ctc.inc"

#define STEP 1e-100 /* h: its square is 0 beside anything */

struct job {
    const fl_ctc *ctc;
    fl_dtype dtype;
    void *losses, *gradient;
    const void *log_probs, *direction;
    size_t memory; /* of a sequence, bytes */
    bool failed;
};

static double number_at(const void *array, fl_dtype dtype, int64_t i)
{
    return dtype == FL_FLOAT64 ? ((const double *)array)[i] : ((const float *)array)[i];
}

/* The gradient of sequence i, differentiated along the direction. */
static void derive(const struct job *job, int64_t i, double complex *memory)
{
    const fl_ctc *c = job->ctc;
    double complex *x = memory, *gradient = x + c->time * c->classes, *alpha = gradient + c->time * c->classes;
    for (int64_t t = 0; t < c->time; t++)
        for (int64_t k = 0; k < c->classes; k++) {
            int64_t at = (t * c->batch + i) * c->classes + k;
            x[t * c->classes + k] = CMPLX(number_at(job->log_probs, job->dtype, at),
                                          STEP * number_at(job->direction, job->dtype, at));
        }
    sequence_complex(gradient, c, i, x, c->classes, alpha);
    for (int64_t t = 0; t < c->time; t++)
        for (int64_t k = 0; k < c->classes; k++) {
            int64_t at = (t * c->batch + i) * c->classes + k;
            double slope = cimag(gradient[t * c->classes + k]) / STEP;
            if (job->dtype == FL_FLOAT64) ((double *)job->gradient)[at] = slope;
            else ((float *)job->gradient)[at] = (float)slope;
        }
}

static void run_sequences(void *context, int64_t begin, int64_t end)
{
    struct job *job = context;
    const fl_ctc *c = job->ctc;
    void *memory = fl_scratch(FL_KERNEL_SCRATCH, job->memory);
    if (!memory) __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
    for (int64_t i = begin; i < end && memory; i++) {
        int64_t at = i * c->classes, stride = c->batch * c->classes;
        if (job->direction) derive(job, i, memory);
        else if (job->dtype == FL_FLOAT64)
            ((double *)job->losses)[i] = -sequence_f64((double *)job->gradient + at, c, i,
                                                       (const double *)job->log_probs + at, stride, memory);
        else
            ((float *)job->losses)[i] = -sequence_f32((float *)job->gradient + at, c, i,
                                                      (const float *)job->log_probs + at, stride, memory);
    }
}

fl_status fl_cpu_ctc(fl_dtype dtype, void *losses, void *gradient, const void *log_probs, const void *direction,
                     const fl_ctc *ctc)
{
    struct job job = {.ctc = ctc,
                      .dtype = dtype,
                      .losses = losses,
                      .gradient = gradient,
                      .log_probs = log_probs,
                      .direction = direction};
    int64_t most = 1;
    for (int64_t i = 0; i < ctc->batch; i++) {
        int64_t need = (ctc->input_lengths[i] + 2) * (2 * ctc->target_lengths[i] + 1);
        if (need > most) most = need;
    }
    job.memory = (size_t)most * fl_dtype_size(dtype);
    if (direction) job.memory = (size_t)(most + 2 * ctc->time * ctc->classes) * sizeof(double complex);
    fl_team_for(ctc->batch, 40.0 * (double)most, run_sequences, &job);
    return job.failed ? fl_fail(FL_ERR_MEMORY, "ctc_loss: out of memory for the sums over paths") : FL_OK;
}
