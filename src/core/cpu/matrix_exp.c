/*
** matrix_exp.c -- the exponential of a matrix: see matrices.h.
**
** Scaling and squaring with Pade approximants (N. J. Higham, "The scaling and squaring method for the matrix
** exponential revisited", SIAM J. Matrix Anal. Appl. 26, 2005): of degree 3, 5, 7 or 9 where the norm allows it, else
** of degree 13 for A / 2^s, whose result is squared s times. exp(A^T) = exp(A)^T, so all is done on the transpose, by
** columns.
*/
#include "matrices.h"

#include <math.h>

enum { DEGREES = 5, LAST = DEGREES - 1 };

/* Up to this 1-norm an approximant of the degree is exact to float64's rounding. */
static const double norms[DEGREES] = {1.495585217958292e-2, 2.539398330063230e-1, 9.504178996162932e-1,
                                      2.097847961257068e0, 5.371920351148152e0};
static const int degrees[DEGREES] = {3, 5, 7, 9, 13};

/* Numerators' coefficients, from that of A^0 on. */
static const double coefficients[DEGREES][14] = {
    {120, 60, 12, 1},
    {30240, 15120, 3360, 420, 30, 1},
    {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1},
    {17643225600.0, 8821612800.0, 2075673600, 302702400, 30270240, 2162160, 110880, 3960, 90, 1},
    {64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
     10559470521600.0, 670442572800.0, 33522128640.0, 1323241920, 40840800, 960960, 16380, 182, 1}};

/* All in float64: the coefficients span more digits than float32 has. */
struct work {
    const fl_matrices *job;
    int n;
    double *a, *powers[3], *u, *v, *spare;
};

static size_t room(int n) { return ((size_t)n * (size_t)n * sizeof(double) + 63) & ~(size_t)63; }

static void plan_exponential(fl_matrices *job) { job->bytes = 7 * room(job->n) + fl_matrices_room_of_ints(job->n); }

static double norm_1(const double *a, int n)
{
    double largest = 0;
    for (int c = 0; c < n; c++) {
        double sum = 0;
        for (int r = 0; r < n; r++) sum += fabs(a[(int64_t)c * n + r]);
        if (!(sum <= largest)) largest = sum;
    }
    return largest;
}

static void multiply(const struct work *w, double *out, const double *x, const double *y)
{
    static const double one = 1, zero = 0;
    const fl_lapack *f64 = NULL;
    if (fl_lapack_open(&f64, w->job->name, FL_FLOAT64) != FL_OK) return; /* it is open */
    f64->gemm("N", "N", &w->n, &w->n, &w->n, &one, x, &w->n, y, &w->n, &zero, out, &w->n, 1, 1);
}

/* out = c[0] I + c[2] A^2 + c[4] A^4 + ..., of so many of the powers of A^2 that there are */
static void combine(const struct work *w, double *out, const double *c, int powers)
{
    int64_t count = (int64_t)w->n * w->n;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int p = 0; p < powers; p++) sum += c[2 * p + 2] * w->powers[p][i];
        out[i] = sum;
    }
    for (int i = 0; i < w->n; i++) out[(int64_t)i * w->n + i] += c[0];
}

static void add_to(double *out, const double *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] += x[i];
}

/* u: the odd part of the numerator, v: the even one. A^8 of degree 9 is made where A^6 is no longer needed alone. */
static void small_degree(const struct work *w, int which)
{
    const double *c = coefficients[which];
    int powers = degrees[which] / 2, most = powers < 3 ? powers : 3;
    int64_t count = (int64_t)w->n * w->n;
    combine(w, w->spare, c + 1, most);
    combine(w, w->v, c, most);
    if (powers == 4) {
        multiply(w, w->u, w->powers[1], w->powers[1]);
        for (int64_t i = 0; i < count; i++) {
            w->spare[i] += c[9] * w->u[i];
            w->v[i] += c[8] * w->u[i];
        }
    }
    multiply(w, w->u, w->a, w->spare);
}

/* A^6 (b13 A^6 + b11 A^4 + b9 A^2) + b7 A^6 + b5 A^4 + b3 A^2 + b1, and so on. */
static void degree_13(const struct work *w)
{
    const double *c = coefficients[LAST];
    double high[8] = {0};
    int64_t count = (int64_t)w->n * w->n;
    for (int odd = 1; odd >= 0; odd--) {
        for (int p = 1; p <= 3; p++) high[2 * p] = c[2 * p + 6 + odd];
        combine(w, w->v, high, 3);
        multiply(w, w->spare, w->powers[2], w->v);
        combine(w, w->v, c + odd, 3);
        add_to(w->v, w->spare, count);
        if (odd) {
            memcpy(w->spare, w->v, (size_t)count * sizeof(double));
            multiply(w, w->u, w->a, w->spare);
        }
    }
}

/* (v - u)^-1 (v + u) into a. */
static void divide(const struct work *w, int *pivots)
{
    const fl_lapack *f64 = NULL;
    int info, n = w->n;
    if (fl_lapack_open(&f64, w->job->name, FL_FLOAT64) != FL_OK) return;
    for (int64_t i = 0; i < (int64_t)n * n; i++) {
        w->spare[i] = w->v[i] - w->u[i];
        w->a[i] = w->v[i] + w->u[i];
    }
    f64->getrf(&n, &n, w->spare, &n, pivots, &info);
    f64->getrs("N", &n, &n, w->spare, &n, pivots, w->a, &n, &info, 1);
}

static int squarings(double norm)
{
    int exponent;
    double fraction = frexp(norm / norms[LAST], &exponent);
    return exponent - (fraction == 0.5);
}

static int run_exponential(const fl_matrices *job, int64_t i, char *scratch)
{
    int n = job->n, which = 0, halvings = 0;
    int64_t count = (int64_t)n * n;
    struct work w = {.job = job, .n = n};
    double **all[] = {&w.a, &w.powers[0], &w.powers[1], &w.powers[2], &w.u, &w.v, &w.spare};
    const void *matrix = fl_matrices_in(job, 0, i, count);
    for (int k = 0; k < 7; k++) *all[k] = fl_matrices_take(&scratch, room(n));
    for (int64_t k = 0; k < count; k++) w.a[k] = fl_matrices_get(job, matrix, k);
    double norm = norm_1(w.a, n);
    bool finite = isfinite(norm);
    while (finite && which < LAST && norm > norms[which]) which++;
    if (finite && norm > norms[LAST]) halvings = squarings(norm);
    for (int64_t k = 0; halvings && k < count; k++) w.a[k] = ldexp(w.a[k], -halvings);
    for (int p = 0; finite && p < (degrees[which] / 2 < 3 ? degrees[which] / 2 : 3); p++)
        multiply(&w, w.powers[p], p ? w.powers[p - 1] : w.a, p ? w.powers[0] : w.a);
    if (finite && which < LAST) small_degree(&w, which);
    else if (finite) degree_13(&w);
    if (finite) divide(&w, (int *)scratch);
    for (int k = 0; k < halvings; k++) {
        multiply(&w, w.spare, w.a, w.a);
        memcpy(w.a, w.spare, (size_t)count * sizeof(double));
    }
    for (int64_t k = 0; k < count; k++)
        fl_matrices_set(job, fl_matrices_out(job, 0, i, count), k, finite ? w.a[k] : NAN);
    return 0;
}

static double exponential_operations(const fl_matrices *job) { return 20.0 * job->n * job->n * job->n; }
const fl_matrix_routine fl_matrix_exponential = {plan_exponential, run_exponential, exponential_operations};
