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
#include "optim.inc"

#define REAL double
#define NAME double
#define ROOT sqrt
#include "optim.inc"

const fl_optim_kernels FL_LV(fl_optim_kernels) = {
    .adam = {adam_float, adam_double},
    .sgd = {sgd_float, sgd_double},
    .sgd_momentum = {sgd_momentum_float, sgd_momentum_double},
    .squares = {squares_float, squares_double},
    .scale = {scale_float, scale_double},
};
