/*
** optim.h -- the inner loops of the fused optimizer steps: one table per CPU level (optim.lv.c fills it).
*/
#ifndef FL_CPU_OPTIM_H
#define FL_CPU_OPTIM_H

#include "cpu.h"

/* Numbers of one step, ready to be used. */
typedef struct fl_step {
    double gradient_scale;    /* -1 to maximize */
    double decay;             /* added to the gradient: decay * p */
    double shrink;            /* p is multiplied by this first (decoupled decay), 1 for none */
    double beta1, beta2, eps; /* Adam */
    double rate;              /* lr, for Adam over the first moment's correction */
    double root_correction;   /* Adam: 1 / sqrt(correction of the second moment) */
    double momentum, damping; /* SGD: buffer = momentum * buffer + damping * g */
    bool nesterov;
} fl_step;

enum { FL_STEP_GROUPS = 4 }; /* p, g, and up to two states */

/* One stretch of n elements of all groups, in float or double. */
typedef void (*fl_step_fn)(void *const *groups, int64_t n, const fl_step *s);

typedef struct fl_optim_kernels { /* [0]: float, [1]: double */
    fl_step_fn adam[2], sgd[2], sgd_momentum[2];
    double (*squares[2])(const void *x, int64_t n); /* sum, in a fixed order */
    void (*scale[2])(void *x, int64_t n, double factor);
} fl_optim_kernels;

extern const fl_optim_kernels fl_optim_kernels_base;
#ifdef __x86_64__
extern const fl_optim_kernels fl_optim_kernels_avx2, fl_optim_kernels_avx512;
#endif

#endif
