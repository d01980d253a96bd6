/*
** vjp.c -- gradients written as expressions in ops: "g * y", "out * (g - sum(g * out, axis, true))".
**
** Each string is parsed once into a small tree. Evaluating it dispatches ops, so gradients run on every
** device, box themselves and can be differentiated again; what a string mentions is what the tape saves.
** `expand_to`, `reshape_to`, `sum_to` and `unreduce` take the shape of an input from its meta, so that the
** input itself need not be saved.
**
** Bodies of ops are such texts, too (fl_text_body): they may begin with lines `name = expression;`, each computed once,
** when it is first needed. `choose(c, a, b)` computes a where c is a number other than 0 or an operand that is given,
** else b; `ndim(x)` and `size(x, axis)` are numbers.
*/
#include "autograd.h"
#include "base/hash.h"
#include "cpu/elementwise.h"
#include "op/views.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum term_kind {
    TERM_NUMBER,
    TERM_INTEGER,
    TERM_IN,
    TERM_OUT,
    TERM_GRAD,
    TERM_ATTR,
    TERM_CALL,
    TERM_LIKE,
    TERM_LOCAL, /* a line of a body */
    TERM_CHOOSE,
    TERM_NDIM,
    TERM_SIZE
} term_kind;
typedef enum like_kind { LIKE_EXPAND, LIKE_RESHAPE, LIKE_SUM, LIKE_UNREDUCE, LIKE_COUNT } like_kind;

static const char *const like_names[LIKE_COUNT] = {"expand_to", "reshape_to", "sum_to", "unreduce"};

enum { MAX_ARGS = 8, MAX_LOCALS = 16, MAX_NAME = 32 };

struct term {
    term_kind kind;
    int index; /* operand, output, attribute, line; like_kind of TERM_LIKE */
    double number;
    int64_t integer;
    const fl_op *call;
    int count;
    struct term *args[MAX_ARGS];
    struct term *next; /* of the same program, made before */
};

struct program {
    const fl_op *op;
    struct term *terms;                                         /* all there are; owned */
    struct term *inputs[FL_MAX_PARAMS];                         /* gradient of each operand; NULL: none */
    struct term *locals[MAX_LOCALS], *result;                   /* of a body */
    uint32_t saves_in[FL_MAX_PARAMS], saves_out[FL_MAX_PARAMS]; /* what each of them mentions */
};

/* ---- parsing ---- */

struct parser {
    const char *at;
    const fl_op *op;
    uint32_t saves_in, saves_out; /* mentioned so far */
    fl_status status;             /* the first error */
    const char *text;
    struct term **terms; /* the program's */
    char locals[MAX_LOCALS][MAX_NAME];
    int local_count;
    bool is_body;
};

static struct term *parse_sum(struct parser *parser);

static struct term *term_new(struct parser *parser, term_kind kind)
{
    struct term *t = calloc(1, sizeof *t);
    if (!t) abort(); /* a few bytes, once per op */
    t->kind = kind;
    t->next = *parser->terms;
    *parser->terms = t;
    return t;
}

/* Notes an error, and goes on to the end of the text. */
static struct term *fail_term(struct parser *parser, const char *what)
{
    if (parser->status == FL_OK)
        parser->status = fl_fail(FL_ERR_VALUE, "%s: %s '%s': %s before '%.20s' (character %d)", parser->op->name,
                                 parser->is_body ? "body" : "gradient", parser->text, what, parser->at,
                                 (int)(parser->at - parser->text) + 1);
    parser->at += strlen(parser->at);
    return term_new(parser, TERM_INTEGER);
}

static void skip_space(struct parser *parser)
{
    while (*parser->at == ' ') parser->at++;
}

static bool accept(struct parser *parser, char expected)
{
    skip_space(parser);
    if (*parser->at != expected) return false;
    parser->at++;
    return true;
}

static struct term *call_term(struct parser *parser, const char *name, struct term *first, struct term *second)
{
    struct term *t = term_new(parser, TERM_CALL);
    t->call = fl_op_find(name);
    t->args[0] = first;
    t->args[1] = second;
    t->count = second ? 2 : 1;
    return t;
}

static int param_called(const fl_op *op, const char *name, bool tensor)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < s->param_count; i++)
        if (s->params[i].is_tensor == tensor && strcmp(s->params[i].name, name) == 0) return s->params[i].slot;
    return -1;
}

/* What looks like a call and is none. */
static const struct {
    const char *name;
    term_kind kind;
    int count;
} forms[] = {{"choose", TERM_CHOOSE, 3}, {"ndim", TERM_NDIM, 1}, {"size", TERM_SIZE, 2}};
enum { FORM_COUNT = sizeof forms / sizeof *forms };

static int local_called(const struct parser *parser, const char *name)
{
    for (int i = 0; i < parser->local_count; i++)
        if (strcmp(parser->locals[i], name) == 0) return i;
    return -1;
}

static struct term *parse_call(struct parser *parser, const char *name)
{
    struct term *t = NULL;
    for (int i = 0; i < FORM_COUNT; i++)
        if (strcmp(name, forms[i].name) == 0) t = term_new(parser, forms[i].kind);
    for (int i = 0; i < LIKE_COUNT; i++)
        if (strcmp(name, like_names[i]) == 0) {
            t = term_new(parser, TERM_LIKE);
            t->index = i;
        }
    if (!t) t = call_term(parser, name, NULL, NULL);
    if (t->kind == TERM_CALL && !t->call) return fail_term(parser, "a call of an op that there is not");
    int most = t->kind == TERM_CALL ? fl_op_signature(t->call)->param_count : MAX_ARGS;
    t->count = 0;
    uint32_t saved = parser->saves_in;
    while (!accept(parser, ')')) {
        if (t->count == MAX_ARGS || t->count == most || !*parser->at) return fail_term(parser, "too many arguments");
        saved = parser->saves_in;
        t->args[t->count++] = parse_sum(parser);
        accept(parser, ',');
    }
    for (int i = 0; i < FORM_COUNT; i++)
        if (t->kind == forms[i].kind && t->count != forms[i].count) return fail_term(parser, "not enough arguments");
    if (t->kind == TERM_LIKE && (t->count < 2 || t->args[t->count - 1]->kind != TERM_IN))
        return fail_term(parser, "an operand must be the last argument");
    if (t->kind == TERM_LIKE) parser->saves_in = saved; /* the last argument gives only its shape */
    return t;
}

static bool read_name(char name[MAX_NAME], struct parser *parser)
{
    size_t n = 0;
    skip_space(parser);
    while (n + 1 < MAX_NAME && (isalnum((unsigned char)*parser->at) || *parser->at == '_')) name[n++] = *parser->at++;
    name[n] = 0;
    return n > 0;
}

static struct term *parse_name(struct parser *parser)
{
    char name[MAX_NAME];
    if (!read_name(name, parser)) return fail_term(parser, "a name or a number is missing");
    if (accept(parser, '(')) return parse_call(parser, name);
    struct term *t = term_new(parser, TERM_INTEGER);
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0) {
        t->integer = name[0] == 't';
        return t;
    }
    if ((t->index = local_called(parser, name)) >= 0) {
        t->kind = TERM_LOCAL;
    } else if ((t->index = param_called(parser->op, name, true)) >= 0) {
        t->kind = TERM_IN;
        parser->saves_in |= 1u << t->index;
    } else if ((t->index = param_called(parser->op, name, false)) >= 0) {
        t->kind = TERM_ATTR;
    } else if (name[0] == 'g' && (!name[1] || (isdigit((unsigned char)name[1]) && !name[2]))) {
        t->kind = TERM_GRAD;
        t->index = name[1] ? name[1] - '0' : 0;
    } else if (strncmp(name, "out", 3) == 0 && (!name[3] || !name[4])) {
        t->kind = TERM_OUT;
        t->index = name[3] ? name[3] - '0' : 0;
        parser->saves_out |= 1u << (t->index & 31);
    } else return fail_term(parser, "an unknown name");
    bool result = t->kind == TERM_GRAD || t->kind == TERM_OUT;
    return result && (t->index < 0 || t->index >= parser->op->nout) ? fail_term(parser, "a result that there is not")
                                                                    : t;
}

static struct term *parse_primary(struct parser *parser)
{
    if (accept(parser, '(')) {
        struct term *t = parse_sum(parser);
        return accept(parser, ')') ? t : fail_term(parser, "a ) is missing");
    }
    if (!isdigit((unsigned char)*parser->at)) return parse_name(parser);
    char *end;
    struct term *t = term_new(parser, TERM_NUMBER);
    t->number = strtod(parser->at, &end);
    t->integer = (int64_t)t->number;
    if (!memchr(parser->at, '.', (size_t)(end - parser->at)) && !memchr(parser->at, 'e', (size_t)(end - parser->at)))
        t->kind = TERM_INTEGER;
    parser->at = end;
    return t;
}

static struct term *parse_unary(struct parser *parser)
{
    if (accept(parser, '-')) return call_term(parser, "neg", parse_unary(parser), NULL);
    struct term *t = parse_primary(parser);
    if (accept(parser, '^')) return call_term(parser, "pow", t, parse_unary(parser));
    return t;
}

static struct term *parse_product(struct parser *parser)
{
    struct term *t = parse_unary(parser);
    for (;;) {
        if (accept(parser, '*')) t = call_term(parser, "mul", t, parse_unary(parser));
        else if (accept(parser, '/')) t = call_term(parser, "div", t, parse_unary(parser));
        else return t;
    }
}

static struct term *parse_sum(struct parser *parser)
{
    skip_space(parser);
    struct term *t = parse_product(parser);
    for (;;) {
        if (accept(parser, '+')) t = call_term(parser, "add", t, parse_product(parser));
        else if (accept(parser, '-')) t = call_term(parser, "sub", t, parse_product(parser));
        else {
            skip_space(parser);
            return t;
        }
    }
}

/* ---- programs, parsed at first use ---- */

enum { TABLE_BITS = 10, TABLE_SIZE = 1 << TABLE_BITS };
static struct program *table[TABLE_SIZE];

static void program_free(struct program *program)
{
    for (struct term *t = program->terms, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    free(program);
}

static fl_status parse_program(struct program **out, const fl_op *op)
{
    fl_status status = FL_OK;
    struct program *g = calloc(1, sizeof *g);
    if (!g) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for its gradient", op->name);
    g->op = op;
    int count = fl_op_signature(op)->tensor_count;
    for (int i = 0; i < count && status == FL_OK; i++) {
        if (!op->vjp[i]) continue;
        struct parser p = {.at = op->vjp[i], .op = op, .text = op->vjp[i], .terms = &g->terms};
        g->inputs[i] = parse_sum(&p);
        g->saves_in[i] = p.saves_in;
        g->saves_out[i] = p.saves_out;
        if (*p.at) fail_term(&p, "an operator is missing");
        status = p.status;
    }
    if (status == FL_OK) *out = g;
    else program_free(g);
    return status;
}

/* name = expression; ... expression */
static fl_status parse_body(struct program **out, const fl_body_text *body)
{
    struct program *g = calloc(1, sizeof *g);
    if (!g) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for its body", body->op->name);
    struct parser p = {.at = body->text, .op = body->op, .text = body->text, .terms = &g->terms, .is_body = true};
    g->op = body->op;
    while (p.status == FL_OK && strchr(p.at, ';')) {
        char name[MAX_NAME];
        if (!read_name(name, &p) || !accept(&p, '=') || p.local_count == MAX_LOCALS)
            fail_term(&p, "a line must be name = expression;");
        else {
            g->locals[p.local_count] = parse_sum(&p);
            memcpy(p.locals[p.local_count++], name, sizeof name);
            if (!accept(&p, ';')) fail_term(&p, "a ; is missing");
        }
    }
    g->result = parse_sum(&p);
    if (*p.at) fail_term(&p, "an operator is missing");
    if (p.status == FL_OK) *out = g;
    else program_free(g);
    return p.status;
}

/* Where the program of op is, or belongs. */
static struct program **place_of(const fl_op *op)
{
    size_t at = fl_hash_slot((uintptr_t)op >> 5, TABLE_BITS);
    while (table[at] && table[at]->op != op) at = (at + 1) % TABLE_SIZE;
    return &table[at];
}

static const struct program *program_of(const fl_op *op)
{
    struct program **place = place_of(op);
    if (FL_UNLIKELY(!*place) && parse_program(place, op) != FL_OK) {
        fprintf(stderr, "%s\n", fl_message());
        abort(); /* a registered op with a bad gradient, or no memory at the first use of one */
    }
    return *place;
}

fl_status fl_vjp_check(const fl_op *op)
{
    struct program *read;
    if (!op->vjp) return FL_OK;
    FL_TRY(parse_program(&read, op));
    program_free(read);
    return FL_OK;
}

void fl_vjp_saves(const fl_op *op, uint32_t wanted, uint32_t *saves_in, uint32_t *saves_out)
{
    const struct program *p = program_of(op);
    *saves_in = *saves_out = 0;
    for (int i = 0; wanted; i++, wanted >>= 1) {
        if (!(wanted & 1u)) continue;
        *saves_in |= p->saves_in[i];
        *saves_out |= p->saves_out[i];
    }
}

/* ---- evaluating ---- */

/* A value while evaluating; tensors are owned. */
struct value {
    fl_operand operand;
    const fl_attr *attr; /* instead of the operand: an attribute of the op */
};

/* What an expression is evaluated in. */
struct scope {
    fl_grad *g; /* of a body: its operands and attributes */
    const struct program *program;
    struct value locals[MAX_LOCALS]; /* owned */
    bool known[MAX_LOCALS];
};

static fl_status eval(struct value *out, const struct term *term, struct scope *scope);

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

static fl_status number_call(struct value *out, const struct term *term, const struct value *values);

static fl_status eval_call(struct value *out, const struct term *term, struct scope *scope)
{
    struct value values[MAX_ARGS] = {{{FL_NONE, {0}}, NULL}};
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
static fl_status number_call(struct value *out, const struct term *term, const struct value *values)
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

static fl_status eval_like(struct value *out, const struct term *term, struct scope *scope)
{
    const fl_shape *shape = &scope->g->in_meta[term->args[term->count - 1]->index]->shape;
    struct value v, axes = {{FL_NONE, {0}}, NULL};
    FL_TRY(eval(&v, term->args[0], scope));
    fl_tensor *x = v.operand.tensor, *result = NULL;
    fl_status status = FL_OK;
    if (term->index == LIKE_RESHAPE) status = with_sizes(&result, FL_OP_REF(reshape), x, shape);
    else if (term->index == LIKE_EXPAND) status = with_sizes(&result, FL_OP_REF(expand), x, shape);
    else if (term->index == LIKE_SUM) result = fl_tensor_ref(x); /* the tape sums every gradient to its input's shape */
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

static fl_status eval_local(struct value *out, const struct term *term, struct scope *scope)
{
    struct value *local = &scope->locals[term->index];
    if (!scope->known[term->index]) FL_TRY(eval(local, scope->program->locals[term->index], scope));
    scope->known[term->index] = true;
    *out = *local;
    if (out->operand.kind == FL_TENSOR) fl_tensor_ref(out->operand.tensor);
    return FL_OK;
}

static fl_status eval_choice(struct value *out, const struct term *term, struct scope *scope)
{
    struct value condition;
    FL_TRY(eval(&condition, term->args[0], scope));
    fl_kind kind = condition.operand.kind;
    bool yes = kind == FL_TENSOR || (condition.attr && condition.attr->given && value_number(&condition) != 0)
        || (!condition.attr && kind != FL_NONE && value_number(&condition) != 0);
    value_release(&condition);
    return eval(out, term->args[yes ? 1 : 2], scope);
}

static fl_status eval_size(struct value *out, const struct term *term, struct scope *scope)
{
    struct value x, axis = {fl_of_integer(0), NULL};
    FL_TRY(eval(&x, term->args[0], scope));
    fl_status status = term->kind == TERM_SIZE ? eval(&axis, term->args[1], scope) : FL_OK;
    const fl_shape *shape = &x.operand.tensor->meta->shape;
    int64_t at = status == FL_OK ? (int64_t)value_number(&axis) : 0, count = shape->ndim;
    if (term->kind == TERM_SIZE && status == FL_OK) {
        if (at >= count || at < -count)
            status = fl_fail(FL_ERR_SHAPE, "axis %lld of a tensor of %d axes", (long long)at, shape->ndim);
        else count = shape->dims[at < 0 ? at + shape->ndim : at];
    }
    value_release(&x);
    *out = (struct value){fl_of_integer(count), NULL};
    return status;
}

static fl_status eval(struct value *out, const struct term *term, struct scope *scope)
{
    fl_tensor *zeros = NULL;
    fl_grad *g = scope->g;
    *out = (struct value){{FL_NONE, {0}}, NULL};
    switch (term->kind) {
    case TERM_NUMBER: out->operand = fl_of_number(term->number); return FL_OK;
    case TERM_INTEGER: out->operand = fl_of_integer(term->integer); return FL_OK;
    case TERM_IN: out->operand = g->in[term->index]; break;
    case TERM_OUT: out->operand = fl_of(g->out[term->index]); break;
    case TERM_LOCAL: return eval_local(out, term, scope);
    case TERM_CHOOSE: return eval_choice(out, term, scope);
    case TERM_NDIM:
    case TERM_SIZE: return eval_size(out, term, scope);
    case TERM_ATTR: out->attr = &g->attrs->at[term->index]; return FL_OK;
    case TERM_CALL: return eval_call(out, term, scope);
    case TERM_LIKE: return eval_like(out, term, scope);
    case TERM_GRAD:
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
    const struct program *p = program_of(g->op);
    struct scope scope = {.g = g};
    for (int i = 0; i < g->nin; i++) {
        if (!g->need[i] || !p->inputs[i]) continue;
        struct value v;
        FL_TRY(eval(&v, p->inputs[i], &scope));
        if (v.operand.kind == FL_TENSOR) g->gin[i] = v.operand.tensor;
    }
    return FL_OK;
}

/* ---- bodies ---- */

fl_status fl_text_body(fl_tensor **out, fl_body_text *body, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_meta *metas[FL_MAX_PARAMS] = {NULL};
    fl_operand operands[FL_MAX_PARAMS] = {{FL_NONE, {0}}};
    if (!body->program) FL_TRY(parse_body(&body->program, body));
    for (int i = 0; i < nin; i++) {
        operands[i] = in[i];
        if (in[i].kind == FL_TENSOR) metas[i] = in[i].tensor->meta;
    }
    fl_grad g = {.op = body->op, .attrs = attrs, .nin = nin, .in = operands, .in_meta = metas};
    struct scope scope = {.g = &g, .program = body->program};
    struct value v = {{FL_NONE, {0}}, NULL};
    fl_status status = eval(&v, body->program->result, &scope);
    for (int i = 0; i < MAX_LOCALS; i++)
        if (scope.known[i]) value_release(&scope.locals[i]);
    if (status == FL_OK && v.operand.kind != FL_TENSOR)
        return fl_fail(FL_ERR_VALUE, "%s: takes at least one tensor", body->op->name);
    if (status == FL_OK) out[0] = v.operand.tensor;
    return status;
}
