/*
** vmath_float64.h -- logarithms, powers, circular, hyperbolic, error and gamma functions of float64, without branches
** as those of vmath.h.
**
** Largest errors in ulp: log log2 exp2 expm1 1.2, log10 log1p sin cos pow 1.5, sinh cosh 2, tan asin acos erf 2.5,
** asinh acosh atanh 3, erfc 4, erfinv 4, lgamma 2.5 (near its negative zeros 3e-15).
** Coefficients: Chebyshev fits made for these intervals.
*/
#ifndef FL_VMATH_FLOAT64_H
#define FL_VMATH_FLOAT64_H

#ifndef FL_VMATH
#error "vmath.h includes this file"
#endif

/* ---- exponentials ---- */

FL_VMATH double fl_exp2_f64(double x)
{
    double y = x > 1025 ? 1025 : x;
    y = y < -1080 ? -1080 : y;
    double shifted = y + FL_ROUNDER_F64, r = (y - (shifted - FL_ROUNDER_F64)) * 0.69314718055994531;
    int64_t k = (int64_t)((uint64_t)fl_double_bits(shifted) - (uint64_t)fl_double_bits(FL_ROUNDER_F64));
    return fl_scale2_f64(fl_fma_f64(fl_exp_tail_f64(r), r * r, r) + 1, k);
}

/* As fl_expm1_within, halved on the way for k = 1024. */
FL_VMATH double fl_expm1_f64(double x)
{
    int64_t k;
    double y = x > 710 ? 710 : x;
    y = y < -40 ? -40 : y;
    double r = fl_exp_reduce_f64(&k, y), half = fl_power2_f64(k - 1);
    double e = fl_fma_f64(fl_exp_tail_f64(r), r * r, r);
    return fl_abs_f64(x) < 1e-30 ? x : fl_fma_f64(half, e, half - 0.5) * 2;
}

/* e^x / 2, also where e^x is infinite */
FL_VMATH double fl_exp_half_f64(double x)
{
    int64_t k;
    double y = x > 712 ? 712 : x, r = fl_exp_reduce_f64(&k, y);
    return fl_scale2_f64(fl_fma_f64(fl_exp_tail_f64(r), r * r, r) + 1, k - 1);
}

FL_VMATH double fl_sinh_f64(double x)
{
    double a = fl_abs_f64(x), e = fl_exp_half_f64(a), s = x * x, p = 7.746178593018828e-13;
    p = fl_fma_f64(p, s, 1.6057679623801638e-10);
    p = fl_fma_f64(p, s, 2.5052117695907823e-08);
    p = fl_fma_f64(p, s, 2.7557319191381816e-06);
    p = fl_fma_f64(p, s, 0.00019841269841324198);
    p = fl_fma_f64(p, s, 0.008333333333333299);
    p = fl_fma_f64(p, s, 0.16666666666666666);
    double near_zero = fl_fma_f64(p * s, x, x), far = fl_copysign_f64(e - 0.25 / e, x);
    return a > 1 ? far : near_zero;
}

FL_VMATH double fl_cosh_f64(double x)
{
    double e = fl_exp_half_f64(fl_abs_f64(x));
    return e + 0.25 / e;
}

/* ---- logarithms ---- */

/* m - 1 and the exponent e of a positive x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
FL_VMATH double fl_log_reduce_f64(double *e, double x)
{
    double up = x < 0x1p-1022 ? 0x1p54 : 1, down = x < 0x1p-1022 ? 54 : 0;
    uint64_t bits = (uint64_t)fl_double_bits(x * up) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
    *e = fl_double_of_bits((int64_t)((bits >> 52) | 0x4330000000000000u)) - (0x1p52 + 1023) - down;
    return fl_double_of_bits((int64_t)((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu)) - 1;
}

/* Of log(1 + f) = 2 atanh(s), s = f / (2 + f), u = s^2: the part above 2 s, over s. */
FL_VMATH double fl_atanh_tail_f64(double u)
{
    double p = 0.13087236196706833;
    p = fl_fma_f64(p, u, 0.13268714792342884);
    p = fl_fma_f64(p, u, 0.15386241881938825);
    p = fl_fma_f64(p, u, 0.18181795600060788);
    p = fl_fma_f64(p, u, 0.22222222392089008);
    p = fl_fma_f64(p, u, 0.28571428570801954);
    p = fl_fma_f64(p, u, 0.4000000000000088);
    return fl_fma_f64(p, u, 0.6666666666666666) * u;
}

/* log(1 + f) - f, 2 s = f - s f */
FL_VMATH double fl_log_tail_f64(double f)
{
    double s = f / (2 + f), half = 0.5 * f * f;
    return s * (half + fl_atanh_tail_f64(s * s)) - half;
}

FL_VMATH double fl_log_f64(double x)
{
    double e, f = fl_log_reduce_f64(&e, x);
    double low = fl_fma_f64(e, 7.371002565167799e-13, fl_log_tail_f64(f));
    return fl_log_edges_f64(fl_fma_f64(e, 0.6931471805592082, f + low), x);
}

/* The head of f is so short that products with the heads of the constants are exact. */
FL_VMATH double fl_log_head_f64(double f)
{
    return fl_double_of_bits(fl_double_bits(f) & (int64_t)0xffffffff00000000u);
}

FL_VMATH double fl_log2_f64(double x)
{
    double e, f = fl_log_reduce_f64(&e, x), high = fl_log_head_f64(f), low = f - high + fl_log_tail_f64(f);
    double small = fl_fma_f64(low, 1.4426950408889634, high * 1.33056181496986e-06);
    return fl_log_edges_f64(fl_fma_f64(high, 1.4426937103271484, small) + e, x);
}

FL_VMATH double fl_log10_f64(double x)
{
    double e, f = fl_log_reduce_f64(&e, x), high = fl_log_head_f64(f), low = f - high + fl_log_tail_f64(f);
    double small = fl_fma_f64(low, 0.43429448190325183, high * 2.5811785143702614e-07);
    small = fl_fma_f64(e, 3.694239077158931e-13, small);
    return fl_log_edges_f64(fl_fma_f64(e, 0.30102999566361177, fl_fma_f64(high, 0.4342942237854004, small)), x);
}

/* The rounding error of 1 + x is brought back in at the scale of the mantissa. */
FL_VMATH double fl_log1p_f64(double x)
{
    double u = 1 + x, lost = x > 1 ? 1 - (u - x) : x - (u - 1);
    double e, f = fl_log_reduce_f64(&e, u), k = e < 1022 ? e : 1022;
    double down = fl_power2_f64(fl_double_bits(FL_ROUNDER_F64 - k) - fl_double_bits(FL_ROUNDER_F64));
    f = e == 0 ? x : f + lost * down;
    double low = fl_fma_f64(e, 7.371002565167799e-13, fl_log_tail_f64(f));
    double result = fl_log_edges_f64(fl_fma_f64(e, 0.6931471805592082, f + low), u);
    return fl_abs_f64(x) < 1e-30 ? x : result;
}

/* ---- powers ---- */

/* x^y, 0 < x < infinity, y finite: the logarithm in two doubles, so that whole powers are exact where they fit. */
FL_VMATH double fl_pow_positive_f64(double x, double y)
{
    double e, f = fl_log_reduce_f64(&e, x), d = 2 + f, d_low = f - (d - 2);
    double s = f / d, s_low = (fl_fma_f64(-s, d, f) - s * d_low) / d;
    double u = s * s, u_low = fl_fma_f64(s, s, -u) + 2 * s * s_low;
    double t = u * 0.66666666666666663, t_low = fl_fma_f64(u, 0.66666666666666663, -t);
    t_low += fl_fma_f64(u_low, 0.66666666666666663, u * 3.7007434154171886e-17);
    double p = 0.13087236196706833;
    p = fl_fma_f64(p, u, 0.13268714792342884);
    p = fl_fma_f64(p, u, 0.15386241881938825);
    p = fl_fma_f64(p, u, 0.18181795600060788);
    p = fl_fma_f64(p, u, 0.22222222392089008);
    p = fl_fma_f64(p, u, 0.28571428570801954);
    p = fl_fma_f64(p, u, 0.4000000000000088);
    double tail = p * u * u, above = t + tail, factor = 2 + above;
    double factor_low = above - (factor - 2) + (tail - (above - t) + t_low);
    double log = s * factor, log_low = fl_fma_f64(s, factor, -log) + fl_fma_f64(s, factor_low, s_low * factor);
    double whole = e * 0.6931471805592082, high = whole + log;
    double low = log - (high - whole) + fl_fma_f64(e, 7.371002565167799e-13, log_low);
    double z = y * high, z_low = fl_fma_f64(y, high, -z) + y * low;
    z_low = fl_abs_f64(z) < 800 ? z_low : 0;
    z = z > 710 ? 710 : z;
    z = z < -746 ? -746 : z;
    double shifted = z * 1.4426950408889634 + FL_ROUNDER_F64, turns = shifted - FL_ROUNDER_F64;
    int64_t k = (int64_t)((uint64_t)fl_double_bits(shifted) - (uint64_t)fl_double_bits(FL_ROUNDER_F64));
    double near_r = fl_fma_f64(turns, -6.93147180369123816490e-01, z);
    double r = fl_fma_f64(turns, -1.90821492927058770002e-10, near_r);
    z_low += fl_fma_f64(turns, -1.90821492927058770002e-10, near_r - r);
    double all = r + z_low, rest = z_low - (all - r);
    return fl_scale2_f64(fl_fma_f64(fl_exp_tail_f64(all), all * all, rest) + all + 1, k);
}

/* ---- circular functions: |x| <= FL_TRIG_LIMIT ---- */

/* r and k with x = k pi / 2 + r, |r| <= pi / 4 */
FL_VMATH double fl_trig_reduce_f64(int64_t *k, double x)
{
    double shifted = x * 0.63661977236758134 + FL_ROUNDER_F64, whole = shifted - FL_ROUNDER_F64;
    *k = fl_double_bits(shifted);
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    double r = fl_fma_f64(whole, -1.5707963267948966, x);
    r = fl_fma_f64(whole, -6.123233995736766e-17, r);
    return fl_fma_f64(whole, 1.4973849048591698e-33, r);
#else
    double r = x - whole * 1.5707963267341256
        - whole * 6.077100506303966e-11; /* 33 bits each: the products are exact */
    return r - whole * 2.0222662487959506e-21;
#endif
}

FL_VMATH double fl_sin_poly_f64(double r)
{
    double s = r * r, p = -7.586692262094344e-13;
    p = fl_fma_f64(p, s, 1.6058531536611833e-10);
    p = fl_fma_f64(p, s, -2.5052106231927857e-08);
    p = fl_fma_f64(p, s, 2.7557319219337672e-06);
    p = fl_fma_f64(p, s, -0.00019841269841265063);
    p = fl_fma_f64(p, s, 0.008333333333333331);
    p = fl_fma_f64(p, s, -0.16666666666666666);
    return fl_fma_f64(p * s, r, r);
}

FL_VMATH double fl_cos_poly_f64(double r)
{
    double s = r * r, p = -1.1382625349433348e-11;
    p = fl_fma_f64(p, s, 2.087614617018373e-09);
    p = fl_fma_f64(p, s, -2.755731727125851e-07);
    p = fl_fma_f64(p, s, 2.4801587298764778e-05);
    p = fl_fma_f64(p, s, -0.0013888888888887398);
    p = fl_fma_f64(p, s, 0.041666666666666664);
    return fl_fma_f64(p * s, s, fl_fma_f64(s, -0.5, 1));
}

/* sin(r + quadrant pi / 2) */
FL_VMATH double fl_quadrant_f64(double r, int64_t quadrant)
{
    double y = quadrant & 1 ? fl_cos_poly_f64(r) : fl_sin_poly_f64(r);
    return fl_double_of_bits(fl_double_bits(y) ^ (int64_t)(((uint64_t)quadrant & 2u) << 62));
}

/* The angle whose sine is s and whose cosine is c, both >= 0; s^2 + c^2 = 1 */
FL_VMATH double fl_angle_f64(double s, double c)
{
    double angle = fl_atan_ratio(s < c ? s : c, s < c ? c : s, 0);
    return s < c ? angle : 1.5707963267948966 - (angle - 6.123233995736766e-17);
}

FL_VMATH double fl_asin_f64(double x)
{
    double a = fl_abs_f64(x), angle = fl_angle_f64(a, __builtin_sqrt((1 - a) * (1 + a)));
    return a <= 1 ? fl_copysign_f64(angle, x) : NAN;
}

FL_VMATH double fl_acos_f64(double x)
{
    double a = fl_abs_f64(x), angle = fl_angle_f64(__builtin_sqrt((1 - a) * (1 + a)), a);
    double turn = x < 0 ? 3.1415926535897932 : 0, turn_low = x < 0 ? 1.2246467991473532e-16 : 0;
    return a <= 1 ? turn + (x < 0 ? -1 : 1) * (angle - turn_low) : NAN;
}

/* ---- error functions ---- */

/* erf(x), |x| <= 1 */
FL_VMATH double fl_erf_near_f64(double x)
{
    double s = x * x, p = 5.957176147748883e-11;
    p = fl_fma_f64(p, s, -1.1372848856791657e-09);
    p = fl_fma_f64(p, s, 1.4659775274047431e-08);
    p = fl_fma_f64(p, s, -1.6350312701054695e-07);
    p = fl_fma_f64(p, s, 1.6461000484121368e-06);
    p = fl_fma_f64(p, s, -1.4925595266831182e-05);
    p = fl_fma_f64(p, s, 0.0001205533111164271);
    p = fl_fma_f64(p, s, -0.000854832698083379);
    p = fl_fma_f64(p, s, 0.0052239776248180145);
    p = fl_fma_f64(p, s, -0.026866170645076792);
    p = fl_fma_f64(p, s, 0.11283791670954879);
    p = fl_fma_f64(p, s, -0.3761263890318375);
    p = fl_fma_f64(p, s, 0.1283791670955126);
    return fl_fma_f64(p, x, x);
}

/* erfc(x) e^(x^2) (1 + 2 x), 1/2 <= x <= 28, t = (x - 3.75) / (x + 3.75); two chains, since each waits for itself */
FL_VMATH double fl_erfc_ratio_f64(double t)
{
    double s = t * t, p = 2.4650884795239513e-08, q = -2.819125663086401e-09;
    p = fl_fma_f64(p, s, -2.405381553661818e-07), q = fl_fma_f64(q, s, 2.2156361551057863e-08);
    p = fl_fma_f64(p, s, 1.7380461262457937e-06), q = fl_fma_f64(q, s, -5.658053403353585e-08);
    p = fl_fma_f64(p, s, -1.1437767278950732e-05), q = fl_fma_f64(q, s, -9.7368428239226e-07);
    p = fl_fma_f64(p, s, 5.164717365417525e-05), q = fl_fma_f64(q, s, 2.2384180644872092e-05);
    p = fl_fma_f64(p, s, 0.0002937140375272005), q = fl_fma_f64(q, s, -0.0002901540353336165);
    p = fl_fma_f64(p, s, -0.009746579602513314), q = fl_fma_f64(q, s, 0.0017556258398018613);
    p = fl_fma_f64(p, s, -0.05869339858656682), q = fl_fma_f64(q, s, 0.028362277420937457);
    p = fl_fma_f64(p, s, -0.1088039301418558), q = fl_fma_f64(q, s, 0.09230432116022246);
    p = fl_fma_f64(p, s, 0.0035854154854658496), q = fl_fma_f64(q, s, 0.08227673849015059);
    p = fl_fma_f64(p, s, 1.2375126308378275), q = fl_fma_f64(q, s, -0.14024059858554702);
    return fl_fma_f64(q, t, p);
}

/* erfc(x) (1 + 2 x) and e^(-x^2), both over 2^k, 1/2 <= x <= 28; the rounding error of x^2 is added */
FL_VMATH double fl_erfc_parts_f64(double *power, int64_t *k, double x)
{
    double s = x * x, high = fl_double_of_bits(fl_double_bits(x) & (int64_t)0xfffffffff8000000u);
    double lost = high * high - s + (x - high) * (x + high);
    double r = fl_exp_reduce_f64(k, -s) - lost;
    *power = fl_fma_f64(fl_exp_tail_f64(r), r * r, r) + 1;
    return *power * fl_erfc_ratio_f64((x - 3.75) / (x + 3.75));
}

FL_VMATH double fl_erfc_far_f64(double x)
{
    int64_t k;
    double power, part = fl_erfc_parts_f64(&power, &k, x);
    return fl_scale2_f64(part / (1 + 2 * x), k);
}

FL_VMATH double fl_erf_f64(double x)
{
    double a = fl_abs_f64(x), b = a > 6 ? 6 : a, far = fl_copysign_f64(1 - fl_erfc_far_f64(b), x);
    return a > 0.9 ? far : fl_erf_near_f64(x);
}

FL_VMATH double fl_erfc_f64(double x)
{
    double a = fl_abs_f64(x), b = a > 28 ? 28 : a, far = fl_erfc_far_f64(b);
    far = x < 0 ? 2 - far : far;
    return a != a ? x : a > 0.5 ? far : 1 - fl_erf_near_f64(x);
}

/* A step of Halley's from polynomials in w = -log(1 - x^2); beyond 1/2 it solves erfc(y) = 1 - |x|, which is exact. */
FL_VMATH double fl_erfinv_f64(double x)
{
    double a = fl_abs_f64(x), room = (1 - a) * (1 + a), w = -fl_log_wide(room > 0 ? room : 1);
    double v = w - 2.6, u = __builtin_sqrt(w > 0 ? w : 0) - 4, p = -8.307418024725221e-09, q = -3.820889433319289e-06;
    p = fl_fma_f64(p, v, 1.6507773506300867e-08), q = fl_fma_f64(q, u, 2.314806246667231e-05);
    p = fl_fma_f64(p, v, 4.760188434700194e-07), q = fl_fma_f64(q, u, -5.130956255786687e-05);
    p = fl_fma_f64(p, v, -3.1438334382271482e-06), q = fl_fma_f64(q, u, 5.930009704037541e-05);
    p = fl_fma_f64(p, v, -6.921397408018928e-06), q = fl_fma_f64(q, u, -9.63319001784075e-05);
    p = fl_fma_f64(p, v, 0.00021540520134691682), q = fl_fma_f64(q, u, 0.0003118586999363706);
    p = fl_fma_f64(p, v, -0.001165993999598285), q = fl_fma_f64(q, u, -0.0008766368178690848);
    p = fl_fma_f64(p, v, -0.004540212381199605), q = fl_fma_f64(q, u, 0.0012628427786360167);
    p = fl_fma_f64(p, v, 0.24576810496120344), q = fl_fma_f64(q, u, 1.0094935461704728);
    p = fl_fma_f64(p, v, 1.5260303911245712), q = fl_fma_f64(q, u, 3.839783766965073);
    int64_t k;
    double y = (w < 5.2 ? p : q) * a, over = 1 + 2 * y, power, part = fl_erfc_parts_f64(&power, &k, y),
           scale = fl_power2_f64(k);
    double wrong = a > 0.5 ? (1 - a) * over - part * scale : (fl_erf_near_f64(y) - a) * over;
    y -= wrong / (1.1283791670955126 * power * scale * over + y * wrong);
    y = a == 1 ? INFINITY : y;
    return a <= 1 ? fl_copysign_f64(y, x) : NAN;
}

/* ---- the gamma function ---- */

/* log(gamma(2 + z)) over z (z + 1), -1 <= z <= 1/2; two chains, since each waits for itself */
FL_VMATH double fl_lgamma_ratio_f64(double z)
{
    double s = z * z, p = -2.2345770987940995e-07, q = -5.0333679908980265e-08;
    p = fl_fma_f64(p, s, -1.619069145820239e-07), q = fl_fma_f64(q, s, -3.7814202659040305e-07);
    p = fl_fma_f64(p, s, 3.9269789138390237e-07), q = fl_fma_f64(q, s, 2.706202119469775e-07);
    p = fl_fma_f64(p, s, -1.0721529042883901e-07), q = fl_fma_f64(q, s, -1.6181561940631366e-08);
    p = fl_fma_f64(p, s, 4.4976613556741953e-07), q = fl_fma_f64(q, s, -2.8215132323806475e-07);
    p = fl_fma_f64(p, s, 1.804859872937288e-06), q = fl_fma_f64(q, s, -8.128176469759143e-07);
    p = fl_fma_f64(p, s, 8.221470195131457e-06), q = fl_fma_f64(q, s, -3.856386692853585e-06);
    p = fl_fma_f64(p, s, 3.816908370478108e-05), q = fl_fma_f64(q, s, -1.7660464078492022e-05);
    p = fl_fma_f64(p, s, 0.00018255261911445797), q = fl_fma_f64(q, s, -8.309522576251193e-05);
    p = fl_fma_f64(p, s, 0.0009153769232804247), q = fl_fma_f64(q, s, -0.0004057073925797602);
    p = fl_fma_f64(p, s, 0.004998641164671971), q = fl_fma_f64(q, s, -0.002108130834094256);
    p = fl_fma_f64(p, s, 0.03296500062115606), q = fl_fma_f64(q, s, -0.012384192193369387);
    p = fl_fma_f64(p, s, 0.42278433509846713), q = fl_fma_f64(q, s, -0.10031730167435393);
    return fl_fma_f64(q, z, p);
}

/* log(x) of a positive x: the larger part, and the rest in *low */
FL_VMATH double fl_log_parts_f64(double *low, double x)
{
    double e, f = fl_log_reduce_f64(&e, x), whole = e * 0.6931471805592082, high = whole + f;
    *low = fl_fma_f64(e, 7.371002565167799e-13, fl_log_tail_f64(f)) + (f - (high - whole));
    return high;
}

/* y >= 8: (y - 1/2) (log(y) - 1), with what the logarithm and the product lose, and Stirling's series */
FL_VMATH double fl_stirling_f64(double y)
{
    double low, high = fl_log_parts_f64(&low, y) - 1, u = 1 / y, s = u * u, p = -0.0016526004455595122;
    p = fl_fma_f64(p, s, 0.0008372834512071336);
    p = fl_fma_f64(p, s, -0.0005952025951802712);
    p = fl_fma_f64(p, s, 0.0007936506649488252);
    p = fl_fma_f64(p, s, -0.002777777777606244);
    p = fl_fma_f64(p, s, 0.0833333333333333);
    double factor = y - 0.5, product = factor * high, lost = FL_HAS_FMA ? fl_fma_f64(factor, high, -product) : 0;
    double rest = fl_fma_f64(factor, low, fl_fma_f64(p, u, 0.4189385332046728) + lost);
    return product < 1e308 ? product + rest : product;
}

/* |sin(pi part)| / pi, |part| <= 1/2 */
FL_VMATH double fl_sine_of_part_f64(double part)
{
    double a = fl_abs_f64(part), s = a * a, p = 2.459180384815939e-07;
    p = fl_fma_f64(p, s, -6.972960555564221e-06);
    p = fl_fma_f64(p, s, 0.00014842817816693618);
    p = fl_fma_f64(p, s, -0.0023460809634923995);
    p = fl_fma_f64(p, s, 0.026147847813078808);
    p = fl_fma_f64(p, s, -0.19075182412194128);
    p = fl_fma_f64(p, s, 0.8117424252833519);
    p = fl_fma_f64(p, s, -1.6449340668482264);
    return fl_fma_f64(p * s, a, a);
}

/* |from (from + 1) ... (from + count - 1)|, count <= 9, as a sum of two */
FL_VMATH double fl_rising_f64(double *low, double from, double count)
{
    double product = 1, rest = 0;
#pragma GCC unroll 9
    for (int i = 0; i < 9; i++) {
        double factor = i < count ? fl_abs_f64(from + i) : 1, next = product * factor;
        rest = fl_fma_f64(rest, factor, FL_HAS_FMA ? fl_fma_f64(product, factor, -next) : 0);
        product = next;
    }
    *low = rest;
    return product;
}

/* Up to 8 a polynomial on [1, 5/2) and the logarithm of the factors that lead there in `steps`; beyond it Stirling's
** series and, for negative numbers, reflection. The heads of sums that cancel are exact. */
FL_VMATH double fl_lgamma_f64(double x)
{
    double y = fl_abs_f64(x), whole = __builtin_floor(x < 1 ? x : x < 1.5 ? 1 : x - 0.5), part = y - __builtin_rint(y);
    int far = !(y < 8), negative = x < 0, pole = (x == 0) | (negative & (part == 0)) | (y == INFINITY);
    double steps = far ? 0 : whole - 1, z = far ? 0 : x - (steps + 2), extra;
    double product = fl_rising_f64(&extra, x < 1 ? x : x - steps, fl_abs_f64(steps));
    double rest = z * (x - (steps + 1)) * fl_lgamma_ratio_f64(z), stirling = fl_stirling_f64(far ? y : 8);
    rest = far ? (negative ? -stirling : stirling) : rest;
    product = far & negative ? fl_sine_of_part_f64(part) * y : product;
    double low, high = fl_log_parts_f64(&low, pole ? 1 : product), sign = x < 1 ? -1 : 1;
    double result = sign * high + (rest + sign * (low + extra / product));
    return x != x ? x : pole ? INFINITY : result;
}

FL_VMATH double fl_hypot_f64(double x, double y)
{
    double a = fl_abs_f64(x), b = fl_abs_f64(y), most = a > b ? a : b;
    double scale = most > 1e150 ? 0x1p-600 : most < 1e-140 ? 0x1p600 : 1;
    double back = most > 1e150 ? 0x1p600 : most < 1e-140 ? 0x1p-600 : 1;
    double c = a * scale, d = b * scale, length = __builtin_sqrt(fl_fma_f64(c, c, d * d)) * back;
    return (a == INFINITY) | (b == INFINITY) ? INFINITY : length;
}

#endif
