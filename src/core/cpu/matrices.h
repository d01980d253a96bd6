/*
** matrices.h -- factorisations and solutions of many small or few large matrices through LAPACK.
**
** A routine works on one matrix of a batch; all matrices of an operand lie row by row, one behind the other. The team
** shares a batch out, a matrix is computed by one thread. LAPACK's matrices lie by columns: where a routine can work on
** the transpose in place of the matrix it does, so that nothing is copied twice.
*/
#ifndef FL_MATRICES_H
#define FL_MATRICES_H

#include "lapack.h"
#include "op/matrix_trouble.h"

enum { FL_MATRICES_OPERANDS = 4 };

typedef struct fl_matrices fl_matrices;

typedef struct fl_matrix_routine {
    void (*plan)(fl_matrices *job);                               /* sets `bytes`, and what LAPACK asks for */
    int (*run)(const fl_matrices *job, int64_t i, char *scratch); /* 0, or what is wrong: a code */
    double (*operations)(const fl_matrices *job);                 /* of one matrix, roughly */
} fl_matrix_routine;

struct fl_matrices {
    const char *name; /* for messages */
    fl_dtype dtype;   /* float32 or float64 */
    int64_t count;
    int m, n, k; /* the matrices are m x n; k: columns of a second operand or result */
    const void *in[FL_MATRICES_OPERANDS];
    void *out[FL_MATRICES_OPERANDS];
    int choice; /* of the routine: the driver, the half, the amount that is returned */
    bool left, unit, unchecked;
    double atol, rtol;
    const fl_lapack *lapack; /* set by fl_matrices_run, and what follows */
    size_t item, bytes;      /* of an element; of scratch memory per thread */
    int lwork, liwork;
    int64_t failed; /* the first matrix with something wrong; count: none */
    int info;       /* its error */
};

/* Runs the routine over the batch. FL_OK also where a matrix failed. Errors: no LAPACK, no memory, too large. */
fl_status fl_matrices_run(fl_matrices *job, const fl_matrix_routine *routine);

/* ---- factor.c ---- */
/* in A [n, n]; out[0] its determinant */
extern const fl_matrix_routine fl_matrix_det;
/* in A [n, n]; out[0] the sign of its determinant, out[1] the logarithm of its absolute value */
extern const fl_matrix_routine fl_matrix_slogdet;
/* in A [n, n]; out[0] its inverse; out[1], where there is one, int64: 0, or the pivot that is 0. Fails on that, if not
** `unchecked`. */
extern const fl_matrix_routine fl_matrix_inverse;
/* in A [n, n]; out[0] the determinant times the transposed inverse, which a singular A has too */
extern const fl_matrix_routine fl_matrix_cofactor;
/* in A [n, n], B [n, k]; out[0] X with A X = B; choice 1: with A^T X = B. Fails on a pivot of 0. */
extern const fl_matrix_routine fl_matrix_solve;
/* in A [n, n], of which the lower half is read, with choice 1 the upper; out[0] its Cholesky factor in that half; with
** `unchecked` out[1] as fl_matrix_inverse. Fails where a leading minor is not positive. */
extern const fl_matrix_routine fl_matrix_cholesky;
/* in A [n, n], lower, with choice 1 upper; B [m, n]: X A = B, with `left` B [n, m]: A X = B; unit: ones on the
** diagonal */
extern const fl_matrix_routine fl_matrix_triangular;
/* in A [m, n]; out[0] Q [m, k], with choice 1 nothing; out[1] R [k, n] */
extern const fl_matrix_routine fl_matrix_qr;
/* in A [m, n]; out[0] the factors that LAPACK's geqrf leaves of it [m, n], out[1] tau [min(m, n)] */
extern const fl_matrix_routine fl_matrix_reflections;

/* ---- lu.c ---- */
/* in A [m, n]; out[0] its factors [m, n], out[1] int64 the order [m] of its rows in them, out[2] int64 the
** exchanges [k] that lead there, from 1, out[3] int64 the first pivot of U that is 0, or 0 */
extern const fl_matrix_routine fl_matrix_lu;

/* ---- ldl.c ---- */
/* in A [n, n], of which the lower half is read; out[0] its factors [n, n] as sytrf packs them, out[1] int64 the
** exchanges [n], from 1, twice their negative where D has a block of two rows; out[2] int64 the first block of D that
** is 0, or 0 */
extern const fl_matrix_routine fl_matrix_ldl;
/* in such factors [n, n], int64 exchanges [n], B [n, k]; out[0] X with A X = B. Fails on exchanges that are none. */
extern const fl_matrix_routine fl_matrix_ldl_solve;

/* ---- spectral.c ---- */
/* in A [m, n]; out[0] U [m, m], out[1] S, out[2] V^T [n, n]; choice 1: U [m, k], V^T [k, n] with k = min(m, n);
** choice 2: out[0] is S */
extern const fl_matrix_routine fl_matrix_svd;
/* in A [n, n], of which the lower half is read, with choice 1 the upper; out[0] values, out[1] vectors or NULL */
extern const fl_matrix_routine fl_matrix_eigh;
/* in A [n, n]; out[0] values, out[1] vectors or NULL; fails where a value is complex */
extern const fl_matrix_routine fl_matrix_eig;
/* in A [m, n]; out[0] its pseudoinverse: singular values up to max(atol, rtol * the largest) are taken for 0 */
extern const fl_matrix_routine fl_matrix_pinv;
/* in A [m, n], B [m, k]; out[0] X [n, k], out[1] squared residuals [k], out[2] int64 rank, out[3] singular values or
** NULL; choice: fl_lstsq_driver */
extern const fl_matrix_routine fl_matrix_lstsq;
typedef enum fl_lstsq_driver { FL_LSTSQ_GELS, FL_LSTSQ_GELSY, FL_LSTSQ_GELSD, FL_LSTSQ_GELSS } fl_lstsq_driver;

/* ---- matrix_exp.c ---- */
/* in A [n, n]; out[0] its exponential */
extern const fl_matrix_routine fl_matrix_exponential;

/* ---- for routines ---- */

/* The next `bytes` of scratch memory, aligned. */
static inline void *fl_matrices_take(char **scratch, size_t bytes)
{
    void *taken = *scratch;
    *scratch += (bytes + 63) & ~(size_t)63;
    return taken;
}

/* Room that fl_matrices_take needs for so many elements. */
static inline size_t fl_matrices_room(const fl_matrices *job, int64_t elements)
{
    return ((size_t)elements * job->item + 63) & ~(size_t)63;
}
static inline size_t fl_matrices_room_of_ints(int64_t count)
{
    return ((size_t)count * sizeof(int) + 63) & ~(size_t)63;
}

/* Matrix i of an operand whose matrices have so many elements. */
static inline const void *fl_matrices_in(const fl_matrices *job, int operand, int64_t i, int64_t elements)
{
    return (const char *)job->in[operand] + (size_t)(i * elements) * job->item;
}
static inline void *fl_matrices_out(const fl_matrices *job, int result, int64_t i, int64_t elements)
{
    return (char *)job->out[result] + (size_t)(i * elements) * job->item;
}

/* Element of an array of the job's dtype. */
static inline double fl_matrices_get(const fl_matrices *job, const void *array, int64_t at)
{
    return job->item == sizeof(double) ? ((const double *)array)[at] : (double)((const float *)array)[at];
}
static inline void fl_matrices_set(const fl_matrices *job, void *array, int64_t at, double value)
{
    if (job->item == sizeof(double)) ((double *)array)[at] = value;
    else ((float *)array)[at] = (float)value;
}

/* Copies so many elements; of none there may be no array. */
static inline void fl_matrices_copy(const fl_matrices *job, void *out, const void *in, int64_t elements)
{
    if (elements > 0) memcpy(out, in, (size_t)elements * job->item);
}

/* Zeros. */
static inline void fl_matrices_clear(const fl_matrices *job, void *out, int64_t elements)
{
    if (elements > 0) memset(out, 0, (size_t)elements * job->item);
}

/* out [columns, rows] = in [rows, columns] transposed; in's rows are `step` elements apart, out's `out_step`. */
void fl_matrices_transpose(const fl_matrices *job, void *out, int out_step, const void *in, int step, int rows,
                           int columns);

/* No element is NaN or infinite. */
bool fl_matrices_finite(const fl_matrices *job, const void *array, int64_t elements);

/* Addresses of 1 and 0 in the job's dtype. */
const void *fl_matrices_one(const fl_matrices *job);
const void *fl_matrices_zero(const fl_matrices *job);

#endif
