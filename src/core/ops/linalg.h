/*
** linalg.h -- what the ops of flow.linalg share: matrices as the last two axes, batches before them.
*/
#ifndef FL_LINALG_H
#define FL_LINALG_H

#include "cpu/matrices.h"
#include "cpu/stage.h"
#include "expr.h"

/* Of a matrix operand: float32 or float64, at least two axes. Else an error that names it. */
fl_status fl_linalg_require(const fl_infer *infer, int operand);
/* And as many rows as columns. */
fl_status fl_linalg_require_square(const fl_infer *infer, int operand);
/* The same of a tensor that a body was called with. */
fl_status fl_linalg_check(const char *who, const char *name, const fl_tensor *x, bool square);

/* A and B have one dtype. */
fl_status fl_linalg_same_dtype(const char *who, const fl_tensor *a, const fl_tensor *b);
/* The shape that the batches of two operands broadcast to. */
fl_status fl_linalg_batches(fl_shape *batch, const char *who, const fl_shape *a, const fl_shape *b);

/* Rows, columns of the last two axes; the shape of the batch. */
static inline int64_t fl_linalg_rows(const fl_shape *shape) { return shape->dims[shape->ndim - 2]; }
static inline int64_t fl_linalg_columns(const fl_shape *shape) { return shape->dims[shape->ndim - 1]; }
fl_shape fl_linalg_batch(const fl_shape *shape);
/* The batch with one or two more axes; -1: not there. */
fl_shape fl_linalg_shape(const fl_shape *batch, int64_t rows, int64_t columns);

/* Of a square matrix another one like it; a second result, where there is one: a number for each matrix. */
fl_status fl_linalg_infer_square(fl_infer *infer);

/* Batches may be split, matrices not. */
void fl_linalg_sbp(fl_sigs *sigs);

/* A job on the operands of a kernel: matrices of in[0], k columns of another operand. */
fl_matrices fl_linalg_job(const fl_kernel *kernel, const char *name, int64_t k);
/* Runs it; `trouble`: the text for a matrix that LAPACK refuses, as "is singular (pivot %d is 0)". */
fl_status fl_linalg_run(fl_kernel *kernel, fl_matrices *job, const fl_matrix_routine *routine, const char *trouble);

/* Attributes: of linalg_solve_square; of linalg_triangles. */
enum { FL_SQUARE_TRANSPOSED };
enum { FL_TRIANGLE_UPPER, FL_TRIANGLE_LEFT, FL_TRIANGLE_UNIT };

/* ---- expressions ---- */

fl_tensor *expr_transposed(fl_expr *expr, fl_tensor *x);
/* The triangle from a diagonal on: below with `lower`, above without. */
fl_tensor *expr_triangle(fl_expr *expr, fl_tensor *x, bool lower, int64_t diagonal);
/* x [..., n] on the diagonal of matrices. */
fl_tensor *expr_diagonal(fl_expr *expr, fl_tensor *x);
fl_tensor *expr_diagonal_of(fl_expr *expr, fl_tensor *x);
/* x [..., n] as a row [..., 1, n], as a column [..., n, 1]. */
fl_tensor *expr_row(fl_expr *expr, fl_tensor *x);
fl_tensor *expr_column(fl_expr *expr, fl_tensor *x);
/* x with the batch axes `batch`. */
fl_tensor *expr_batched(fl_expr *expr, fl_tensor *x, const fl_shape *batch);
/* Solutions X of A X = B, of A^T X = B; of triangular A, also of X A = B. */
fl_tensor *expr_solve(fl_expr *expr, fl_tensor *a, fl_tensor *b, bool transposed);
fl_tensor *expr_solve_triangular(fl_expr *expr, fl_tensor *a, fl_tensor *b, bool upper, bool left, bool unit);
/* The gradient of A from that of its singular values: U diag(dS) V^T, with factors made now. */
fl_tensor *expr_values_gradient(fl_expr *expr, fl_tensor *a, fl_tensor *ds);

#endif
