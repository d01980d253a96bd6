/*
** linalg.c -- what the ops of flow.linalg share: see linalg.h.
*/
#include "autograd/autograd.h"
#include "linalg.h"
#include "op/create.h"
#include "op/slicing.h"
#include "op/views.h"

#include <limits.h>

/* LAPACK counts in 32 bits, and asks for four matrices of scratch memory. */
enum { MOST_ROWS = 23170 };

/* ---- operands ---- */

static fl_status require(const char *who, const char *name, fl_dtype given, const fl_shape *shape, bool square)
{
    char text[FL_SHAPE_TEXT];
    const char *dtype = fl_dtype_name(given);
    fl_shape_text(text, shape);
    if (given != FL_FLOAT32 && given != FL_FLOAT64)
        return fl_fail(FL_ERR_DTYPE, "%s: takes float32 or float64, %s is %s%s; write %s:to(\"float32\")", who, name,
                       dtype, text, name);
    if (shape->ndim < 2)
        return fl_fail(FL_ERR_SHAPE, "%s: takes matrices [..., m, n], %s is %s%s", who, name, dtype, text);
    if (square && fl_linalg_rows(shape) != fl_linalg_columns(shape))
        return fl_fail(FL_ERR_SHAPE, "%s: takes square matrices [..., n, n], %s is %s%s", who, name, dtype, text);
    return FL_OK;
}

fl_status fl_linalg_check(const char *who, const char *name, const fl_tensor *x, bool square)
{
    return require(who, name, x->meta->dtype, &x->meta->shape, square);
}

static const char *const names[] = {"A", "B", "C"};

fl_status fl_linalg_require(const fl_infer *infer, int operand)
{
    return require(infer->name, names[operand], infer->in[operand].dtype, &infer->in[operand].shape, false);
}
fl_status fl_linalg_require_square(const fl_infer *infer, int operand)
{
    return require(infer->name, names[operand], infer->in[operand].dtype, &infer->in[operand].shape, true);
}

fl_shape fl_linalg_batch(const fl_shape *shape)
{
    fl_shape batch = *shape;
    batch.ndim -= 2;
    batch.dims[batch.ndim] = batch.dims[batch.ndim + 1] = 0;
    return batch;
}

fl_status fl_linalg_infer_square(fl_infer *infer)
{
    FL_TRY(fl_linalg_require_square(infer, 0));
    infer->out[0] = infer->in[0];
    if (infer->nout == 2) infer->out[1] = (fl_spec){FL_TENSOR, FL_INT64, fl_linalg_batch(&infer->in[0].shape)};
    return FL_OK;
}

fl_shape fl_linalg_shape(const fl_shape *batch, int64_t rows, int64_t columns)
{
    fl_shape shape = *batch;
    if (rows >= 0) shape.dims[shape.ndim++] = rows;
    if (columns >= 0) shape.dims[shape.ndim++] = columns;
    return shape;
}

void fl_linalg_sbp(fl_sigs *sigs) { fl_sbp_except(sigs, 3u << (sigs->in[0].shape.ndim - 2)); }

/* ---- kernels ---- */

fl_matrices fl_linalg_job(const fl_kernel *kernel, const char *name, int64_t k)
{
    const fl_view *a = &kernel->in[0];
    fl_matrices job = {.name = name, .count = 1};
    for (int i = 0; i < a->ndim - 2; i++) job.count *= a->size[i];
    int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
    job.m = m > INT_MAX ? -1 : (int)m;
    job.n = n > INT_MAX ? -1 : (int)n;
    job.k = k > INT_MAX ? -1 : (int)k;
    return job;
}

static fl_status fail_matrix(const fl_kernel *kernel, const fl_matrices *job, const char *trouble)
{
    char text[256];
    fl_matrix_trouble context;
    fl_matrix_trouble_of(&context, job->name, trouble, &kernel->in[0]);
    fl_matrix_trouble_text(text, sizeof text, &context, job->failed, job->info);
    return fl_fail(FL_ERR_VALUE, "%s", text);
}

fl_status fl_linalg_run(fl_kernel *kernel, fl_matrices *job, const fl_matrix_routine *routine, const char *trouble)
{
    fl_stage s;
    int64_t elements = 0;
    for (int i = 0; i < kernel->nout; i++) elements += kernel->out[i].numel;
    if (elements == 0) return FL_OK;
    if (job->m < 0 || job->n < 0 || job->k < 0 || (job->m > MOST_ROWS && job->n > MOST_ROWS))
        return fl_fail(FL_ERR_VALUE, "%s: LAPACK takes matrices of at most %d rows or columns", job->name, MOST_ROWS);
    FL_TRY(fl_stage_open(&s, kernel, 0));
    job->dtype = s.dtype;
    for (int i = 0; i < kernel->nin; i++) job->in[i] = s.in[i];
    for (int i = 0; i < kernel->nout; i++) job->out[i] = s.out[i];
    FL_TRY(fl_matrices_run(job, routine));
    if (job->failed < job->count) return fail_matrix(kernel, job, trouble);
    return fl_stage_close(&s);
}

/* ---- expressions ---- */

fl_tensor *expr_transposed(fl_expr *expr, fl_tensor *x)
{
    fl_attrs a;
    fl_attrs_init(&a, FL_OP_REF(transpose));
    fl_attr_set(&a, FL_TRANSPOSE_AXIS0, -2);
    fl_attr_set(&a, FL_TRANSPOSE_AXIS1, -1);
    return EXPR_CALL(expr, &a, transpose, fl_of(x));
}

fl_tensor *expr_triangle(fl_expr *expr, fl_tensor *x, bool lower, int64_t diagonal)
{
    fl_attrs a;
    const fl_op *op = lower ? FL_OP_REF(tril) : FL_OP_REF(triu);
    fl_attrs_init(&a, op);
    fl_attr_set(&a, FL_TRIANGLE_DIAGONAL, diagonal);
    return fl_expr_call(expr, op, (const fl_operand[]){fl_of(x)}, 1, &a);
}

/* The last two axes, as attributes of diagonal and its gradient. */
static void last_axes(fl_attrs *attrs, const fl_op *op, int ndim)
{
    fl_attrs_init(attrs, op);
    fl_attr_set(attrs, FL_DIAGONAL_OFFSET, 0);
    fl_attr_set(attrs, FL_DIAGONAL_AXIS0, ndim - 2);
    fl_attr_set(attrs, FL_DIAGONAL_AXIS1, ndim - 1);
}

fl_tensor *expr_diagonal(fl_expr *expr, fl_tensor *x)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    fl_shape shape = x->meta->shape;
    shape.dims[shape.ndim] = shape.dims[shape.ndim - 1];
    shape.ndim++;
    last_axes(&a, FL_OP_REF(diagonal_backward), shape.ndim);
    fl_attr_set_list(&a, FL_DIAGONAL_SIZES, shape.dims, shape.ndim);
    return EXPR_CALL(expr, &a, diagonal_backward, fl_of(x));
}

fl_tensor *expr_diagonal_of(fl_expr *expr, fl_tensor *x)
{
    fl_attrs a;
    if (expr->status != FL_OK) return NULL;
    last_axes(&a, FL_OP_REF(diagonal), x->meta->shape.ndim);
    return EXPR_CALL(expr, &a, diagonal, fl_of(x));
}

fl_tensor *expr_row(fl_expr *expr, fl_tensor *x)
{
    return expr->status == FL_OK ? expr_unsqueeze(expr, x, x->meta->shape.ndim - 1) : NULL;
}
fl_tensor *expr_column(fl_expr *expr, fl_tensor *x)
{
    return expr->status == FL_OK ? expr_unsqueeze(expr, x, x->meta->shape.ndim) : NULL;
}

fl_tensor *expr_batched(fl_expr *expr, fl_tensor *x, const fl_shape *batch)
{
    if (expr->status != FL_OK) return NULL;
    const fl_shape *own = &x->meta->shape;
    fl_shape shape = fl_linalg_shape(batch, fl_linalg_rows(own), fl_linalg_columns(own));
    return expr_expanded(expr, x, &shape);
}

fl_tensor *expr_solve(fl_expr *expr, fl_tensor *a, fl_tensor *b, bool transposed)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(linalg_solve_square));
    fl_attr_set(&attrs, FL_SQUARE_TRANSPOSED, transposed);
    return EXPR_CALL(expr, &attrs, linalg_solve_square, fl_of(a), fl_of(b));
}

fl_tensor *expr_solve_triangular(fl_expr *expr, fl_tensor *a, fl_tensor *b, bool upper, bool left, bool unit)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(linalg_triangles));
    fl_attr_set(&attrs, FL_TRIANGLE_UPPER, upper);
    fl_attr_set(&attrs, FL_TRIANGLE_LEFT, left);
    fl_attr_set(&attrs, FL_TRIANGLE_UNIT, unit);
    return EXPR_CALL(expr, &attrs, linalg_triangles, fl_of(a), fl_of(b));
}
