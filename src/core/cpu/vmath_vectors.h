/*
** vmath_vectors.h -- functions of vmath.h for a vector of floats, with instructions of AVX-512 that the compiler has no
** expression for: 2^k times a float, and the smaller one of two where NaN stays.
**
** Each does step by step what fl_<name>_f32 does, so an element has the same bits (tried for all floats) in rows that
** have a loop over these and in those whose loop the compiler makes.
*/
#ifndef FL_VMATH_VECTORS_H
#define FL_VMATH_VECTORS_H

#include "simd.h"
#include "vmath.h"

FL_INLINE vf fl_exp_tail_vf(vf r)
{
    vf p = vf_set(1.990770397e-4f);
    p = vf_fma(p, r, vf_set(1.394869993e-3f));
    p = vf_fma(p, r, vf_set(8.333286270e-3f));
    p = vf_fma(p, r, vf_set(4.166623950e-2f));
    p = vf_fma(p, r, vf_set(1.666666716e-1f));
    return vf_fma(p, r, vf_set(0.5f)) * r;
}

/* k, and *r with x = k ln(2) + r */
FL_INLINE vf fl_exp_reduce_vf(vf *r, vf x)
{
    vf rounder = vf_set(FL_ROUNDER), k = vf_fma(x, vf_set(1.44269504f), rounder) - rounder;
    *r = vf_fma(k, vf_set(2.12194440e-4f), vf_fma(k, vf_set(-0.693359375f), x));
    return k;
}

FL_INLINE vf fl_exp_vf(vf x)
{
    vf r, k = fl_exp_reduce_vf(&r, vf_max(vf_set(-104.0f), vf_min(vf_set(89.0f), x)));
    return vf_scale2(vf_fma(fl_exp_tail_vf(r), r, r) + vf_set(1.0f), k);
}

FL_INLINE vf fl_tanh_vf(vf x)
{
    vf a = vf_abs(x), half = vf_set(0.5f), r, k = fl_exp_reduce_vf(&r, vf_min(vf_set(20.0f), a + a));
    vf scale = vf_scale2(half, k), e = vf_fma(scale, vf_fma(fl_exp_tail_vf(r), r, r), scale - half);
    e = e + e;
    __m512i size = _mm512_castps_si512(e / (e + vf_set(2.0f))), sign = _mm512_castps_si512(x);
    const int size_where_set = 0xca; /* of the bits of the first operand, else the third */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MAX), size, sign, size_where_set));
}

FL_INLINE vf fl_sigmoid_vf(vf x) { return vf_set(1.0f) / (vf_set(1.0f) + fl_exp_vf(-x)); }
FL_INLINE vf fl_silu_vf(vf x) { return x / (vf_set(1.0f) + fl_exp_vf(-x)); }

#endif
