/*
** gemm.lv.c -- the serial matrix product of one CPU level.
**
** C is computed in tiles of up to TILE_ROWS x TILE_VECTORS vectors that live in registers: for every p, one
** column piece of A (broadcast loads, so any strides of A do) times one row piece of B. B is read where
** it lies when its rows are contiguous; otherwise it is packed first. Every element is summed over p in
** the same order with the same arithmetic whatever tile it falls in.
*/
#include "gemm.h"
#include "simd.h"

#if defined FL_LEVEL_avx512
enum { TILE_ROWS = 12 };
#else
enum { TILE_ROWS = 6 };
#endif
enum { TILE_VECTORS = 2, PACK_BLOCK = 16 };
enum { FETCHED_FROM = 512 << 10 }; /* bytes of a B that does not stay in the L2 */
enum { DEPTH = 512 };              /* rows of B taken at once: a panel of TILE_VECTORS vectors is 64 KiB */

/* Calls f(r) for the row count r, a constant in each call. */
#define FL_ROW_CASES_6(f) \
    case 1: f(1); break;  \
    case 2: f(2); break;  \
    case 3: f(3); break;  \
    case 4: f(4); break;  \
    case 5: f(5); break;  \
    case 6:               \
        f(6);             \
        break;
#if defined FL_LEVEL_avx512
#define FL_ROW_CASES(f)              \
    FL_ROW_CASES_6(f) case 7 : f(7); \
    break;                           \
    case 8: f(8); break;             \
    case 9: f(9); break;             \
    case 10: f(10); break;           \
    case 11: f(11); break;           \
    case 12:                         \
        f(12);                       \
        break;
#else
#define FL_ROW_CASES(f) FL_ROW_CASES_6(f)
#endif

#define T float
#define FL_T(name) name##_f32
#define FL_V(name) vf_##name
#define VEC vf
#define WIDTH VF_W
#include "gemm.inc"

#define T double
#define FL_T(name) name##_f64
#define FL_V(name) vd_##name
#define VEC vd
#define WIDTH VD_W
#include "gemm.inc"

#define T uint64_t
#define FL_T(name) name##_i64
#define FL_V(name) vi_##name
#define VEC vi
#define WIDTH VD_W
#include "gemm.inc"
