/*
** optim.lv.c -- optimizer loops of one CPU level, float and double.
**
** Each element is computed alone with correctly rounded operations, so a result depends neither on the
** number of threads nor on where an element falls in a vector.
*/
#include "optim.h"

#include <math.h>

#define REAL float
#define NAME float
#define ROOT sqrtf
#define ABS fabsf
#include "optim.inc"

#define REAL double
#define NAME double
#define ROOT sqrt
#define ABS fabs
#include "optim.inc"

const fl_optim_kernels FL_LV(fl_optim_kernels) = {
#define X(name, groups, written, make, trust) [FL_RULE_##name] = {step_##name##_float, step_##name##_double},
    .steps = {FL_STEP_RULES(X)},
#undef X
#define X(name) [FL_RULE_##name] = {ratio_##name##_float, ratio_##name##_double},
    .trusts = {FL_STEP_TRUSTED(X)},
#undef X
#define X(name, groups, make) [FL_NORM_##name] = {sums_##name##_float, sums_##name##_double},
    .norms = {FL_STEP_NORMS(X)},
#undef X
    .squares = {squares_float, squares_double},
    .nonfinite = {nonfinite_float, nonfinite_double},
    .scale = {scale_float, scale_double},
};
