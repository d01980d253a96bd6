/*
** scan.lv.c -- the loops of running sums, once per level.
*/
#include "scan.h"
#include "shuffle.h"

enum { EIGHT = 8 };

#define T int64_t
#define TOTAL int64_t
#define WRAPPING uint64_t
#define FN(name) FL_PASTE(name, i64)
#define ADD(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#include "scan.inc"

#define T float
#define TOTAL double
#define WRAPPING double
#define FN(name) FL_PASTE(name, f32)
#define ADD(a, b) ((a) + (b))
#include "scan.inc"

#define T double
#define TOTAL double
#define WRAPPING double
#define FN(name) FL_PASTE(name, f64)
#define ADD(a, b) ((a) + (b))
#include "scan.inc"

const fl_scan_table FL_LV(fl_scan_table) = {{
    [FL_THROUGH_INT64] = {line_i64, rows_i64},
    [FL_THROUGH_FLOAT] = {line_f32, rows_f32},
    [FL_THROUGH_DOUBLE] = {line_f64, rows_f64},
}};
