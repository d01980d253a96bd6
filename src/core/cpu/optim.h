/*
** optim.h -- optimizer steps over all parameters in one pass.
**
** The operands of a kernel are groups of equally many tensors, one group after the other (parameters, gradients,
** states). A rule with a trust ratio has one more: for each parameter the sums of two squares, as two elements.
*/
#ifndef FL_CPU_OPTIM_H
#define FL_CPU_OPTIM_H

#include "cpu.h"
#include "op/optim.h"

/* One step in place. */
fl_status fl_cpu_step(fl_kernel *kernel, fl_step_rule rule, const fl_step *numbers);

/* out[0] = two sums of squares for each parameter, [parameters, 2], in a fixed order. */
fl_status fl_cpu_step_norms(fl_kernel *kernel, fl_step_norm norm, const fl_step *numbers);

/* out[0] = the sum of the squares of all elements of all operands, in a fixed order. */
fl_status fl_cpu_squares(fl_kernel *kernel);

/* out[0] = how many elements of all operands are infinite or NaN. */
fl_status fl_cpu_nonfinite(fl_kernel *kernel);

/* Multiplies the first `members` operands by the factor, in place. */
fl_status fl_cpu_scale(fl_kernel *kernel, int members, double factor);

/* ---- inner loops, one table per CPU level (optim.lv.c) ---- */

/* One stretch of n elements of all groups, in float or double. */
typedef void (*fl_step_fn)(void *const *groups, int64_t n, const fl_step *step);
typedef void (*fl_norms_fn)(double sums[2], void *const *groups, int64_t n, const fl_step *step);

typedef struct fl_optim_kernels { /* [0]: float, [1]: double */
    fl_step_fn steps[FL_STEP_RULE_COUNT][2];
    double (*trusts[FL_STEP_RULE_COUNT][2])(double length, double change, const fl_step *step); /* NULL: none */
    fl_norms_fn norms[FL_STEP_NORM_COUNT][2];
    double (*squares[2])(const void *x, int64_t n); /* sum, in a fixed order */
    double (*nonfinite[2])(const void *x, int64_t n);
    void (*scale[2])(void *x, int64_t n, double factor);
} fl_optim_kernels;

FL_DECLARE_LEVELS(const fl_optim_kernels, fl_optim_kernels);

#endif
