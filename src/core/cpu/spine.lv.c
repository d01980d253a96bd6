/*
** spine.lv.c -- the machine of spines, once per level.
*/
#include "simd.h"
#include "spine.h"

#define T float
#define VECTOR vf
#define WIDTH VF_W
#define V(name) vf_##name
#define FN(name) FL_PASTE(name, f32)
#include "spine.inc"

#define T double
#define VECTOR vd
#define WIDTH VD_W
#define V(name) vd_##name
#define FN(name) FL_PASTE(name, f64)
#include "spine.inc"

const fl_spine_loops FL_LV(fl_spine_loops) = {run_f32, run_f64};
