/*
** vmath_double.h -- elementary functions in double, written without branches as those of vmath.h: some for float64
** itself, the wide ones for float32, whose last bit needs no more than they have.
**
** Largest errors in ulp of double: exp 1.0, tanh 2, atan 1.5. fl_log_wide is relative within 1e-13, fl_exp_wide within
** 3e-10. Coefficients: Taylor's, or Chebyshev fits made for these intervals.
*/
#ifndef FL_VMATH_DOUBLE_H
#define FL_VMATH_DOUBLE_H

#ifndef FL_VMATH
#error "vmath.h includes this file"
#endif

#if defined __FMA__ || defined __ARM_FEATURE_FMA
#define FL_HAS_FMA 1
#else
#define FL_HAS_FMA 0
#endif

FL_VMATH double fl_fma_f64(double a, double b, double c)
{
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

FL_VMATH int64_t fl_double_bits(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FL_VMATH double fl_double_of_bits(int64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FL_VMATH double fl_abs_f64(double x) { return __builtin_fabs(x); }
FL_VMATH double fl_copysign_f64(double x, double sign) { return __builtin_copysign(x, sign); }

/* Adding this rounds a double below 2^51 to an integer, whose value is then in the low bits. */
#define FL_ROUNDER_F64 6755399441055744.0

/* 2^k, -1022 <= k <= 1023, for a k that was rounded by the constant above and is in the low bits */
FL_VMATH double fl_power2_f64(int64_t k) { return fl_double_of_bits((int64_t)(((uint64_t)k + 1023u) << 52)); }

/* k and r with x = k ln(2) + r; x within +-750 */
FL_VMATH double fl_exp_reduce_f64(int64_t *k, double x)
{
    double shifted = x * 1.4426950408889634 + FL_ROUNDER_F64, whole = shifted - FL_ROUNDER_F64;
    *k = (int64_t)((uint64_t)fl_double_bits(shifted) - (uint64_t)fl_double_bits(FL_ROUNDER_F64));
    return fl_fma_f64(whole, -1.90821492927058770002e-10, fl_fma_f64(whole, -6.93147180369123816490e-01, x));
}

/* e^r - 1 - r over r^2, |r| <= ln(2) / 2; two chains, since each waits for itself */
FL_VMATH double fl_exp_tail_f64(double r)
{
    double s = r * r, p = 2.0876756987868099e-09, q = 1.6059043836821613e-10;
    p = fl_fma_f64(p, s, 2.7557319223985891e-07), q = fl_fma_f64(q, s, 2.5052108385441719e-08);
    p = fl_fma_f64(p, s, 2.4801587301587302e-05), q = fl_fma_f64(q, s, 2.7557319223985893e-06);
    p = fl_fma_f64(p, s, 1.3888888888888889e-03), q = fl_fma_f64(q, s, 1.9841269841269841e-04);
    p = fl_fma_f64(p, s, 4.1666666666666667e-02), q = fl_fma_f64(q, s, 8.3333333333333333e-03);
    p = fl_fma_f64(p, s, 0.5), q = fl_fma_f64(q, s, 1.6666666666666667e-01);
    return fl_fma_f64(q, r, p);
}

/* x 2^k in two steps, so that subnormal results are rounded once. */
FL_VMATH double fl_scale2_f64(double x, int64_t k)
{
    int64_t half = (k + 4096) / 2 - 2048;
    return x * fl_power2_f64(half) * fl_power2_f64(k - half);
}

FL_VMATH double fl_exp_f64(double x)
{
    int64_t k;
    double y = x > 710 ? 710 : x;
    y = y < -746 ? -746 : y;
    double r = fl_exp_reduce_f64(&k, y);
    return fl_scale2_f64(fl_fma_f64(fl_exp_tail_f64(r), r * r, r) + 1, k);
}

/* e^x - 1, 0 <= x <= 40 */
FL_VMATH double fl_expm1_within_f64(double x)
{
    int64_t k;
    double r = fl_exp_reduce_f64(&k, x), scale = fl_power2_f64(k);
    double e = fl_fma_f64(fl_exp_tail_f64(r), r * r, r);
    return fl_fma_f64(scale, e, scale - 1);
}

FL_VMATH double fl_tanh_f64(double x)
{
    double a = fl_abs_f64(x), e = fl_expm1_within_f64(a > 20 ? 40 : a + a);
    return fl_copysign_f64(e / (e + 2), x);
}

/* The angle of the point (d, n), 0 <= n <= d, d > 0: around pi / 4 by the difference from it. wide: as exactly as float
** needs it. */
FL_VMATH double fl_atan_ratio(double n, double d, const int wide)
{
    int high = n > d * 0.41421356237309505;
    double z = (high ? n - d : n) / (high ? n + d : d), s = z * z, p = 0.058819293486385943;
    if (!wide) {
        p = -0.013937251895931049;
        p = fl_fma_f64(p, s, 0.030655317030961034);
        p = fl_fma_f64(p, s, -0.041053210914352017);
        p = fl_fma_f64(p, s, 0.047196243818486616);
        p = fl_fma_f64(p, s, -0.052580792613371248);
        p = fl_fma_f64(p, s, 0.058819293486385943);
    }
    p = fl_fma_f64(p, s, -0.066666423168530251);
    p = fl_fma_f64(p, s, 0.076923067501628024);
    p = fl_fma_f64(p, s, -0.090909090674385451);
    p = fl_fma_f64(p, s, 0.11111111110762384);
    p = fl_fma_f64(p, s, -0.14285714285711589);
    p = fl_fma_f64(p, s, 0.2);
    p = fl_fma_f64(p, s, -0.33333333333333333);
    double angle = fl_fma_f64(p * s, z, z);
    return high ? 0.78539816339744831 + (angle + 3.061616997868383e-17) : angle;
}

FL_VMATH double fl_atan_f64(double x)
{
    double a = fl_abs_f64(x);
    int outside = a > 1;
    double angle = fl_atan_ratio(outside ? 1 : a, outside ? (a > 1e300 ? 1e300 : a) : 1, 0);
    return x != x ? x : fl_copysign_f64(outside ? 1.5707963267948966 - (angle - 6.123233995736766e-17) : angle, x);
}

/* The quadrant comes from the signs; (0, 0) and pairs of infinities are angles as C has them. */
FL_VMATH double fl_atan2_f64(double y, double x)
{
    double a = fl_abs_f64(y), b = fl_abs_f64(x);
    int steep = a > b;
    double n = steep ? b : a, d = steep ? a : b;
    n = d == INFINITY ? (n == INFINITY ? 1 : 0) : n;
    d = (d == INFINITY) | (d == 0) ? 1 : d;
    double down = d > 1e300 ? 0x1p-60 : d < 1e-290 ? 0x1p60 : 1;
    double angle = fl_atan_ratio(n * down, d * down, 0);
    angle = steep ? 1.5707963267948966 - (angle - 6.123233995736766e-17) : angle;
    angle = __builtin_copysign(1, x) < 0 ? 3.1415926535897932 - (angle - 1.2246467991473532e-16) : angle;
    return (x != x) | (y != y) ? x + y : fl_copysign_f64(angle, y);
}

/* ---- for float32 ---- */

/* log(x) of a normal x > 0 */
FL_VMATH double fl_log_wide(double x)
{
    int64_t bits = (int64_t)((uint64_t)fl_double_bits(x) - 0x3fe6a09e667f3bcdu);
    double e = fl_double_of_bits((bits >> 52) + fl_double_bits(FL_ROUNDER_F64)) - FL_ROUNDER_F64;
    double m = fl_double_of_bits((bits & 0xfffffffffffff) + 0x3fe6a09e667f3bcd);
    double s = (m - 1) / (m + 1), u = s * s, p = 0.19363445116109113;
    p = fl_fma_f64(p, u, 0.22191354273548972);
    p = fl_fma_f64(p, u, 0.28571755391520953);
    p = fl_fma_f64(p, u, 0.3999999879230876);
    p = fl_fma_f64(p, u, 0.6666666666737968);
    return fl_fma_f64(e, 0.69314718055994531, fl_fma_f64(p * u, s, s + s));
}

/* e^x, limited to what float can tell from 0 and infinity */
FL_VMATH double fl_exp_wide(double x)
{
    int64_t k;
    double y = x > 100 ? 100 : x;
    y = y < -120 ? -120 : y;
    double r = fl_exp_reduce_f64(&k, y), p = 2.4801587301587302e-05;
    p = fl_fma_f64(p, r, 1.9841269841269841e-04);
    p = fl_fma_f64(p, r, 1.3888888888888889e-03);
    p = fl_fma_f64(p, r, 8.3333333333333333e-03);
    p = fl_fma_f64(p, r, 4.1666666666666667e-02);
    p = fl_fma_f64(p, r, 1.6666666666666667e-01);
    p = fl_fma_f64(p, r, 0.5);
    return fl_fma_f64(p, r * r, r + 1) * fl_power2_f64(k);
}

/* x^y, 0 < x < infinity, y finite */
FL_VMATH float fl_pow_positive_f32(float x, float y) { return (float)fl_exp_wide((double)y * fl_log_wide(x)); }

FL_VMATH float fl_atan_f32(float x)
{
    double a = fl_abs_f32(x);
    int outside = a > 1;
    double angle = fl_atan_ratio(outside ? 1 : a, outside ? (a > 1e300 ? 1e300 : a) : 1, 1);
    return x != x ? x : fl_copysign_f32((float)(outside ? 1.5707963267948966 - angle : angle), x);
}
FL_VMATH float fl_atan2_f32(float y, float x)
{
    float a = fl_abs_f32(y), b = fl_abs_f32(x);
    int steep = a > b;
    float n = steep ? b : a, d = steep ? a : b;
    n = d == INFINITY ? (n == INFINITY ? 1 : 0) : n;
    d = (d == INFINITY) | (d == 0) ? 1 : d;
    double angle = fl_atan_ratio(n, d, 1);
    angle = steep ? 1.5707963267948966 - angle : angle;
    angle = fl_float_bits(x) < 0 ? 3.1415926535897932 - angle : angle;
    return (x != x) | (y != y) ? x + y : fl_copysign_f32((float)angle, y);
}

/* e^x / 2 of |x| */
FL_VMATH double fl_exp_half_wide(float x)
{
    double a = fl_abs_f64(x);
    return 0.5 * fl_exp_wide(a);
}
FL_VMATH float fl_sinh_f32(float x)
{
    double e = fl_exp_half_wide(x), s = (double)x * x, p = 2.806280258227695e-06;
    p = fl_fma_f64(p, s, 0.00019838101968683888);
    p = fl_fma_f64(p, s, 0.00833333967591706);
    p = fl_fma_f64(p, s, 0.16666666646842135);
    double near_zero = fl_fma_f64(p * s, x, x);
    return fl_abs_f32(x) > 1 ? fl_copysign_f32((float)(e - 0.25 / e), x) : (float)near_zero;
}
FL_VMATH float fl_cosh_f32(float x)
{
    double e = fl_exp_half_wide(x);
    return (float)(e + 0.25 / e);
}

/* asin(x), |x| <= 1/2, s = x^2 */
FL_VMATH double fl_asin_near_wide(double x, double s)
{
    double p = 0.033690847211604306;
    p = fl_fma_f64(p, s, 0.01714923835167739);
    p = fl_fma_f64(p, s, 0.031100662736984537);
    p = fl_fma_f64(p, s, 0.0445994015283506);
    p = fl_fma_f64(p, s, 0.07500094543498137);
    p = fl_fma_f64(p, s, 0.166666663374309);
    return fl_fma_f64(p * s, x, x);
}

/* Beyond 1/2 by those of half the angle. */
FL_VMATH float fl_asin_f32(float x)
{
    double a = fl_abs_f64(x), half = 0.5 - 0.5 * a;
    double angle = fl_asin_near_wide(a > 0.5 ? __builtin_sqrt(half) : a, a > 0.5 ? half : a * a);
    angle = a > 0.5 ? 1.5707963267948966 - 2 * angle : angle;
    return a <= 1 ? fl_copysign_f32((float)angle, x) : NAN;
}
FL_VMATH float fl_acos_f32(float x)
{
    double a = fl_abs_f64(x), half = 0.5 - 0.5 * a;
    double angle = fl_asin_near_wide(a > 0.5 ? __builtin_sqrt(half) : x, a > 0.5 ? half : a * a);
    double far = x < 0 ? 3.1415926535897932 - 2 * angle : 2 * angle;
    return a <= 1 ? (float)(a > 0.5 ? far : 1.5707963267948966 - angle) : NAN;
}

/* exp(-x^2) t R(t), t = 1 / (1 + x / 2), for larger arguments; 1 - erf(x) near 0 and 2 - erfc(-x) below it */
FL_VMATH float fl_erfc_f32(float x)
{
    double a = fl_abs_f32(x), b = a > 10.2 ? 10.2 : a, t = 1 / (1 + 0.5 * b), p = -0.0478693121364;
    p = fl_fma_f64(p, t, 0.251256765865);
    p = fl_fma_f64(p, t, -0.447717130587);
    p = fl_fma_f64(p, t, 0.255014916312);
    p = fl_fma_f64(p, t, -0.0204534674927);
    p = fl_fma_f64(p, t, 0.202587735445);
    p = fl_fma_f64(p, t, 0.242764116469);
    p = fl_fma_f64(p, t, 0.282447878521);
    p = fl_fma_f64(p, t, 0.282081669716);
    double far = a > 10.2 ? 0 : fl_exp_wide(-b * b) * t * p;
    far = x < 0 ? 2 - far : far;
    return a != a ? x : a > 0.925 ? (float)far : 1.0f - fl_erf_near_f32(x);
}

/* Stirling's series from 8 on, divided by the factors that lead there; x < 0 by reflection. */
FL_VMATH float fl_lgamma_f32(float x)
{
    int negative = x < 0;
    double y = negative ? 1.0 - x : x, part = x - __builtin_rint((double)x);
    double p = y * (y + 1) * (y + 2) * (y + 3) * (y + 4) * (y + 5) * (y + 6) * (y + 7);
    int small = y < 8;
    p = small ? p : 1;
    double v = small ? y + 8 : y, w = 1 / v, u = w * w;
    double tail = w
        * (0.083333333333333333
           - u * (0.0027777777777777778 - u * (0.00079365079365079365 - u * 0.00059523809523809524)));
    double sine = part * part * 9.869604401089358, s = -2.5052108385441719e-08;
    s = fl_fma_f64(s, sine, 2.7557319223985893e-06);
    s = fl_fma_f64(s, sine, -1.9841269841269841e-04);
    s = fl_fma_f64(s, sine, 8.3333333333333333e-03);
    s = fl_fma_f64(s, sine, -1.6666666666666667e-01);
    s = fl_abs_f64(part * fl_fma_f64(s, sine, 1.0)); /* |sin(pi x)| / pi */
    double stirling = (v - 0.5) * fl_log_wide(v) - v + 0.91893853320467274 + tail;
    double log = fl_log_wide(negative ? (s == 0 ? 1 : s) / p : p == 0 ? 1 : p);
    float result = (float)(negative ? -stirling - log : stirling - log);
    int pole = (x == 0) | (negative & (part == 0)) | (fl_abs_f32(x) == INFINITY);
    return x != x ? x : pole ? INFINITY : result;
}

/* ---- modified Bessel functions ---- */

/* I0(x), |x| <= 8, of t = x^2 / 4; sqrt(x) exp(-x) I0(x), x >= 8, of u = 1 / x */
FL_VMATH double fl_i0_near_wide(double t)
{
    double p = 1.123523432785977e-15;
    p = fl_fma_f64(p, t, 5.6169926933846903e-14);
    p = fl_fma_f64(p, t, 8.0194859646835778e-12);
    p = fl_fma_f64(p, t, 6.0952773312128434e-10);
    p = fl_fma_f64(p, t, 3.9414577786654937e-08);
    p = fl_fma_f64(p, t, 1.9287576994549372e-06);
    p = fl_fma_f64(p, t, 6.9445319432025153e-05);
    p = fl_fma_f64(p, t, 0.0017361092880067957);
    p = fl_fma_f64(p, t, 0.027777779901511982);
    p = fl_fma_f64(p, t, 0.24999999880417292);
    p = fl_fma_f64(p, t, 1.0000000002425773);
    p = fl_fma_f64(p, t, 0.99999999999267486);
    return p;
}
FL_VMATH double fl_i0_far_wide(double u)
{
    double p = 8.4863197998801994;
    p = fl_fma_f64(p, u, -1.8894301393702821);
    p = fl_fma_f64(p, u, 0.33466495307951055);
    p = fl_fma_f64(p, u, 0.030349798186864764);
    p = fl_fma_f64(p, u, 0.029661913788091347);
    p = fl_fma_f64(p, u, 0.028044108034506552);
    p = fl_fma_f64(p, u, 0.049867821074477861);
    p = fl_fma_f64(p, u, 0.39894228036914925);
    return p;
}

/* 2 I1(x) / x and sqrt(x) exp(-x) I1(x), alike */
FL_VMATH double fl_i1_near_wide(double t)
{
    double p = 9.1012007372252587e-17;
    p = fl_fma_f64(p, t, 5.3149569050926025e-15);
    p = fl_fma_f64(p, t, 7.9483321603780765e-13);
    p = fl_fma_f64(p, t, 6.7860954351061352e-11);
    p = fl_fma_f64(p, t, 4.9252359542181928e-09);
    p = fl_fma_f64(p, t, 2.7554857298390289e-07);
    p = fl_fma_f64(p, t, 1.15741646892722e-05);
    p = fl_fma_f64(p, t, 0.00034722201720975462);
    p = fl_fma_f64(p, t, 0.0069444447083317129);
    p = fl_fma_f64(p, t, 0.083333333165369283);
    p = fl_fma_f64(p, t, 0.50000000003969169);
    p = fl_fma_f64(p, t, 0.99999999999854638);
    return p;
}
FL_VMATH double fl_i1_far_wide(double u)
{
    double p = -9.6109422742771109;
    p = fl_fma_f64(p, u, 2.1456848191659175);
    p = fl_fma_f64(p, u, -0.39202170148967919);
    p = fl_fma_f64(p, u, -0.040740662481324817);
    p = fl_fma_f64(p, u, -0.04143022850673251);
    p = fl_fma_f64(p, u, -0.046743221132810805);
    p = fl_fma_f64(p, u, -0.14960339916212945);
    p = fl_fma_f64(p, u, 0.39894228044169516);
    return p;
}

/* The modified Bessel function of an order, by the two fits for it; scaled: times exp(-|x|). */
#define FL_VMATH_BESSEL_I(name, order, factor, scaled)                                                 \
    FL_VMATH float fl_##name##_f32(float x)                                                            \
    {                                                                                                  \
        double y = fl_abs_f64(x), a = y < 8 ? y : 8, b = y > 8 ? y : 8, u = 1 / b;                     \
        double near = fl_i##order##_near_wide(0.25 * a * a) * (scaled ? fl_exp_wide(-a) : 1) * factor; \
        double far = fl_i##order##_far_wide(u) * __builtin_sqrt(u) * (scaled ? 1 : fl_exp_wide(b));    \
        float large = (float)(!scaled & (y > 95) ? (double)INFINITY : far);                            \
        return x != x ? x : y > 8 ? (order ? fl_copysign_f32(large, x) : large) : (float)near;         \
    }
FL_VMATH_BESSEL_I(i0, 0, 1, 0)
FL_VMATH_BESSEL_I(i0e, 0, 1, 1)
FL_VMATH_BESSEL_I(i1, 1, (0.5 * (double)x), 0)
FL_VMATH_BESSEL_I(i1e, 1, (0.5 * (double)x), 1)
#undef FL_VMATH_BESSEL_I

/* ---- remainders with the sign of x: |x| <= 2^28 |y| (float), 2^52 |y| (double), so that quotients are whole numbers
** ---- */

/* The quotient may be one too large or too small; the remainder is exact all the same. */
FL_VMATH double fl_rest_of(double a, double b)
{
    double rest = fl_fma_f64(-__builtin_trunc(a / b), b, a);
    rest = rest < 0 ? rest + b : rest;
    return rest >= b ? rest - b : rest;
}

FL_VMATH int fl_is_near_f32(float x, float y)
{
    float b = fl_abs_f32(y);
    return (fl_abs_f32(x) <= b * 268435456.0f) & (b > 0) & (b < 1e30f);
}
FL_VMATH float fl_fmod_near_f32(float x, float y)
{
    return fl_copysign_f32((float)fl_rest_of(fl_abs_f32(x), fl_abs_f32(y)), x);
}

/* Without a fused multiplication the product would be rounded. */
FL_VMATH int fl_is_near_f64(double x, double y)
{
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    double b = fl_abs_f64(y);
    return (fl_abs_f64(x) <= b * 4503599627370496.0) & (b > 1e-250) & (b < 1e250);
#else
    return 0;
#endif
}
FL_VMATH double fl_fmod_near_f64(double x, double y)
{
    return fl_copysign_f64(fl_rest_of(fl_abs_f64(x), fl_abs_f64(y)), x);
}

#endif
