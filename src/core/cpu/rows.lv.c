/*
** rows.lv.c -- softmax, cross-entropy and layer_norm over contiguous rows, softmax down columns, at one CPU level.
**
** A row is read a vector at a time; its tail goes through the same vector code with the missing lanes masked, and
** sums are cut by the row's length alone.
*/
#include "rows.h"
#include "simd.h"

enum {
    COLUMN_VECTORS = 4, /* that softmax takes side by side */
    MOMENTS = 2048      /* elements whose mean and deviations are taken together */
};

#define T float
#define FL_T(name) name##_f32
#define FL_V(name) vf_##name
#define VEC vf
#define WIDTH VF_W
#define LOG logf
#define SQRT sqrtf
#include "rows.inc"

#define T double
#define FL_T(name) name##_f64
#define FL_V(name) vd_##name
#define VEC vd
#define WIDTH VD_W
#define LOG log
#define SQRT sqrt
#include "rows.inc"
