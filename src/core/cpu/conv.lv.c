/*
** conv.lv.c -- unfolding images into columns and folding them back, and sums over one channel, for one CPU level.
*/
#include "conv.h"
#include "simd.h"

enum { VECTORS = 4 }; /* that a depthwise sum holds */

#define T float
#define FL_T(name) name##_float
#define FL_V(name) vf_##name
#define WIDTH VF_W
#define VEC vf
#include "conv.inc"

#define T double
#define FL_T(name) name##_double
#define FL_V(name) vd_##name
#define WIDTH VD_W
#define VEC vd
#include "conv.inc"

const fl_conv_kernels FL_LV(fl_conv_kernels) = {
    .unfold = {unfold_float, unfold_double},
    .fold = {fold_float, fold_double},
    .sum = {sum_float, sum_double},
    .fill = {fill_float, fill_double},
    .interleave = {interleave_float, interleave_double},
    .separate = {separate_float, separate_double},
    .depthwise = {depthwise_float, depthwise_double},
    .depthwise_weight = {depthwise_weight_float, depthwise_weight_double},
};
