/*
** einsum.c -- sums of products named by letters: a body in permute, reshape, matmul, mul, sum and diagonal.
**
** Operands are multiplied from left to right. Of two operands a letter that both have and that is needed later is a
** batch axis of the product; one that is needed no more is what a matrix product sums over; the letters that only one
** of them has are its rows or columns. The axes of "..." are labels like letters, counted from the last one, which
** broadcast.
*/
#include "op/slicing.h"
#include "op/views.h"
#include "expr.h"

#include <ctype.h>
#include <stdio.h>

enum {
    LETTERS = 52,
    LABELS = LETTERS + FL_MAX_NDIM,
    NO_ELLIPSIS = -1
};                        /* A-Z, a-z; the last axis of "..." is LETTERS */
enum { EINSUM_EQUATION }; /* the attribute of einsum */

/* The labels of a tensor's axes. */
struct labels {
    int count;
    int8_t at[FL_MAX_NDIM];
};

struct factor {
    fl_tensor *x; /* borrowed */
    struct labels axes;
};

static uint64_t mask_of(const struct labels *labels)
{
    uint64_t mask = 0;
    for (int i = 0; i < labels->count; i++) mask |= UINT64_C(1) << labels->at[i];
    return mask;
}

static bool has(uint64_t mask, int label) { return mask >> label & 1u; }
static void append(struct labels *labels, int label) { labels->at[labels->count++] = (int8_t)label; }

static int position_of(const struct labels *labels, int label)
{
    for (int i = 0; i < labels->count; i++)
        if (labels->at[i] == label) return i;
    return -1;
}

/* "letter j", "axis -1 of '...'" */
enum { LABEL_TEXT = 32 };
static const char *label_text(char *buffer, int label)
{
    if (label >= LETTERS) snprintf(buffer, LABEL_TEXT, "axis %d of '...'", LETTERS - 1 - label);
    else snprintf(buffer, LABEL_TEXT, "letter %c", label < 26 ? 'A' + label : 'a' + label - 26);
    return buffer;
}

/* ---- the equation ---- */

/* The term of one operand, or of the result, in the equation. */
struct term {
    const char *from, *to;
    int letters; /* number of them, "..." not counted */
    bool ellipsis;
};

/* Is there a "->" here? */
static bool is_arrow(const char *at) { return at[0] == '-' && at[1] == '>'; }

/* Reads up to a comma, an arrow or the end. what: "operand 1", "the result", for messages. */
static fl_status read_term(struct term *out, const char *at, const char *equation, const char *what)
{
    *out = (struct term){.from = at};
    for (; *at && *at != ',' && !is_arrow(at); at++) {
        if (*at == ' ') continue;
        if (isalpha((unsigned char)*at)) {
            out->letters++;
            continue;
        }
        if (*at != '.') return fl_fail(FL_ERR_VALUE, "einsum: '%c' in '%s' is not a letter", *at, equation);
        if (at[1] != '.' || at[2] != '.')
            return fl_fail(FL_ERR_VALUE, "einsum: '.' in '%s' is not part of '...'", equation);
        if (out->ellipsis) return fl_fail(FL_ERR_VALUE, "einsum: '...' occurs twice in %s", what);
        out->ellipsis = true;
        at += 2;
    }
    out->to = at;
    return FL_OK;
}

/* The labels of a term, with `extra` axes for "...". There is room for them. */
static struct labels term_labels(const struct term *term, int extra)
{
    struct labels l = {0};
    for (const char *p = term->from; p < term->to; p++) {
        if (isupper((unsigned char)*p)) append(&l, *p - 'A');
        else if (islower((unsigned char)*p)) append(&l, *p - 'a' + 26);
        else if (*p == '.') {
            for (int i = extra; i-- > 0;) append(&l, LETTERS + i);
            p += 2;
        }
    }
    return l;
}

/* The facts of all operands together. */
struct reading {
    int extra;         /* most axes that "..." stands for */
    int times[LABELS]; /* uses of each label */
    int64_t size[LABELS];
    int owner[LABELS]; /* operand that the size is from */
};

/* Sizes of one label agree, or one of them is 1. */
static fl_status note_label(struct reading *reading, int label, int64_t size, int operand)
{
    char text[LABEL_TEXT];
    if (reading->times[label]++ == 0 || reading->size[label] == 1) {
        reading->size[label] = size;
        reading->owner[label] = operand;
        return FL_OK;
    }
    if (size == 1 || size == reading->size[label]) return FL_OK;
    return fl_fail(FL_ERR_SHAPE, "einsum: %s is %lld in operand %d and %lld in operand %d", label_text(text, label),
                   (long long)reading->size[label], reading->owner[label], (long long)size, operand);
}

/* A letter that one operand has twice: its diagonal, which needs equal sizes. */
static fl_status note_twice(const struct labels *labels, const fl_shape *shape, int operand)
{
    char text[LABEL_TEXT];
    for (int i = 0; i < labels->count; i++) {
        int first = position_of(labels, labels->at[i]);
        if (shape->dims[first] == shape->dims[i]) continue;
        return fl_fail(FL_ERR_SHAPE, "einsum: %s is %lld and %lld in operand %d", label_text(text, labels->at[i]),
                       (long long)shape->dims[first], (long long)shape->dims[i], operand);
    }
    return FL_OK;
}

static fl_status read_operand(struct factor *out, struct reading *reading, const struct term *term, fl_tensor *x,
                              int operand)
{
    const fl_shape *shape = &x->meta->shape;
    char text[FL_SHAPE_TEXT];
    int extra = shape->ndim - term->letters;
    if (extra < 0 || (extra > 0 && !term->ellipsis))
        return fl_fail(FL_ERR_SHAPE, "einsum: '%.*s' names %d axes, but operand %d is %s", (int)(term->to - term->from),
                       term->from, term->letters, operand, fl_shape_text(text, shape));
    *out = (struct factor){x, term_labels(term, extra)};
    if (extra > reading->extra) reading->extra = extra;
    FL_TRY(note_twice(&out->axes, shape, operand));
    for (int i = 0; i < out->axes.count; i++) FL_TRY(note_label(reading, out->axes.at[i], shape->dims[i], operand));
    return FL_OK;
}

/* Without an arrow: the axes of "...", then the letters that come once, upper case before lower case. */
static struct labels implicit_result(const struct reading *reading)
{
    struct labels l = {0};
    for (int i = reading->extra; i-- > 0;) append(&l, LETTERS + i);
    for (int i = 0; i < LETTERS && l.count < FL_MAX_NDIM; i++)
        if (reading->times[i] == 1) append(&l, i);
    return l;
}

static fl_status too_many_axes(int count, const char *what)
{
    return fl_fail(FL_ERR_SHAPE, "einsum: %s has %d axes; a tensor has at most %d", what, count, FL_MAX_NDIM);
}

static int implicit_count(const struct reading *reading)
{
    int count = reading->extra;
    for (int i = 0; i < LETTERS; i++) count += reading->times[i] == 1;
    return count;
}

static fl_status read_result(struct labels *out, const struct reading *reading, const char *arrow, const char *equation)
{
    char text[LABEL_TEXT];
    struct term t = {.letters = implicit_count(reading)};
    if (*arrow) FL_TRY(read_term(&t, arrow + 2, equation, "the result"));
    if (*arrow && *t.to) return fl_fail(FL_ERR_VALUE, "einsum: '%s' continues after the result", equation);
    int count = t.letters + (t.ellipsis ? reading->extra : 0);
    if (count > FL_MAX_NDIM) return too_many_axes(count, "the result");
    *out = *arrow ? term_labels(&t, reading->extra) : implicit_result(reading);
    for (int i = 0; i < out->count; i++) {
        if (reading->times[out->at[i]] == 0)
            return fl_fail(FL_ERR_VALUE, "einsum: %s of the result is in no operand", label_text(text, out->at[i]));
        if (position_of(out, out->at[i]) != i)
            return fl_fail(FL_ERR_VALUE, "einsum: %s occurs twice in the result", label_text(text, out->at[i]));
    }
    return FL_OK;
}

static int count_terms(const char *equation)
{
    int count = 1;
    for (const char *p = equation; *p && !is_arrow(p); p++) count += *p == ',';
    return count;
}

/* factors: one per operand. */
static fl_status read_equation(struct factor *factors, struct labels *result, const char *equation,
                               const fl_operand *in, int nin)
{
    struct reading r = {0};
    const char *p = equation;
    int terms = count_terms(equation);
    if (terms != nin) return fl_fail(FL_ERR_VALUE, "einsum: '%s' describes %d operands, got %d", equation, terms, nin);
    for (int i = 0; i < nin; i++) {
        struct term t;
        char what[LABEL_TEXT];
        snprintf(what, sizeof what, "operand %d", i);
        FL_TRY(read_term(&t, p, equation, what));
        FL_TRY(read_operand(&factors[i], &r, &t, in[i].tensor, i));
        p = t.to + (*t.to == ',');
    }
    return read_result(result, &r, p, equation);
}

/* ---- one operand ---- */

/* The labels but for those at the axes of a mask. */
static struct labels without(const struct labels *labels, uint32_t axes)
{
    struct labels rest = {0};
    for (int i = 0; i < labels->count; i++)
        if (!(axes >> i & 1u)) append(&rest, labels->at[i]);
    return rest;
}

/* Diagonals of the axes that have one letter. */
static struct factor without_repeats(fl_expr *expr, struct factor factor)
{
    for (int i = 0; i < factor.axes.count; i++) {
        int first = position_of(&factor.axes, factor.axes.at[i]), label = factor.axes.at[i];
        if (first == i) continue;
        fl_attrs a;
        fl_attrs_init(&a, FL_OP_REF(diagonal));
        fl_attr_set(&a, FL_DIAGONAL_AXIS0, first);
        fl_attr_set(&a, FL_DIAGONAL_AXIS1, i);
        factor.x = EXPR_CALL(expr, &a, diagonal, fl_of(factor.x));
        factor.axes = without(&factor.axes, 1u << first | 1u << i);
        append(&factor.axes, label); /* the diagonal is the last axis */
        i = -1;
    }
    return factor;
}

/* Sums over the labels that are not in keep. */
static struct factor summed(fl_expr *expr, struct factor factor, uint64_t keep)
{
    uint32_t axes = 0;
    for (int i = 0; i < factor.axes.count; i++)
        if (!has(keep, factor.axes.at[i])) axes |= 1u << i;
    if (!axes) return factor;
    return (struct factor){expr_sum(expr, factor.x, axes, false), without(&factor.axes, axes)};
}

static int64_t size_at(const struct factor *factor, int label)
{
    return factor->x->meta->shape.dims[position_of(&factor->axes, label)];
}

/* The factor without the axes of size 1 that broadcast to larger ones of `other`. */
static struct factor without_broadcast(fl_expr *expr, struct factor factor, const struct factor *other)
{
    uint32_t axes = 0;
    fl_shape shape;
    if (expr->status != FL_OK) return factor;
    for (int i = 0; i < factor.axes.count; i++) {
        bool shared = position_of(&other->axes, factor.axes.at[i]) >= 0;
        if (shared && factor.x->meta->shape.dims[i] == 1 && size_at(other, factor.axes.at[i]) != 1) axes |= 1u << i;
    }
    if (!axes) return factor;
    fl_reduce_shape(&shape, &factor.x->meta->shape, axes, false);
    return (struct factor){expr_reshape(expr, factor.x, &shape), without(&factor.axes, axes)};
}

static fl_tensor *permuted(fl_expr *expr, const struct factor *factor, const struct labels *order)
{
    int64_t axes[FL_MAX_NDIM];
    fl_attrs a;
    for (int i = 0; i < order->count; i++) axes[i] = position_of(&factor->axes, order->at[i]);
    fl_attrs_init(&a, FL_OP_REF(permute));
    fl_attr_set_list(&a, FL_PERMUTE_AXES, axes, order->count);
    return EXPR_CALL(expr, &a, permute, fl_of(factor->x));
}

/* ---- two operands ---- */

/* Labels of a pair x, y by the part they play. */
struct roles {
    struct labels batch, rows, columns, inner;
};

static struct roles roles_of(const struct factor *x, const struct factor *y, uint64_t keep)
{
    struct roles r = {0};
    uint64_t in_x = mask_of(&x->axes), in_y = mask_of(&y->axes);
    for (int i = 0; i < x->axes.count; i++) {
        int label = x->axes.at[i];
        append(!has(in_y, label) ? &r.rows : has(keep, label) ? &r.batch : &r.inner, label);
    }
    for (int i = 0; i < y->axes.count; i++)
        if (!has(in_x, y->axes.at[i])) append(&r.columns, y->axes.at[i]);
    return r;
}

/* The two lists one after the other. */
static struct labels joined(const struct labels *x, const struct labels *y)
{
    struct labels l = *x;
    for (int i = 0; i < y->count; i++) append(&l, y->at[i]);
    return l;
}

static int64_t numel_at(const struct factor *factor, const struct labels *labels)
{
    int64_t n = 1;
    for (int i = 0; i < labels->count; i++) n *= size_at(factor, labels->at[i]);
    return n;
}

static void append_sizes(fl_shape *shape, const struct factor *factor, const struct labels *labels)
{
    for (int i = 0; i < labels->count; i++) shape->dims[shape->ndim++] = size_at(factor, labels->at[i]);
}

/* The factor as matrices [batch..., one, two]. */
static fl_tensor *matrices(fl_expr *expr, const struct factor *factor, const struct labels *batch,
                           const struct labels *one, const struct labels *two)
{
    fl_shape shape = {0};
    struct labels sides = joined(one, two), order = joined(batch, &sides);
    append_sizes(&shape, factor, batch);
    shape.dims[shape.ndim++] = numel_at(factor, one);
    shape.dims[shape.ndim++] = numel_at(factor, two);
    return expr_reshape(expr, permuted(expr, factor, &order), &shape);
}

/* The factor as [batch..., rows..., columns...], those it does not have of size 1. */
static fl_tensor *spread(fl_expr *expr, const struct factor *factor, const struct labels *all)
{
    fl_shape shape = {all->count, {0}};
    struct labels own = {0};
    for (int i = 0; i < all->count; i++) {
        bool there = position_of(&factor->axes, all->at[i]) >= 0;
        shape.dims[i] = there ? size_at(factor, all->at[i]) : 1;
        if (there) append(&own, all->at[i]);
    }
    return expr_reshape(expr, permuted(expr, factor, &own), &shape);
}

/* The product of two operands over the labels of keep. */
static struct factor product_of(fl_expr *expr, struct factor x, struct factor y, uint64_t keep)
{
    x = without_broadcast(expr, x, &y);
    y = without_broadcast(expr, y, &x);
    x = summed(expr, x, keep | mask_of(&y.axes));
    y = summed(expr, y, keep | mask_of(&x.axes));
    if (expr->status != FL_OK) return (struct factor){0};
    struct roles r = roles_of(&x, &y, keep);
    int count = r.batch.count + r.rows.count + r.columns.count;
    bool multiplies = r.inner.count == 0;
    if (count > FL_MAX_NDIM || (!multiplies && r.batch.count + 2 > FL_MAX_NDIM)) {
        expr->status = too_many_axes(count > FL_MAX_NDIM ? count : r.batch.count + 2, "a product of operands");
        return (struct factor){0};
    }
    struct labels sides = joined(&r.rows, &r.columns), all = joined(&r.batch, &sides);
    if (multiplies) return (struct factor){expr_mul(expr, spread(expr, &x, &all), spread(expr, &y, &all)), all};
    fl_shape shape = {0};
    append_sizes(&shape, &x, &r.batch);
    append_sizes(&shape, &x, &r.rows);
    append_sizes(&shape, &y, &r.columns);
    fl_tensor *p = EXPR_CALL(expr, NULL, matmul, fl_of(matrices(expr, &x, &r.batch, &r.rows, &r.inner)),
                             fl_of(matrices(expr, &y, &r.batch, &r.inner, &r.columns)));
    return (struct factor){expr_reshape(expr, p, &shape), all};
}

/* ---- all ---- */

/* Labels that the result or an operand from `next` on has. */
static uint64_t needed(const struct labels *result, const struct factor *factors, int next, int count)
{
    uint64_t mask = mask_of(result);
    for (int i = next; i < count; i++) mask |= mask_of(&factors[i].axes);
    return mask;
}

/* Takes the product of the operands so far into *sum, whose tensor it owns. */
static fl_status multiply_by(struct factor *sum, const struct factor *factors, int i, int count,
                             const struct labels *result)
{
    fl_expr c = {0};
    uint64_t keep = needed(result, factors, i + 1, count);
    struct factor x = without_repeats(&c, factors[i]);
    struct factor next = sum->x ? product_of(&c, *sum, x, keep) : summed(&c, x, keep);
    fl_tensor *owned = c.status == FL_OK ? fl_tensor_ref(next.x) : NULL;
    FL_TRY(fl_expr_end(&c));
    if (sum->x) fl_tensor_unref(sum->x);
    *sum = (struct factor){owned, next.axes};
    return FL_OK;
}

static fl_status contract(fl_tensor **out, const struct factor *factors, int count, const struct labels *result)
{
    struct factor sum = {0};
    fl_expr c = {0};
    for (int i = 0; i < count && c.status == FL_OK; i++) c.status = multiply_by(&sum, factors, i, count, result);
    if (c.status == FL_OK) *out = fl_expr_take(&c, permuted(&c, &sum, result));
    if (sum.x) fl_tensor_unref(sum.x);
    return fl_expr_end(&c);
}

static fl_status body_einsum(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    struct factor factors[FL_MAX_PARAMS];
    struct labels result;
    if (nin == 0) return fl_fail(FL_ERR_VALUE, "einsum: takes at least one tensor");
    if (nin > FL_MAX_PARAMS)
        return fl_fail(FL_ERR_VALUE, "einsum: takes at most %d tensors, got %d", FL_MAX_PARAMS, nin);
    FL_TRY(read_equation(factors, &result, attrs->at[EINSUM_EQUATION].text, in, nin));
    return contract(out, factors, nin, &result);
}

static const char *const einsum_samples[] = {"'ij,jk->ik', flow.randn(3, 4), flow.randn(4, 2)",
                                             "'bij,bjk', flow.randn(2, 3, 4), flow.randn(2, 4, 2)",
                                             "'ii->i', flow.randn(3, 3)",
                                             "'i,j->ij', flow.randn(3), flow.randn(4)",
                                             "'bhqd,bhkd->bhqk', flow.randn(2, 2, 3, 4), flow.randn(2, 2, 5, 4)",
                                             "'a,ab,bcc->c', flow.randn(2), flow.randn(2, 3), flow.randn(3, 4, 4)",
                                             "'...i,ij->...j', flow.randn(2, 3, 4), flow.randn(4, 2)",
                                             "'ijk->', flow.randn(2, 3, 4)",
                                             "'ij,kj->', flow.randn(2, 3), flow.randn(4, 3)",
                                             "'abc,cbd->da', flow.randn(2, 3, 4), flow.randn(4, 3, 2)",
                                             NULL};
FL_OP(einsum) = {
    .name = "einsum",
    .sig = "einsum(equation: text, xs...)",
    .nout = 1,
    .flags = FL_OP_LOW | FL_OP_FUNCTION_ONLY,
    .doc = "Products of tensors, summed over the letters that are not in the result: einsum(\"bij,bjk->bik\", x, y); "
           "operands are multiplied from left to right.",
    .body = body_einsum,
    .samples = einsum_samples,
};
