/*
** matrix_exp.c -- the exponential of a matrix: see matrices.h.
**
** Scaling and squaring with Pade approximants (N. J. Higham, "The scaling and squaring method for the matrix
** exponential revisited", SIAM J. Matrix Anal. Appl. 26, 2005): of the degree that the norm asks for, or of the highest
** one for A / 2^s, whose result is squared s times. exp(A^T) = exp(A)^T, so all is done on the transpose, by columns.
*/
#include "matrices.h"

#include <math.h>

enum { DEGREES = 5, LAST = DEGREES - 1 };

/* Up to this 1-norm an approximant of the degree is exact to the dtype's rounding; float32 needs none above 7. */
static const double norms_f32[] = {4.258730016922831e-1, 1.880152677804762e0, 3.925724783138660e0};
static const double norms_f64[DEGREES] = {1.495585217958292e-2, 2.539398330063230e-1, 9.504178996162932e-1,
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

/* The number of halvings that make an exponent smaller by this ratio. */
static int squarings(double ratio)
{
    int exponent;
    double fraction = frexp(ratio, &exponent);
    return exponent - (fraction == 0.5);
}

#define REAL float
#define EXP(name) FL_PASTE(name, f32)
#include "matrix_exp.inc"
#define REAL double
#define EXP(name) FL_PASTE(name, f64)
#include "matrix_exp.inc"

static void plan_exponential(fl_matrices *job)
{
    job->bytes = 7 * fl_matrices_room(job, (int64_t)job->n * job->n) + fl_matrices_room_of_ints(job->n);
}

static int run_exponential(const fl_matrices *job, int64_t i, char *scratch)
{
    return job->dtype == FL_FLOAT64 ? run_f64(job, i, scratch) : run_f32(job, i, scratch);
}

static double exponential_operations(const fl_matrices *job) { return 20.0 * job->n * job->n * job->n; }
const fl_matrix_routine fl_matrix_exponential = {plan_exponential, run_exponential, exponential_operations};
