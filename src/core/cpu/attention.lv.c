/*
** attention.lv.c -- attention over one block of queries, or backward over one head, at one CPU level.
**
** A block of scores (queries x keys) lives in L1: the serial product of the level makes it from the packed keys,
** a running maximum and sum turn it into weights, a second product adds weights times values to the result.
*/
#include "attention.h"
#include "gemm.h"
#include "random.h"
#include "simd.h"

enum { QUERIES = FL_ATTENTION_QUERIES, KEYS = FL_ATTENTION_KEYS };

/* Keys of a query block that any of its rows may see, from the start of the part. */
static int64_t visible_keys(const fl_attention *attention, int64_t first_row, int64_t rows)
{
    int64_t seen = attention->first_query + first_row + rows;
    return attention->causal && seen < attention->keys ? seen : attention->keys;
}

#define T float
#define FL_T(name) name##_f32
#define FL_V(name) vf_##name
#define VEC vf
#define WIDTH VF_W
#define EXP expf
#define LOG logf
#include "attention.inc"

#define T double
#define FL_T(name) name##_f64
#define FL_V(name) vd_##name
#define VEC vd
#define WIDTH VD_W
#define EXP exp
#define LOG log
#include "attention.inc"
