/*
** spine.lv.c -- the machine of spines, once per level.
*/
#include "simd.h"
#include "spine.h"

#include <stdbool.h>

#ifdef FL_LEVEL_avx512

#define HAS_NEWTON

/* Newton's way to a root, for when the divider has other work; the bits of vf_sqrt where vf_suits_newton. That all x
** of [1, 4), with all approximations of the inverse within 2^-14, come out right was tried; others differ by a power of
** 4. */
FL_INLINE vf vf_newton_sqrt(vf x)
{
    vf half = vf_set(0.5f), inverse = _mm512_rsqrt14_ps(x), root = x * inverse, slope = inverse * half;
    vf off = _mm512_fnmadd_ps(root, slope, half);
    root = vf_fma(root, off, root);
    slope = vf_fma(slope, off, slope);
    return vf_fma(_mm512_fnmadd_ps(root, root, x), slope, root);
}

/* True if all from least to most, as unsigned bits, is within [2^-100, inf): the remainder of x is exact then. */
FL_INLINE bool vf_suits_newton(vf least, vf most)
{
    __mmask16 below = _mm512_cmplt_epu32_mask(_mm512_castps_si512(least), _mm512_castps_si512(vf_set(0x1p-100f)));
    __mmask16 above = _mm512_cmpge_epu32_mask(_mm512_castps_si512(most), _mm512_castps_si512(vf_set(INFINITY)));
    return !(below | above);
}

FL_INLINE vf vf_least_bits(vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_min_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

FL_INLINE vf vf_most_bits(vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

#endif

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
