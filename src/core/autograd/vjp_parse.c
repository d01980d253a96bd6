/*
** vjp_parse.c -- reads the texts of gradients and bodies (see vjp_code.h).
**
** A parser of one function per precedence: sum, product, unary, primary. The operands and results that a text mentions
** are noted on the way: the tape saves them. After an error the parser stands at the end of the text and
** goes on with terms that are not evaluated.
*/
#include "vjp_code.h"
#include "base/locale.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 32 };

static const char *const like_names[FL_LIKE_COUNT] = {"expand_to", "reshape_to", "sum_to", "unreduce"};

struct parser {
    const char *at;
    const fl_op *op;
    uint32_t saves_in, saves_out; /* mentioned so far */
    fl_status status;             /* the first error */
    const char *text;
    fl_term **terms; /* the code's */
    char locals[FL_TERM_LOCALS][MAX_NAME];
    int local_count;
    bool is_body;
};

static fl_term *parse_sum(struct parser *parser);

static fl_term *term_new(struct parser *parser, fl_term_kind kind)
{
    fl_term *t = calloc(1, sizeof *t);
    if (!t) abort(); /* a few bytes, once per op */
    t->kind = kind;
    t->next = *parser->terms;
    *parser->terms = t;
    return t;
}

/* Notes an error, and goes on to the end of the text. */
static fl_term *fail_term(struct parser *parser, const char *what)
{
    if (parser->status == FL_OK)
        parser->status = fl_fail(FL_ERR_VALUE, "%s: %s '%s': %s before '%.20s' (character %d)", parser->op->name,
                                 parser->is_body ? "body" : "gradient", parser->text, what, parser->at,
                                 (int)(parser->at - parser->text) + 1);
    parser->at += strlen(parser->at);
    return term_new(parser, FL_TERM_INTEGER);
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

static fl_term *call_term(struct parser *parser, const char *name, fl_term *first, fl_term *second)
{
    fl_term *t = term_new(parser, FL_TERM_CALL);
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

/* Forms written like calls that call no op. */
static const struct {
    const char *name;
    fl_term_kind kind;
    int count;
} forms[] = {{"choose", FL_TERM_CHOOSE, 3}, {"ndim", FL_TERM_NDIM, 1}, {"size", FL_TERM_SIZE, 2}};
enum { FORM_COUNT = sizeof forms / sizeof *forms };

static int local_called(const struct parser *parser, const char *name)
{
    for (int i = 0; i < parser->local_count; i++)
        if (strcmp(parser->locals[i], name) == 0) return i;
    return -1;
}

static fl_term *parse_call(struct parser *parser, const char *name)
{
    fl_term *t = NULL;
    for (int i = 0; i < FORM_COUNT; i++)
        if (strcmp(name, forms[i].name) == 0) t = term_new(parser, forms[i].kind);
    for (int i = 0; i < FL_LIKE_COUNT; i++)
        if (strcmp(name, like_names[i]) == 0) {
            t = term_new(parser, FL_TERM_LIKE);
            t->index = i;
        }
    if (!t) t = call_term(parser, name, NULL, NULL);
    if (t->kind == FL_TERM_CALL && !t->call) return fail_term(parser, "a call of an op that there is not");
    int most = t->kind == FL_TERM_CALL ? fl_op_signature(t->call)->param_count : FL_TERM_ARGS;
    t->count = 0;
    uint32_t saved = parser->saves_in;
    while (!accept(parser, ')')) {
        if (t->count == FL_TERM_ARGS || t->count == most || !*parser->at)
            return fail_term(parser, "too many arguments");
        saved = parser->saves_in;
        t->args[t->count++] = parse_sum(parser);
        accept(parser, ',');
    }
    for (int i = 0; i < FORM_COUNT; i++)
        if (t->kind == forms[i].kind && t->count != forms[i].count) return fail_term(parser, "not enough arguments");
    if (t->kind == FL_TERM_LIKE && (t->count < 2 || t->args[t->count - 1]->kind != FL_TERM_IN))
        return fail_term(parser, "an operand must be the last argument");
    if (t->kind == FL_TERM_LIKE) parser->saves_in = saved; /* the last argument gives only its shape */
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

static fl_term *parse_name(struct parser *parser)
{
    char name[MAX_NAME];
    if (!read_name(name, parser)) return fail_term(parser, "a name or a number is missing");
    if (accept(parser, '(')) return parse_call(parser, name);
    fl_term *t = term_new(parser, FL_TERM_INTEGER);
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0) {
        t->integer = name[0] == 't';
        return t;
    }
    if ((t->index = local_called(parser, name)) >= 0) {
        t->kind = FL_TERM_LOCAL;
    } else if ((t->index = param_called(parser->op, name, true)) >= 0) {
        t->kind = FL_TERM_IN;
        parser->saves_in |= 1u << t->index;
    } else if ((t->index = param_called(parser->op, name, false)) >= 0) {
        t->kind = FL_TERM_ATTR;
    } else if (name[0] == 'g' && (!name[1] || (isdigit((unsigned char)name[1]) && !name[2]))) {
        t->kind = FL_TERM_GRAD;
        t->index = name[1] ? name[1] - '0' : 0;
    } else if (strncmp(name, "out", 3) == 0 && (!name[3] || !name[4])) {
        t->kind = FL_TERM_OUT;
        t->index = name[3] ? name[3] - '0' : 0;
        parser->saves_out |= 1u << (t->index & 31);
    } else return fail_term(parser, "an unknown name");
    bool result = t->kind == FL_TERM_GRAD || t->kind == FL_TERM_OUT;
    return result && (t->index < 0 || t->index >= parser->op->nout) ? fail_term(parser, "a result that there is not")
                                                                    : t;
}

static fl_term *parse_primary(struct parser *parser)
{
    if (accept(parser, '(')) {
        fl_term *t = parse_sum(parser);
        return accept(parser, ')') ? t : fail_term(parser, "a ) is missing");
    }
    if (!isdigit((unsigned char)*parser->at)) return parse_name(parser);
    char *end;
    fl_term *t = term_new(parser, FL_TERM_NUMBER);
    t->number = fl_plain_number(parser->at, &end);
    t->integer = (int64_t)t->number;
    if (!memchr(parser->at, '.', (size_t)(end - parser->at)) && !memchr(parser->at, 'e', (size_t)(end - parser->at)))
        t->kind = FL_TERM_INTEGER;
    parser->at = end;
    return t;
}

static fl_term *parse_unary(struct parser *parser)
{
    if (accept(parser, '-')) return call_term(parser, "neg", parse_unary(parser), NULL);
    fl_term *t = parse_primary(parser);
    if (accept(parser, '^')) return call_term(parser, "pow", t, parse_unary(parser));
    return t;
}

static fl_term *parse_product(struct parser *parser)
{
    fl_term *t = parse_unary(parser);
    for (;;) {
        if (accept(parser, '*')) t = call_term(parser, "mul", t, parse_unary(parser));
        else if (accept(parser, '/')) t = call_term(parser, "div", t, parse_unary(parser));
        else return t;
    }
}

static fl_term *parse_sum(struct parser *parser)
{
    skip_space(parser);
    fl_term *t = parse_product(parser);
    for (;;) {
        if (accept(parser, '+')) t = call_term(parser, "add", t, parse_product(parser));
        else if (accept(parser, '-')) t = call_term(parser, "sub", t, parse_product(parser));
        else {
            skip_space(parser);
            return t;
        }
    }
}

/* ---- whole texts ---- */

void fl_vjp_code_free(fl_vjp_code *code)
{
    for (fl_term *t = code->terms, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    free(code);
}

fl_status fl_vjp_parse(fl_vjp_code **out, const fl_op *op)
{
    fl_status status = FL_OK;
    fl_vjp_code *code = calloc(1, sizeof *code);
    if (!code) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for its gradient", op->name);
    code->op = op;
    int count = fl_op_signature(op)->tensor_count;
    for (int i = 0; i < count && status == FL_OK; i++) {
        if (!op->vjp[i]) continue;
        struct parser p = {.at = op->vjp[i], .op = op, .text = op->vjp[i], .terms = &code->terms};
        code->inputs[i] = parse_sum(&p);
        code->saves_in[i] = p.saves_in;
        code->saves_out[i] = p.saves_out;
        if (*p.at) fail_term(&p, "an operator is missing");
        status = p.status;
    }
    if (status == FL_OK) *out = code;
    else fl_vjp_code_free(code);
    return status;
}

/* name = expression; ... expression */
fl_status fl_vjp_parse_body(fl_vjp_code **out, const fl_body_text *body)
{
    fl_vjp_code *code = calloc(1, sizeof *code);
    if (!code) return fl_fail(FL_ERR_MEMORY, "%s: out of memory for its body", body->op->name);
    struct parser p = {.at = body->text, .op = body->op, .text = body->text, .terms = &code->terms, .is_body = true};
    code->op = body->op;
    while (p.status == FL_OK && strchr(p.at, ';')) {
        char name[MAX_NAME];
        if (!read_name(name, &p) || !accept(&p, '=') || p.local_count == FL_TERM_LOCALS)
            fail_term(&p, "a line must be name = expression;");
        else {
            code->locals[p.local_count] = parse_sum(&p);
            memcpy(p.locals[p.local_count++], name, sizeof name);
            if (!accept(&p, ';')) fail_term(&p, "a ; is missing");
        }
    }
    code->result = parse_sum(&p);
    if (*p.at) fail_term(&p, "an operator is missing");
    if (p.status == FL_OK) *out = code;
    else fl_vjp_code_free(code);
    return p.status;
}
