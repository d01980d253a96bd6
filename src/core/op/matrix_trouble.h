/*
** matrix_trouble.h -- what is wrong with a matrix of a batch, in the same words whether LAPACK or cuSOLVER found it.
*/
#ifndef FL_MATRIX_TROUBLE_H
#define FL_MATRIX_TROUBLE_H

#include "view.h"

/* Codes beside those of the libraries, which are > 0. */
enum { FL_MATRIX_NOT_FINITE = -1, FL_MATRIX_COMPLEX = -2, FL_MATRIX_NO_MEMORY = -3 };

/* Texts that follow "the matrix" in a message; the code of the library is printed into them. */
#define FL_MATRIX_SINGULAR "is singular: pivot %d of its LU factors is 0"
#define FL_MATRIX_NOT_POSITIVE "is not positive-definite (its leading minor of order %d is not positive)"
#define FL_MATRIX_NO_EIGENVALUES "has no eigenvalues that the algorithm finds (error code %d)"
#define FL_MATRIX_NO_DECOMPOSITION "has no decomposition that the algorithm finds (error code %d)"
#define FL_MATRIX_NOT_FULL_RANK "does not have full rank (error code %d)"

/* The parts of the message beside matrix and code. Plain data: it may be copied as bytes. */
typedef struct fl_matrix_trouble {
    const char *name, *trouble; /* constants: the op as users know it, one of the texts above */
    int batch;                  /* axes */
    int64_t size[FL_MAX_NDIM - 2], start[FL_MAX_NDIM - 2], logical[FL_MAX_NDIM - 2];
} fl_matrix_trouble;

/* Of the matrices of the operand `a`. */
FL_EXPORT void fl_matrix_trouble_of(fl_matrix_trouble *out, const char *name, const char *trouble, const fl_view *a);

/* "linalg.inv: matrix 3 of the batch is singular: ..."; matrix: its number in this rank's part of the batch. */
FL_EXPORT void fl_matrix_trouble_text(char *text, size_t size, const fl_matrix_trouble *trouble, int64_t matrix,
                                      int code);

#endif
