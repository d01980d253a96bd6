/*
** optim.h -- optimizer steps over all parameters in one pass.
**
** The operands of a kernel are groups of equally many tensors, one group after the other (parameters, gradients,
** states).
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

typedef enum fl_step_kind { FL_STEP_ADAM, FL_STEP_SGD, FL_STEP_SGD_MOMENTUM } fl_step_kind;

/* One step in place. written: the groups that it changes, a bit each. */
fl_status fl_cpu_step(fl_kernel *kernel, int groups, uint32_t written, fl_step_kind kind, const fl_step *numbers);

/* out[0] = the sum of the squares of all elements of all operands, in a fixed order. */
fl_status fl_cpu_squares(fl_kernel *kernel);

/* Multiplies the first `members` operands by the factor, in place. */
fl_status fl_cpu_scale(fl_kernel *kernel, int members, double factor);

/* ---- inner loops, one table per CPU level (optim.lv.c) ---- */

enum { FL_STEP_GROUPS = 4 }; /* p, g, and up to two states */

/* One stretch of n elements of all groups, in float or double. */
typedef void (*fl_step_fn)(void *const *groups, int64_t n, const fl_step *step);

typedef struct fl_optim_kernels { /* [0]: float, [1]: double */
    fl_step_fn adam[2], sgd[2], sgd_momentum[2];
    double (*squares[2])(const void *x, int64_t n); /* sum, in a fixed order */
    void (*scale[2])(void *x, int64_t n, double factor);
} fl_optim_kernels;

FL_DECLARE_LEVELS(const fl_optim_kernels, fl_optim_kernels);

#endif
