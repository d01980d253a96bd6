/*
** conv.lv.c -- unfolding images into columns and folding them back, for one CPU level.
*/
#include "conv.h"
#include "simd.h"

#define T float
#define FL_T(name) name##_float
#define FL_V(name) vf_##name
#define WIDTH VF_W
#include "conv.inc"

#define T double
#define FL_T(name) name##_double
#define FL_V(name) vd_##name
#define WIDTH VD_W
#include "conv.inc"

const fl_conv_kernels FL_LV(fl_conv_kernels) = {
    .unfold = {unfold_float, unfold_double},
    .fold = {fold_float, fold_double},
    .sum = {sum_float, sum_double},
    .fill = {fill_float, fill_double},
};
