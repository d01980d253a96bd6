/*
** resample.lv.c -- lines resampled by a table of taps, for one CPU level.
*/
#include "resample.h"
#include "simd.h"

enum { LONG_RUN = 8 }; /* elements of a line that are worth copying as a block */

#define T float
#define FL_T(name) name##_float
#include "resample.inc"

#define T double
#define FL_T(name) name##_double
#include "resample.inc"

const fl_resample_kernels FL_LV(fl_resample_kernels) = {
    .forward = {forward_float, forward_double},
    .back = {back_float, back_double},
};
