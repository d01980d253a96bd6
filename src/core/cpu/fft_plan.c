/*
** fft_plan.c -- the plans of Fourier transforms: factors, roots of unity, and which way a length takes.
**
** Roots are computed in double precision from angles of at most an eighth of a turn. Plans are shared by all threads
** and made under one lock; when there are many, the ones that have not been used for the longest time go.
*/
#include "fft.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 24, LONG_LINE = 8192, SHORT_LINE = 64 };

static void plan_free(fl_fft_plan *plan);

/* ---- roots ---- */

/* exp(-2 pi i power / n), exact where it is 1, -i, -1, i. */
static void root_of(double root[2], int64_t power, int64_t n)
{
    power = (power % n + n) % n;
    int64_t eighth = power * 8 / n; /* lengths stay far below 2^60 */
    bool back = eighth % 2 != 0;    /* from the next quarter back */
    int64_t beyond = back ? (eighth + 1) * n - power * 8 : power * 8 - eighth * n;
    double angle = (double)beyond / (double)n * (M_PI / 4), c = cos(angle), s = back ? -sin(angle) : sin(angle);
    switch ((eighth + 1) / 2 % 4) { /* turned by so many quarters */
    case 0: root[0] = c, root[1] = -s; break;
    case 1: root[0] = -s, root[1] = -c; break;
    case 2: root[0] = -c, root[1] = s; break;
    default: root[0] = s, root[1] = c; break;
    }
}

static void put(void *array, fl_dtype dtype, int64_t at, double value)
{
    if (dtype == FL_FLOAT64) ((double *)array)[at] = value;
    else ((float *)array)[at] = (float)value;
}

static void put_root(void *array, fl_dtype dtype, int64_t re, int64_t im, int64_t power, int64_t n)
{
    double root[2];
    root_of(root, power, n);
    put(array, dtype, re, root[0]);
    put(array, dtype, im, root[1]);
}

/* Room for so many reals; at least one, so that NULL is an error. */
static void *reals(fl_dtype dtype, int64_t count)
{
    return aligned_alloc(64, ((size_t)(count + 1) * fl_dtype_size(dtype) + 63) & ~(size_t)63);
}

/* ---- factors ---- */

/* The radices of n, fours and eights first; their count, 0 where a prime is too large. */
static int factors_of(int radix[FL_FFT_PASSES], int64_t n)
{
    int count = 0, twos = 0;
    for (; n % 2 == 0; n /= 2) twos++;
    while (twos > 4 || twos == 3) radix[count++] = 8, twos -= 3;
    while (twos >= 2) radix[count++] = 4, twos -= 2;
    if (twos) radix[count++] = 2;
    for (int r = 3; r <= FL_FFT_LARGEST_RADIX; r += 2)
        for (; n % r == 0; n /= r) radix[count++] = r;
    return n == 1 ? count : 0;
}

static fl_status columns_make(fl_fft_columns *columns, int64_t m, fl_dtype dtype)
{
    columns->passes = factors_of(columns->radix, m);
    columns->m = m;
    int64_t length = m;
    for (int i = 0; i < columns->passes; i++) {
        int64_t r = columns->radix[i], parts = length / r;
        columns->roots[i] = reals(dtype, parts * (r - 1) * 2);
        if (!columns->roots[i]) return FL_ERR_MEMORY;
        for (int64_t p = 0; p < parts; p++)
            for (int64_t k = 1; k < r; k++) {
                int64_t at = (p * (r - 1) + k - 1) * 2;
                put_root(columns->roots[i], dtype, at, at + 1, p * k, length);
            }
        length = parts;
        if (r <= 8) continue;
        if (!(columns->circle[i] = reals(dtype, r * 2))) return FL_ERR_MEMORY;
        for (int64_t k = 0; k < r; k++) put_root(columns->circle[i], dtype, 2 * k, 2 * k + 1, k, r);
    }
    return FL_OK;
}

static void columns_free(fl_fft_columns *columns)
{
    for (int i = 0; i < columns->passes; i++) {
        free(columns->roots[i]);
        free(columns->circle[i]);
    }
}

/* ---- the ways ---- */

static fl_status joins_make(fl_fft_plan *plan)
{
    int lanes = plan->lanes;
    int64_t m = plan->n / lanes, blocks = (m + lanes - 1) / lanes, at = 0;
    FL_TRY(columns_make(&plan->part, m, plan->dtype));
    if (!(plan->joins = reals(plan->dtype, blocks * (lanes - 1) * 2 * lanes))) return FL_ERR_MEMORY;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t k = b * lanes > m - lanes ? m - lanes : b * lanes;
        for (int l = 1; l < lanes; l++, at += 2 * lanes)
            for (int i = 0; i < lanes; i++)
                put_root(plan->joins, plan->dtype, at + i, at + lanes + i, (k + i) * l, plan->n);
    }
    return FL_OK;
}

/* The divisor of n nearest to its root from above that is a multiple of the lanes, if there is one. */
static int64_t side_of(int64_t n, int lanes)
{
    int64_t best = 0, best_even = 0;
    for (int64_t d = 1; d * d <= n; d++) {
        if (n % d) continue;
        best = n / d;
        if (best % lanes == 0 && d % lanes == 0) best_even = best;
    }
    return best_even && best_even <= 8 * best ? best_even : best;
}

static fl_status square_make(fl_fft_plan *plan, int64_t n1)
{
    int lanes = plan->lanes;
    fl_dtype dtype = plan->dtype;
    int64_t n = plan->n;
    FL_TRY(columns_make(&plan->first, n1, dtype));
    FL_TRY(columns_make(&plan->second, n / n1, dtype));
    while ((int64_t)1 << 2 * plan->shift < n) plan->shift++;
    int64_t fine = (int64_t)1 << plan->shift, coarse = (n >> plan->shift) + 1;
    plan->slant = reals(dtype, n1 * 2 * lanes);
    plan->fine = reals(FL_FLOAT64, fine * 2);
    plan->coarse = reals(FL_FLOAT64, coarse * 2);
    if (!plan->slant || !plan->fine || !plan->coarse) return FL_ERR_MEMORY;
    for (int64_t k = 0; k < n1; k++)
        for (int l = 0; l < lanes; l++)
            put_root(plan->slant, dtype, k * 2 * lanes + l, k * 2 * lanes + lanes + l, k * l, n);
    for (int64_t i = 0; i < fine; i++) root_of(plan->fine + 2 * i, i, n);
    for (int64_t i = 0; i < coarse; i++) root_of(plan->coarse + 2 * i, i << plan->shift, n);
    return FL_OK;
}

static fl_status plan_make(fl_fft_plan **out, int64_t n, fl_dtype dtype);

/* The shortest convenient length from `least` on: 2^a, 3 * 2^a, 5 * 2^a, 9 * 2^a. */
static int64_t convenient(int64_t least)
{
    static const int64_t odd[] = {1, 3, 5, 9};
    int64_t best = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        int64_t m = odd[i] * 64;
        while (m < least) m *= 2;
        if (m < best) best = m;
    }
    return best;
}

static void transform_spectrum(fl_fft_plan *plan, void *work, void *scratch);

static fl_status chirp_make(fl_fft_plan *plan)
{
    int64_t n = plan->n, m = convenient(2 * n - 1);
    fl_dtype dtype = plan->dtype;
    FL_TRY(plan_make(&plan->inner, m, dtype));
    plan->chirp = reals(dtype, n * 2);
    plan->spectrum = reals(dtype, m * 2);
    void *work = reals(dtype, m * 2), *scratch = aligned_alloc(64, fl_fft_scratch(plan->inner));
    fl_status status = plan->chirp && plan->spectrum && work && scratch ? FL_OK : FL_ERR_MEMORY;
    if (status == FL_OK) {
        memset(work, 0, (size_t)m * 2 * fl_dtype_size(dtype));
        for (int64_t j = 0; j < n; j++) {
            int64_t power = (int64_t)((unsigned __int128)j * (unsigned __int128)j % (unsigned __int128)(2 * n));
            double root[2];
            root_of(root, power, 2 * n);
            for (int k = 0; k < 2; k++) {
                double part = k ? -root[1] : root[0];
                put(plan->chirp, dtype, 2 * j + k, root[k]);
                put(work, dtype, 2 * j + k, part);
                if (j) put(work, dtype, 2 * (m - j) + k, part);
            }
        }
        transform_spectrum(plan, work, scratch);
    }
    free(work);
    free(scratch);
    return status;
}

/* One serial transform of the convolution's length. */
static void transform_spectrum(fl_fft_plan *plan, void *work, void *scratch)
{
    const fl_fft_plan *inner = plan->inner;
    const fl_fft_kernels *loops = fl_fft_loops(plan->dtype);
    if (inner->way == FL_FFT_LINE) {
        loops->line(inner, plan->spectrum, work, false, 1, scratch);
        return;
    }
    int64_t lanes = plan->lanes, n1 = inner->first.m, n2 = inner->second.m, columns = (n2 + lanes - 1) / lanes;
    char *rest = (char *)scratch + (size_t)(n1 * columns * 2 * lanes) * fl_dtype_size(plan->dtype);
    for (int64_t b = 0; b < columns; b++) loops->columns(inner, scratch, work, b, false, rest);
    for (int64_t b = 0; b < (n1 + lanes - 1) / lanes; b++)
        loops->rows(inner, plan->spectrum, scratch, b, false, 1, rest);
}

static fl_status mirror_make(fl_fft_plan *plan)
{
    if (!(plan->mirror = reals(plan->dtype, plan->n + 2))) return FL_ERR_MEMORY;
    for (int64_t k = 0; k <= plan->n / 2; k++) { /* -i = the root to a quarter of 2n; counted in 8n-ths of 4 */
        double root[2];
        root_of(root, k, 2 * plan->n);
        put(plan->mirror, plan->dtype, 2 * k, root[1]);
        put(plan->mirror, plan->dtype, 2 * k + 1, -root[0]);
    }
    return FL_OK;
}

static fl_status ways_make(fl_fft_plan *plan)
{
    int64_t n = plan->n;
    int radix[FL_FFT_PASSES], lanes = plan->lanes;
    FL_TRY(mirror_make(plan));
    if (n == 1) {
        plan->way = FL_FFT_ONE;
        return FL_OK;
    }
    if (factors_of(radix, n) == 0) {
        plan->way = FL_FFT_CHIRP;
        return chirp_make(plan);
    }
    FL_TRY(columns_make(&plan->whole, n, plan->dtype));
    int64_t side = side_of(n, lanes);
    bool divided = n % lanes == 0 && n / lanes >= lanes;
    plan->way = FL_FFT_LANES;
    if (divided && n >= SHORT_LINE && n <= LONG_LINE) {
        plan->way = FL_FFT_LINE;
        return joins_make(plan);
    }
    if (n < SHORT_LINE || n / side < 4) {
        if (!divided) return FL_OK;
        plan->way = FL_FFT_LINE;
        return joins_make(plan);
    }
    plan->way = FL_FFT_SQUARE;
    return square_make(plan, side);
}

static fl_status plan_make(fl_fft_plan **out, int64_t n, fl_dtype dtype)
{
    fl_fft_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return FL_ERR_MEMORY;
    plan->n = n;
    plan->dtype = dtype;
    plan->lanes = fl_fft_loops(dtype)->lanes;
    fl_status status = ways_make(plan);
    if (status == FL_OK) *out = plan;
    else plan_free(plan);
    return status;
}

static void plan_free(fl_fft_plan *plan)
{
    if (!plan) return;
    columns_free(&plan->whole);
    columns_free(&plan->part);
    columns_free(&plan->first);
    columns_free(&plan->second);
    plan_free(plan->inner);
    free(plan->joins);
    free(plan->slant);
    free(plan->coarse);
    free(plan->fine);
    free(plan->chirp);
    free(plan->spectrum);
    free(plan->mirror);
    free(plan);
}

size_t fl_fft_scratch(const fl_fft_plan *plan)
{
    size_t number = 2 * fl_dtype_size(plan->dtype), lanes = (size_t)plan->lanes, n = (size_t)plan->n;
    switch (plan->way) {
    case FL_FFT_ONE: return 64;
    case FL_FFT_LANES: return number * lanes * n * 3 + 256;
    case FL_FFT_LINE: return number * n * 2 + 256;
    case FL_FFT_CHIRP: return number * (size_t)plan->inner->n * 2 + fl_fft_scratch(plan->inner) + 256;
    default: break;
    }
    size_t n1 = (size_t)plan->first.m, n2 = (size_t)plan->second.m, longer = n1 > n2 ? n1 : n2;
    return number * lanes * (n1 * ((n2 + lanes - 1) / lanes) + 3 * (longer + lanes)) + 512;
}

/* ---- the cache ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fl_fft_plan *kept[KEPT];
static uint64_t clock_of_uses;

/* The slot of a length's plan, else the one that it can take: an empty one, or that of the plan unused for longest;
** NULL: all are in use. */
static fl_fft_plan **place_of(int64_t n, fl_dtype dtype)
{
    fl_fft_plan **oldest = NULL;
    for (int i = 0; i < KEPT; i++)
        if (kept[i] && kept[i]->n == n && kept[i]->dtype == dtype) return &kept[i];
    for (int i = 0; i < KEPT; i++) {
        if (!kept[i]) return &kept[i];
        if (kept[i]->users == 0 && (!oldest || kept[i]->used < (*oldest)->used)) oldest = &kept[i];
    }
    return oldest;
}

fl_status fl_fft_plan_take(fl_fft_plan **out, const char *who, int64_t n, fl_dtype dtype)
{
    fl_status status = FL_OK;
    pthread_mutex_lock(&lock);
    fl_fft_plan **place = place_of(n, dtype), *plan = place ? *place : NULL;
    if (!plan || plan->n != n || plan->dtype != dtype) {
        fl_fft_plan *made = NULL;
        status = plan_make(&made, n, dtype);
        if (status == FL_OK && place) {
            plan_free(*place);
            *place = made;
        }
        plan = made;
    }
    if (status == FL_OK) {
        plan->users++;
        plan->used = ++clock_of_uses;
        *out = plan;
    }
    pthread_mutex_unlock(&lock);
    if (status == FL_OK) return FL_OK;
    return fl_fail(FL_ERR_MEMORY, "%s: out of memory for the roots of a transform of length %lld", who, (long long)n);
}

void fl_fft_plan_give(fl_fft_plan *plan)
{
    bool is_kept = false;
    pthread_mutex_lock(&lock);
    plan->users--;
    for (int i = 0; i < KEPT; i++) is_kept |= kept[i] == plan;
    if (!is_kept) plan_free(plan); /* all places were in use */
    pthread_mutex_unlock(&lock);
}
