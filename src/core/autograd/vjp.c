/*
** vjp.c -- gradients written as expressions in ops: "g * y", "out * (g - sum(g * out, axis, true))".
**
** Each string is parsed once into a small tree. Evaluating it dispatches ops, so gradients run on every
** device, box themselves and can be differentiated again; the tape saves the values that a string mentions.
** `expand_to`, `reshape_to`, `sum_to` and `unreduce` take the shape of an input from its meta, so that the
** input itself need not be saved.
**
** Bodies of ops are such texts, too (fl_text_body): they may begin with lines `name = expression;`, each computed once,
** when it is first needed. `choose(c, a, b)` computes a where c is a number other than 0 or an operand that is given,
** else b; `ndim(x)` and `size(x, axis)` are numbers.
*/
#include "base/hash.h"
#include "cpu/elementwise.h"
#include "op/views.h"
#include "vjp_code.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the code of ops, read at first use ---- */

enum { TABLE_BITS = 10, TABLE_SIZE = 1 << TABLE_BITS };
static fl_vjp_code *table[TABLE_SIZE];

/* The slot of op's code in the table: the code, or the empty slot where it belongs. */
static fl_vjp_code **place_of(const fl_op *op)
{
    size_t at = fl_hash_slot((uintptr_t)op >> 5, TABLE_BITS);
    while (table[at] && table[at]->op != op) at = (at + 1) % TABLE_SIZE;
    return &table[at];
}

static const fl_vjp_code *code_of(const fl_op *op)
{
    fl_vjp_code **place = place_of(op);
    if (FL_UNLIKELY(!*place) && fl_vjp_parse(place, op) != FL_OK) {
        fprintf(stderr, "%s\n", fl_message());
        abort(); /* a registered op with a bad gradient, or no memory at the first use of one */
    }
    return *place;
}

fl_status fl_vjp_check(const fl_op *op)
{
    fl_vjp_code *read;
    if (!op->vjp) return FL_OK;
    FL_TRY(fl_vjp_parse(&read, op));
    fl_vjp_code_free(read);
    return FL_OK;
}

void fl_vjp_saves(const fl_op *op, uint32_t wanted, uint32_t *saves_in, uint32_t *saves_out)
{
    const fl_vjp_code *code = code_of(op);
    *saves_in = *saves_out = 0;
    for (int i = 0; wanted; i++, wanted >>= 1) {
        if (!(wanted & 1u)) continue;
        *saves_in |= code->saves_in[i];
        *saves_out |= code->saves_out[i];
    }
}

/* ---- evaluating ---- */

/* A value while evaluating; tensors are owned. */
struct value {
    fl_operand operand;
    const fl_attr *attr; /* instead of the operand: an attribute of the op */
};

/* The environment of an expression. */
struct scope {
    fl_grad *g; /* of a body: its operands and attributes */
    const fl_vjp_code *code;
    uint32_t known;                      /* the locals that are there, a bit each */
    struct value locals[FL_TERM_LOCALS]; /* owned */
};

/* Every gradient passes here: locals are not cleared. */
static inline void scope_begin(struct scope *scope, fl_grad *g, const fl_vjp_code *code)
{
    scope->g = g;
    scope->code = code;
    scope->known = 0;
}

static fl_status eval(struct value *out, const fl_term *term, struct scope *scope);

static void value_release(struct value *value)
{
    if (value->operand.kind == FL_TENSOR) fl_tensor_unref(value->operand.tensor);
    value->operand.kind = FL_NONE;
}

fl_status fl_vjp_zeros(fl_tensor **out, const fl_meta *meta)
{
    fl_tensor *t, *same;
    FL_TRY(fl_tensor_empty(&t, meta));
    fl_status status = FL_CALL(&same, zero_, fl_of(t));
    if (status == FL_OK) fl_tensor_unref(same);
    if (status != FL_OK) fl_tensor_unref(t);
    else *out = t;
    return status;
}

static void attr_from_value(fl_attr *attr, const struct value *value, bool is_float)
{
    if (value->attr) {
        *attr = *value->attr;
        return;
    }
    attr->given = value->operand.kind != FL_NONE;
    attr->count = 1;
    attr->kind = value->operand.kind;
    if (is_float && value->operand.kind == FL_NUM_INT) {
        attr->kind = FL_NUM_FLOAT;
        attr->number = (double)value->operand.integer;
    } else if (value->operand.kind == FL_NUM_FLOAT) attr->number = value->operand.number;
    else attr->list[0] = value->operand.integer;
}

/* Arranges evaluated arguments by the signature of the called op, then dispatches. */
static fl_status call_with(fl_tensor **out, const fl_op *op, const struct value *values, int count)
{
    const fl_signature *s = fl_op_signature(op);
    fl_operand in[FL_MAX_PARAMS] = {{FL_NONE, {0}}};
    fl_attrs attrs;
    fl_attrs_init(&attrs, op);
    int nin = s->tensor_count;
    for (int i = 0; i < count; i++) {
        const fl_param *param = &s->params[i];
        assert(i < s->param_count);
        if (!param->is_tensor) attr_from_value(&attrs.at[param->slot], &values[i], param->type == FL_ATTR_FLOAT);
        else if (!values[i].attr) in[param->slot] = values[i].operand;
        else if (values[i].attr->given) { /* an attribute used as a number operand */
            in[param->slot].kind = values[i].attr->kind;
            if (values[i].attr->kind == FL_NUM_FLOAT) in[param->slot].number = values[i].attr->number;
            else in[param->slot].integer = values[i].attr->integer;
        }
    }
    fl_tensor *results[FL_MAX_OUT];
    FL_TRY(fl_dispatch(results, op, in, nin, &attrs));
    for (int i = 1; i < op->nout; i++) fl_tensor_unref(results[i]);
    *out = results[0];
    return FL_OK;
}

static fl_status number_call(struct value *out, const fl_term *term, const struct value *values);

static fl_status eval_call(struct value *out, const fl_term *term, struct scope *scope)
{
    struct value values[FL_TERM_ARGS] = {{{FL_NONE, {0}}, NULL}};
    fl_status status = FL_OK;
    bool tensors = false;
    for (int i = 0; i < term->count && status == FL_OK; i++) {
        status = eval(&values[i], term->args[i], scope);
        tensors |= values[i].operand.kind == FL_TENSOR;
    }
    if (status == FL_OK) {
        if (!tensors) status = number_call(out, term, values);
        else {
            fl_tensor *result = NULL;
            status = call_with(&result, term->call, values, term->count);
            *out = (struct value){fl_of(result), NULL};
        }
    }
    for (int i = 0; i < term->count; i++) value_release(&values[i]);
    return status;
}

static double value_number(const struct value *value)
{
    if (value->attr) return fl_attr_number(value->attr);
    return value->operand.kind == FL_NUM_FLOAT ? value->operand.number : (double)value->operand.integer;
}

/* Arithmetic between numbers alone ("y - 1" where y is a Lua number). */
static fl_status number_call(struct value *out, const fl_term *term, const struct value *values)
{
    double a = value_number(&values[0]), b = term->count > 1 ? value_number(&values[1]) : 0;
    int row = term->call->row;
    double r;
    switch (row) {
    case FL_EW_add: r = a + b; break;
    case FL_EW_sub: r = a - b; break;
    case FL_EW_mul: r = a * b; break;
    case FL_EW_div: r = a / b; break;
    case FL_EW_neg: r = -a; break;
    case FL_EW_pow: r = __builtin_pow(a, b); break;
    case FL_EW_log: r = __builtin_log(a); break;
    case FL_EW_sqrt: r = __builtin_sqrt(a); break;
    case FL_EW_floor_divide: r = __builtin_floor(a / b); break;
    case FL_EW_eq: r = a == b; break;
    case FL_EW_gt: r = a > b; break;
    case FL_EW_lt: r = a < b; break;
    default: return fl_fail(FL_ERR_STATE, "an expression calls %s with numbers alone", term->call->name);
    }
    bool whole = r == (double)(int64_t)r && fl_ew_rows[row].rule == FL_EW_SAME && values[0].operand.kind != FL_NUM_FLOAT
        && (term->count < 2 || values[1].operand.kind != FL_NUM_FLOAT);
    *out = (struct value){whole ? fl_of_integer((int64_t)r) : fl_of_number(r), NULL};
    return FL_OK;
}

static fl_status with_sizes(fl_tensor **out, const fl_op *op, fl_tensor *x, const fl_shape *shape)
{
    fl_attrs a;
    fl_attrs_init(&a, op);
    fl_attr_set_list(&a, FL_VIEW_SIZE, shape->dims, shape->ndim);
    return fl_dispatch(out, op, (const fl_operand[]){fl_of(x)}, 1, &a);
}

/* Shape of x with the reduced axes kept as 1. */
static void kept_shape(fl_shape *out, const fl_shape *x, const fl_attr *axes)
{
    *out = *x;
    for (int i = 0; i < x->ndim; i++)
        if (!axes || !axes->given || axes->count == 0) out->dims[i] = 1;
    for (int i = 0; axes && axes->given && i < axes->count && x->ndim; i++) {
        int64_t axis = axes->list[i];
        out->dims[axis < 0 ? axis + x->ndim : axis] = 1;
    }
}

static fl_status eval_like(struct value *out, const fl_term *term, struct scope *scope)
{
    const fl_shape *shape = &scope->g->in_meta[term->args[term->count - 1]->index]->shape;
    struct value v, axes = {{FL_NONE, {0}}, NULL};
    FL_TRY(eval(&v, term->args[0], scope));
    fl_tensor *x = v.operand.tensor, *result = NULL;
    fl_status status = FL_OK;
    if (term->index == FL_LIKE_RESHAPE) status = with_sizes(&result, FL_OP_REF(reshape), x, shape);
    else if (term->index == FL_LIKE_EXPAND) status = with_sizes(&result, FL_OP_REF(expand), x, shape);
    else if (term->index == FL_LIKE_SUM)
        result = fl_tensor_ref(x); /* the tape sums every gradient to its input's shape */
    else {
        fl_shape kept;
        fl_tensor *whole = NULL;
        status = eval(&axes, term->args[1], scope);
        if (status == FL_OK) {
            kept_shape(&kept, shape, axes.attr);
            status = with_sizes(&whole, FL_OP_REF(reshape), x, &kept);
        }
        if (status == FL_OK) status = with_sizes(&result, FL_OP_REF(expand), whole, shape);
        fl_tensor_unref(whole);
    }
    value_release(&v);
    *out = (struct value){fl_of(result), NULL};
    return status;
}

static fl_status eval_local(struct value *out, const fl_term *term, struct scope *scope)
{
    struct value *local = &scope->locals[term->index];
    if (!(scope->known >> term->index & 1u)) FL_TRY(eval(local, scope->code->locals[term->index], scope));
    scope->known |= 1u << term->index;
    *out = *local;
    if (out->operand.kind == FL_TENSOR) fl_tensor_ref(out->operand.tensor);
    return FL_OK;
}

static fl_status eval_choice(struct value *out, const fl_term *term, struct scope *scope)
{
    struct value condition;
    FL_TRY(eval(&condition, term->args[0], scope));
    fl_kind kind = condition.operand.kind;
    bool yes = kind == FL_TENSOR || (condition.attr && condition.attr->given && value_number(&condition) != 0)
        || (!condition.attr && kind != FL_NONE && value_number(&condition) != 0);
    value_release(&condition);
    return eval(out, term->args[yes ? 1 : 2], scope);
}

static fl_status eval_size(struct value *out, const fl_term *term, struct scope *scope)
{
    struct value x, axis = {fl_of_integer(0), NULL};
    FL_TRY(eval(&x, term->args[0], scope));
    fl_status status = term->kind == FL_TERM_SIZE ? eval(&axis, term->args[1], scope) : FL_OK;
    const fl_shape *shape = &x.operand.tensor->meta->shape;
    int64_t at = status == FL_OK ? (int64_t)value_number(&axis) : 0, count = shape->ndim;
    if (term->kind == FL_TERM_SIZE && status == FL_OK) {
        if (at >= count || at < -count)
            status = fl_fail(FL_ERR_SHAPE, "axis %lld of a tensor of %d axes", (long long)at, shape->ndim);
        else count = shape->dims[at < 0 ? at + shape->ndim : at];
    }
    value_release(&x);
    *out = (struct value){fl_of_integer(count), NULL};
    return status;
}

static fl_status eval(struct value *out, const fl_term *term, struct scope *scope)
{
    fl_tensor *zeros = NULL;
    fl_grad *g = scope->g;
    *out = (struct value){{FL_NONE, {0}}, NULL};
    switch (term->kind) {
    case FL_TERM_NUMBER: out->operand = fl_of_number(term->number); return FL_OK;
    case FL_TERM_INTEGER: out->operand = fl_of_integer(term->integer); return FL_OK;
    case FL_TERM_IN: out->operand = g->in[term->index]; break;
    case FL_TERM_OUT: out->operand = fl_of(g->out[term->index]); break;
    case FL_TERM_LOCAL: return eval_local(out, term, scope);
    case FL_TERM_CHOOSE: return eval_choice(out, term, scope);
    case FL_TERM_NDIM:
    case FL_TERM_SIZE: return eval_size(out, term, scope);
    case FL_TERM_ATTR: out->attr = &g->attrs->at[term->index]; return FL_OK;
    case FL_TERM_CALL: return eval_call(out, term, scope);
    case FL_TERM_LIKE: return eval_like(out, term, scope);
    case FL_TERM_GRAD:
        if (!g->gout[term->index]) {
            FL_TRY(fl_vjp_zeros(&zeros, g->out_meta[term->index]));
            out->operand = fl_of(zeros);
            return FL_OK;
        }
        out->operand = fl_of(g->gout[term->index]);
        break;
    }
    if (out->operand.kind == FL_TENSOR) fl_tensor_ref(out->operand.tensor);
    return FL_OK;
}

fl_status fl_vjp_eval(fl_grad *g)
{
    const fl_vjp_code *code = code_of(g->op);
    struct scope scope;
    scope_begin(&scope, g, NULL);
    for (int i = 0; i < g->nin; i++) {
        if (!g->need[i] || !code->inputs[i]) continue;
        struct value v;
        FL_TRY(eval(&v, code->inputs[i], &scope));
        if (v.operand.kind == FL_TENSOR) g->gin[i] = v.operand.tensor;
    }
    return FL_OK;
}

/* ---- bodies ---- */

fl_status fl_text_body(fl_tensor **out, fl_body_text *body, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_meta *metas[FL_MAX_PARAMS] = {NULL};
    fl_operand operands[FL_MAX_PARAMS] = {{FL_NONE, {0}}};
    if (!body->code) FL_TRY(fl_vjp_parse_body(&body->code, body));
    for (int i = 0; i < nin; i++) {
        operands[i] = in[i];
        if (in[i].kind == FL_TENSOR) metas[i] = in[i].tensor->meta;
    }
    fl_grad g = {.op = body->op, .attrs = attrs, .nin = nin, .in = operands, .in_meta = metas};
    struct scope scope;
    scope_begin(&scope, &g, body->code);
    struct value v = {{FL_NONE, {0}}, NULL};
    fl_status status = eval(&v, body->code->result, &scope);
    for (int i = 0; scope.known >> i; i++)
        if (scope.known >> i & 1u) value_release(&scope.locals[i]);
    if (status == FL_OK && v.operand.kind != FL_TENSOR)
        return fl_fail(FL_ERR_VALUE, "%s: takes at least one tensor", body->op->name);
    if (status == FL_OK) out[0] = v.operand.tensor;
    return status;
}
