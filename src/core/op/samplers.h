/*
** samplers.h -- how one random number of a distribution is made, written once for the CPU and for devices.
**
** Element i of an op draws from a stream of its own: blocks of Philox words number i of the op's counter, then, where
** a rejection needs more, of the counters with the block's number in their high half. So it depends on nothing but
** seed, counter and logical index. All arithmetic is in double precision.
**
** References: Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); Hoermann, "The transformed
** rejection method for generating Poisson random variables" (1993), "The generation of binomial random variates"
** (1993).
*/
#ifndef FL_SAMPLERS_H
#define FL_SAMPLERS_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(FL_EMULATED)
#define FL_SAMPLER __device__ static inline
#define FL_SAMPLER_LGAMMA(x) lgamma(x)
#else
#define FL_SAMPLER static inline
extern double lgamma_r(double x, int *sign);
static inline double fl_sampler_lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}
#define FL_SAMPLER_LGAMMA(x) fl_sampler_lgamma(x)
#endif

/* A rejection that has failed so often is one whose bounds overflow: the middle of the distribution is taken. */
enum { FL_SAMPLER_ATTEMPTS = 1000 };

/* Attributes and variants of the ops (ops/samplers.c). */
enum { FL_SAMPLER_FIRST, FL_SAMPLER_SECOND };
enum { FL_MULTINOMIAL_COUNT, FL_MULTINOMIAL_REPLACEMENT };
typedef enum fl_sampler {
    FL_SAMPLER_EXPONENTIAL, /* rate */
    FL_SAMPLER_CAUCHY,      /* median, sigma */
    FL_SAMPLER_LOG_NORMAL,  /* mean, deviation of the logarithm */
    FL_SAMPLER_GEOMETRIC,   /* p */
    FL_SAMPLER_POISSON,     /* rate */
    FL_SAMPLER_GAMMA,       /* shape */
    FL_SAMPLER_BINOMIAL     /* count, p */
} fl_sampler;

typedef struct fl_sampler_stream {
    uint64_t seed, counter, element;
    uint32_t block, word[4]; /* blocks that were made; the last one */
    int left;                /* uniforms in it */
} fl_sampler_stream;

FL_SAMPLER void fl_sampler_more(fl_sampler_stream *s)
{
    uint64_t counter = s->counter + ((uint64_t)s->block << 32);
    uint32_t c0 = (uint32_t)s->element, c1 = (uint32_t)(s->element >> 32), c2 = (uint32_t)counter;
    uint32_t c3 = (uint32_t)(counter >> 32), k0 = (uint32_t)s->seed, k1 = (uint32_t)(s->seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    s->word[0] = c0;
    s->word[1] = c1;
    s->word[2] = c2;
    s->word[3] = c3;
    s->left = 2;
    s->block++;
}

FL_SAMPLER fl_sampler_stream fl_sampler_begin(uint64_t seed, uint64_t counter, uint64_t element)
{
    fl_sampler_stream s;
    s.seed = seed;
    s.counter = counter;
    s.element = element;
    s.block = 0;
    s.left = 0;
    return s;
}

/* The stream's first block, which was made with others: four words. */
FL_SAMPLER void fl_sampler_take(fl_sampler_stream *s, const uint32_t *words)
{
    for (int i = 0; i < 4; i++) s->word[i] = words[i];
    s->left = 2;
    s->block = 1;
}

/* In (0, 1), of 53 bits. */
FL_SAMPLER double fl_sampler_uniform(fl_sampler_stream *s)
{
    if (s->left == 0) fl_sampler_more(s);
    const uint32_t *w = s->word + (2 - s->left) * 2;
    s->left--;
    return ((double)(((uint64_t)w[0] << 32 | w[1]) >> 12) + 0.5) * (1.0 / 4503599627370496.0);
}

FL_SAMPLER double fl_sampler_normal(fl_sampler_stream *s)
{
    double u = fl_sampler_uniform(s), v = fl_sampler_uniform(s);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

FL_SAMPLER double fl_sampler_gamma(fl_sampler_stream *s, double shape)
{
    double boost = 1;
    if (!(shape > 0)) return shape == 0 ? 0 : NAN;
    if (shape < 1) { /* of shape + 1, times a power of a uniform */
        boost = exp(log(fl_sampler_uniform(s)) / shape);
        shape += 1;
    }
    if (shape > 1e30) return shape;
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (int i = 0; i < FL_SAMPLER_ATTEMPTS; i++) {
        double x = fl_sampler_normal(s), v = 1 + c * x, u = fl_sampler_uniform(s);
        if (v <= 0) continue;
        v = v * v * v;
        if (u < 1 - 0.0331 * (x * x) * (x * x)) return d * v * boost; /* implies the condition below */
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v * boost;
    }
    return d * boost;
}

FL_SAMPLER double fl_sampler_poisson(fl_sampler_stream *s, double rate)
{
    if (!(rate >= 0)) return NAN;
    if (rate > 1e30) return rate;
    if (rate < 10) { /* waiting times that add up to the rate */
        double limit = exp(-rate), product = fl_sampler_uniform(s), k = 0;
        for (; product > limit; k++) product *= fl_sampler_uniform(s);
        return k;
    }
    double root = sqrt(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b, top = 0.9277 - 3.6224 / (b - 2);
    double inverse = 1.1239 + 1.1328 / (b - 3.4), log_rate = log(rate);
    for (int i = 0; i < FL_SAMPLER_ATTEMPTS; i++) {
        double u = fl_sampler_uniform(s) - 0.5, v = fl_sampler_uniform(s), edge = 0.5 - fabs(u);
        double k = floor((2 * a / edge + b) * u + rate + 0.43);
        if (edge >= 0.07 && v <= top) return k;
        if (k < 0 || (edge < 0.013 && v > edge)) continue;
        if (log(v * inverse / (a / (edge * edge) + b)) <= k * log_rate - rate - FL_SAMPLER_LGAMMA(k + 1)) return k;
    }
    return floor(rate);
}

/* p at most a half. */
FL_SAMPLER double fl_sampler_binomial_lower(fl_sampler_stream *s, double n, double p)
{
    if (n * p < 10) { /* trials up to the next success, as long as there are any */
        double rest = log1p(-p), trials = 0, k = 0;
        if (p == 0) return 0;
        for (;; k++) {
            trials += ceil(log(fl_sampler_uniform(s)) / rest);
            if (trials > n) return k;
        }
    }
    double root = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * p;
    double top = 0.92 - 4.2 / b, scale = (2.83 + 5.1 / b) * root, odds = log(p / (1 - p)), m = floor((n + 1) * p);
    double at_mode = FL_SAMPLER_LGAMMA(m + 1) + FL_SAMPLER_LGAMMA(n - m + 1);
    for (int i = 0; i < FL_SAMPLER_ATTEMPTS; i++) {
        double u = fl_sampler_uniform(s) - 0.5, v = fl_sampler_uniform(s), edge = 0.5 - fabs(u);
        double k = floor((2 * a / edge + b) * u + n * p + 0.5);
        if (k < 0 || k > n) continue;
        if (edge >= 0.07 && v <= top) return k;
        double bound = at_mode - FL_SAMPLER_LGAMMA(k + 1) - FL_SAMPLER_LGAMMA(n - k + 1) + (k - m) * odds;
        if (log(v * scale / (a / (edge * edge) + b)) <= bound) return k;
    }
    return m;
}

FL_SAMPLER double fl_sampler_binomial(fl_sampler_stream *s, double n, double p)
{
    if (!(n >= 0 && p >= 0 && p <= 1)) return NAN;
    n = floor(n);
    if (n > 1e30) return n * p;
    return p > 0.5 ? n - fl_sampler_binomial_lower(s, n, 1 - p) : fl_sampler_binomial_lower(s, n, p);
}

/* One number; NAN: the parameters are none of the distribution. */
FL_SAMPLER double fl_sampler_draw(fl_sampler kind, fl_sampler_stream *s, double a, double b)
{
    switch (kind) {
    case FL_SAMPLER_EXPONENTIAL: return -log(fl_sampler_uniform(s)) / a;
    case FL_SAMPLER_CAUCHY: return a + b * tan(3.141592653589793 * (fl_sampler_uniform(s) - 0.5));
    case FL_SAMPLER_LOG_NORMAL: return exp(a + b * fl_sampler_normal(s));
    case FL_SAMPLER_GEOMETRIC: {
        double k = ceil(log(fl_sampler_uniform(s)) / log1p(-a));
        return k < 1 || a == 1 ? 1 : k;
    }
    case FL_SAMPLER_POISSON: return fl_sampler_poisson(s, a);
    case FL_SAMPLER_GAMMA: return fl_sampler_gamma(s, a);
    default: return fl_sampler_binomial(s, a, b);
    }
}

/* ---- the slope of a gamma number in its shape ---- */

FL_SAMPLER double fl_sampler_digamma(double x)
{
    double sum = 0;
    for (; x < 10; x++) sum -= 1 / x;
    double y = 1 / (x * x);
    return sum + log(x) - 0.5 / x
        - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
}

/* By the series of the distribution function F: a sum whose terms have one sign where x is small. */
FL_SAMPLER double fl_sampler_gamma_series(double shape, double x)
{
    double term = x / shape, level = log(x) - fl_sampler_digamma(shape) - 1 / shape, sum = 0;
    for (int n = 1; n < 100000; n++) {
        sum -= term * level;
        if (term * (fabs(level) + 1) < 1e-17 * fabs(sum) && n > 2) break;
        term *= x / (shape + n);
        level -= 1 / (shape + n);
    }
    return sum;
}

/* By the continued fraction h of 1 - F, and its derivative in the shape beside it (Lentz's method). */
FL_SAMPLER double fl_sampler_gamma_fraction(double shape, double x)
{
    double b = x + 1 - shape, db = -1, c = 1e300, dc = 0, d = 1 / b, dd = -db * d * d, h = d, dh = dd;
    for (int i = 1; i < 100000; i++) {
        double a = -i * (i - shape), da = i;
        b += 2;
        dd = -(da * d + a * dd + db) / ((a * d + b) * (a * d + b));
        d = 1 / (a * d + b);
        dc = da / c - a * dc / (c * c) + db;
        c = b + a / c;
        double step = c * d, dstep = dc * d + c * dd;
        dh = dh * step + h * dstep;
        h *= step;
        if (fabs(step - 1) < 1e-15 && fabs(h * dstep) <= 1e-15 * fabs(dh)) break;
    }
    return x * (dh + h * (log(x) - fl_sampler_digamma(shape)));
}

/* dx / dshape at equal F: -(dF / dshape) / (dF / dx). */
FL_SAMPLER double fl_sampler_gamma_slope(double shape, double x)
{
    if (!(shape > 0) || !(x >= 0)) return NAN;
    if (x == 0) return 0;
    if (shape > 5000) { /* Wilson and Hilferty: x = shape (1 - 1 / (9 shape) + z / (3 sqrt(shape)))^3 */
        double root = cbrt(x / shape), ninth = 1 / (9 * shape), z = (root - 1 + ninth) * 3 * sqrt(shape);
        return root * root * root + 3 * shape * root * root * (ninth / shape - z / (6 * shape * sqrt(shape)));
    }
    return x < shape + 1 ? fl_sampler_gamma_series(shape, x) : fl_sampler_gamma_fraction(shape, x);
}

#endif
