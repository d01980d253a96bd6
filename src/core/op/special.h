/*
** special.h -- Bessel functions, Airy's function, the incomplete gamma functions, the scaled complement of erf and the
** quantiles of the normal distribution, of one number, written once for the CPU and for devices. It includes nothing,
** so that it can be part of a source that is compiled at run time.
**
** All arithmetic is in double precision. Series of terms of one sign are used where they converge, asymptotic series
** where their smallest term is beyond the last digit.
**
** Reference: NIST Digital Library of Mathematical Functions, 7.12, 8.7, 8.9, 8.12, 9.2, 9.7, 10.25, 10.32, 10.40.
*/
#ifndef FL_SPECIAL_H
#define FL_SPECIAL_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(FL_EMULATED)
#define FL_SPECIAL __device__ static inline
#else
#define FL_SPECIAL static inline
#endif

#define FL_SPECIAL_EPS 1e-17

/* ---- modified Bessel functions: I0 and I1 times exp(-|x|), K0 and K1 times exp(x) ---- */

/* Sum of (x^2 / 4)^k / (k! (k + order)!), which is all of I but a power of x / 2. */
FL_SPECIAL double fl_special_bessel_series(double x, int order)
{
    double square = x * x / 4, term = 1, sum = 1;
    for (int k = 1; k < 200 && term > FL_SPECIAL_EPS * sum; k++) {
        term *= square / ((double)k * (k + order));
        sum += term;
    }
    return sum;
}

/* sqrt(2 pi x) exp(-x) I(x) for x >= 30 */
FL_SPECIAL double fl_special_bessel_far(double x, int order)
{
    double term = 1, sum = 1;
    for (int k = 1; k < 24; k++) {
        term *= ((2 * k - 1) * (2 * k - 1) - 4.0 * order) / (8 * k * x);
        sum += term;
    }
    return sum;
}

FL_SPECIAL double fl_special_bessel_i(double x, int order)
{
    double y = fabs(x), value;
    if (x != x) return x;
    if (y == INFINITY) return 0;
    if (y < 30) value = exp(-y) * fl_special_bessel_series(y, order) * (order ? y / 2 : 1);
    else value = fl_special_bessel_far(y, order) / sqrt(6.2831853071795865 * y);
    return order && x < 0 ? -value : value;
}
FL_SPECIAL double fl_special_i0e(double x) { return fl_special_bessel_i(x, 0); }
FL_SPECIAL double fl_special_i1e(double x) { return fl_special_bessel_i(x, 1); }

/* exp(|x|) is multiplied in two steps: it overflows before the product does. */
FL_SPECIAL double fl_special_grown(double scaled, double x)
{
    double half = exp(fabs(x) / 2);
    return fabs(x) == INFINITY ? copysign(INFINITY, scaled + x) : scaled * half * half;
}
FL_SPECIAL double fl_special_i0(double x)
{
    if (fabs(x) < 30) return fl_special_bessel_series(x, 0);
    return x != x ? x : fl_special_grown(fl_special_i0e(x), fabs(x));
}
FL_SPECIAL double fl_special_i1(double x)
{
    if (fabs(x) < 30) return fl_special_bessel_series(x, 1) * (x / 2);
    return x != x ? x : fl_special_grown(fl_special_i1e(x), x);
}

/* The integral of exp(-x (cosh t - 1)) cosh(order t) over t > 0 by the trapezoidal rule, whose error vanishes as
** exp(-pi^2 / step) for such integrands. */
FL_SPECIAL double fl_special_bessel_k(double x, int order)
{
    const double step = 0.125;
    if (x != x) return x;
    if (x <= 0) return x == 0 ? INFINITY : NAN;
    if (x == INFINITY) return 0;
    double scale = x > 1 ? 1 / sqrt(x) : 1, sum = 0.5; /* of t: the integrand is as wide as 1 / sqrt(x) */
    for (int i = 1; i < 20000; i++) {
        double t = step * scale * i, half = sinh(t / 2), term = exp(-2 * x * half * half);
        if (order) term *= cosh(t);
        sum += term;
        if (term < FL_SPECIAL_EPS * sum && 2 * x * half * half > 40) break;
    }
    return sum * step * scale;
}
FL_SPECIAL double fl_special_k0e(double x) { return fl_special_bessel_k(x, 0); }
FL_SPECIAL double fl_special_k1e(double x) { return fl_special_bessel_k(x, 1); }
FL_SPECIAL double fl_special_k0(double x) { return x == INFINITY ? 0 : exp(-x) * fl_special_bessel_k(x, 0); }
FL_SPECIAL double fl_special_k1(double x) { return x == INFINITY ? 0 : exp(-x) * fl_special_bessel_k(x, 1); }

/* ---- Airy's function Ai, the solution of y'' = x y that vanishes at infinity, and its derivative ---- */

/* Taylor's series of the equation around the nearest whole number, for |x| <= 10. */
FL_SPECIAL double fl_special_airy_near(double x, int order)
{
    const double at_whole[21][2] = {
        /* Ai and its derivative at -10, -9, ... 10 */
        {0.040241238486443191, 0.99626504413279006},      {-0.022133721547341404, -0.97566398092633159},
        {-0.052705050356386203, 0.93556093819830655},     {0.18428083525050564, -0.77100816841012655},
        {-0.32914517362982311, 0.34593548728134289},      {0.35076100902411432, 0.32719281855444314},
        {-0.070265532949289515, -0.79062857536858138},    {-0.37881429367765807, 0.31458376921659881},
        {0.22740742820168558, 0.61825902074169104},       {0.53556088329235212, -0.010160567116645209},
        {0.35502805388781724, -0.2588194037928068},       {0.13529241631288142, -0.15914744129679321},
        {0.034924130423274379, -0.053090384433653632},    {0.0065911393574607191, -0.011912976705951318},
        {0.00095156385120480187, -0.0019586409502041789}, {0.00010834442813607442, -0.00024741389086846248},
        {9.9476943602528896e-6, -2.4765200397034955e-5},  {7.4921288639971671e-7, -2.008150894738792e-6},
        {4.6922076160992316e-8, -1.3414392979067866e-7},  {2.4711684308724898e-9, -7.4806413896589464e-9},
        {1.1047532552898686e-10, -3.5206336767389236e-10}};
    int center = (int)floor(x + 0.5);
    double h = x - center, power = h, before = at_whole[center + 10][0], now = at_whole[center + 10][1];
    double value = before + h * now, slope = now, last = 0; /* coefficients of h^(n - 1), h^n; of h^(n - 2) */
    for (int n = 1; n < 25; n++) {
        double next = (center * before + last) / (n * (n + 1.0));
        slope += (n + 1) * next * power;
        power *= h;
        value += next * power;
        last = before;
        before = now;
        now = next;
    }
    return order ? slope : value;
}

/* Sums of every second term u_k / y^k, k from `first` on, with alternating signs; of the derivative v_k. */
FL_SPECIAL double fl_special_airy_series(double y, int order, int first, int step)
{
    double term = 1, sum = 0;
    for (int k = 0; k < 30; k++) {
        if (k > 0) term *= (6.0 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216.0 * k * (2 * k - 1) * y);
        if (k < first || (k - first) % step) continue;
        double part = order ? term * (6 * k + 1) / (1 - 6 * k) : term;
        sum += (k - first) / step % 2 ? -part : part;
        if (term < FL_SPECIAL_EPS) break;
    }
    return sum;
}

/* Asymptotic series, for |x| >= 10. */
FL_SPECIAL double fl_special_airy_far(double x, int order)
{
    double size = fabs(x), root = sqrt(size), y = root * size * (2.0 / 3), quarter = sqrt(root);
    double scale = (order ? quarter : 1 / quarter) * 0.56418958354775629; /* 1 / sqrt(pi) */
    if (x > 0) return (order ? -0.5 : 0.5) * scale * exp(-y) * fl_special_airy_series(y, order, 0, 1);
    double even = fl_special_airy_series(y, order, 0, 2), odd = fl_special_airy_series(y, order, 1, 2);
    double cosine = cos(y - 0.78539816339744831), sine = sin(y - 0.78539816339744831);
    return order ? scale * (sine * even - cosine * odd) : scale * (cosine * even + sine * odd);
}

FL_SPECIAL double fl_special_airy_ai(double x)
{
    if (x != x) return x;
    if (fabs(x) == INFINITY) return 0;
    return fabs(x) <= 10 ? fl_special_airy_near(x, 0) : fl_special_airy_far(x, 0);
}
FL_SPECIAL double fl_special_airy_ai_slope(double x)
{
    if (x != x || x == -INFINITY) return NAN;
    if (x == INFINITY) return 0;
    return fabs(x) <= 10 ? fl_special_airy_near(x, 1) : fl_special_airy_far(x, 1);
}

/* ---- the normal distribution ---- */

/* exp(x^2) erfc(x); the square as a rounded value and its error. */
FL_SPECIAL double fl_special_erfcx(double x)
{
    if (x < 10) {
        double square = x * x, rest = fma(x, x, -square), grown = exp(square);
        return x < -27 ? INFINITY : grown * erfc(x) * (1 + rest);
    }
    double term = 1, sum = 1, y = -0.5 / x / x;
    for (int k = 1; k < 14; k++) {
        term *= (2 * k - 1) * y;
        sum += term;
    }
    return sum * 0.56418958354775629 / x;
}

/* Logarithm of the distribution function, which is concave. */
FL_SPECIAL double fl_special_log_ndtr(double x)
{
    double y = x * 0.70710678118654752;
    return x < -1 ? log(fl_special_erfcx(-y) / 2) - y * y : log1p(-erfc(y) / 2);
}

/* Newton's steps on the logarithm, from the left of the solution, come nearer from that side. */
FL_SPECIAL double fl_special_ndtri(double p)
{
    if (!(p >= 0 && p <= 1)) return NAN;
    if (p == 0 || p == 1) return p == 0 ? -INFINITY : INFINITY;
    double low = p > 0.5 ? 1 - p : p, target = log(low), y = -sqrt(-2 * (target + 0.69314718055994531));
    if (low == 0.5) return 0;
    for (int i = 0; i < 40; i++) {
        double step = (target - fl_special_log_ndtr(y)) * fl_special_erfcx(y * -0.70710678118654752)
            * 1.2533141373155003;
        y += step;
        if (fabs(step) <= 1e-16 * fabs(y)) break;
    }
    return p > 0.5 ? -y : y;
}

/* ---- regularised incomplete gamma functions ---- */

/* m - log(1 + m), which is m^2 / 2 near 0 */
FL_SPECIAL double fl_special_log_gap(double m)
{
    if (fabs(m) > 0.1) return m - log1p(m);
    double power = m * m, sum = 0;
    for (int k = 2; k < 20; k++, power *= -m) sum += power / k;
    return sum;
}

/* x^a exp(-x) / Gamma(a): Gamma at 10 or more by Stirling's series, below by its recurrence. */
FL_SPECIAL double fl_special_gamma_factor(double a, double x)
{
    double product = 1, b = a;
    for (; b < 10; b += 1) product *= b;
    double y = 1 / (b * b);
    double rest = (1.0 / 12 - y * (1.0 / 360 - y * (1.0 / 1260 - y * (1.0 / 1680 - y * (1.0 / 1188 - y / 500))))) / b;
    if (a < 10) return exp(a * log(x) - x - (b - 0.5) * log(b) + b - 0.91893853320467274 - rest) * product;
    return sqrt(a / 6.2831853071795865) * exp(-a * fl_special_log_gap((x - a) / a) - rest);
}

FL_SPECIAL double fl_special_gamma_lower(double a, double x)
{
    double term = 1 / a, sum = term;
    for (int n = 1; n < 100000 && term > FL_SPECIAL_EPS * sum; n++) {
        term *= x / (a + n);
        sum += term;
    }
    return sum * fl_special_gamma_factor(a, x);
}

/* The continued fraction by Lentz's method. */
FL_SPECIAL double fl_special_gamma_upper(double a, double x)
{
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 100000; i++) {
        double part = -i * (i - a);
        b += 2;
        d = part * d + b;
        d = 1 / (fabs(d) < 1e-300 ? 1e-300 : d);
        c = b + part / c;
        h *= c * d;
        if (fabs(c * d - 1) < 2e-16) break;
    }
    return h * fl_special_gamma_factor(a, x);
}

/* For large a, x near it: erfc and the first two terms of the uniform series; the sign is that of upper. */
FL_SPECIAL double fl_special_gamma_uniform(double a, double x, int upper)
{
    double m = (x - a) / a, gap = fl_special_log_gap(m), n = copysign(sqrt(2 * gap), m);
    double first = -1.0 / 3 + n * (1.0 / 12 + n * (-2.0 / 135 + n / 864)), second = -1.0 / 540 - n / 288;
    double rest = exp(-a * gap) / sqrt(6.2831853071795865 * a) * (first + second / a);
    double side = n * sqrt(a / 2);
    return upper ? 0.5 * erfc(side) + rest : 0.5 * erfc(-side) - rest;
}

/* The part of the gamma function's integral below x, or above it, of 1. */
FL_SPECIAL double fl_special_gamma_part(double a, double x, int upper)
{
    if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0) || (a == INFINITY && x == INFINITY)) return NAN;
    if (a == 0 || x == INFINITY) return !upper;
    if (x == 0 || a == INFINITY) return upper;
    if (a > 1e5) {
        double m = (x - a) / a;
        return fabs(m) < 0.04 ? fl_special_gamma_uniform(a, x, upper) : m > 0 ? !upper : upper;
    }
    /* for small a the integral from x on is less than 1 for smaller x too */
    if (x < (a < 1 ? 1 : a) + 1) {
        double lower = fl_special_gamma_lower(a, x);
        return upper ? 1 - lower : lower;
    }
    double above = fl_special_gamma_upper(a, x);
    return upper ? above : 1 - above;
}
FL_SPECIAL double fl_special_igamma(double a, double x) { return fl_special_gamma_part(a, x, 0); }
FL_SPECIAL double fl_special_igammac(double a, double x) { return fl_special_gamma_part(a, x, 1); }

/* ---- x = m 2^e with 0.5 <= |m| < 1 ---- */

FL_SPECIAL double fl_special_frexp_mantissa(double x)
{
    int e;
    return frexp(x, &e);
}
FL_SPECIAL double fl_special_frexp_exponent(double x)
{
    int e = 0;
    frexp(x, &e);
    return e;
}

#endif
