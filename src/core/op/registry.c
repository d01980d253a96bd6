/*
** registry.c -- finding ops and reading their signatures.
**
** Descriptors are constants collected by the linker; what is learned about them at run time (the
** parsed signature) lies in a table beside them, keyed by the descriptor's address.
*/
#include "op.h"
#include "base/hash.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { TABLE_BITS = 11, TABLE_SIZE = 1 << TABLE_BITS };

static struct entry {
    const fl_op *op;
    fl_signature *signature;
} table[TABLE_SIZE];

static struct entry *entry_of(const fl_op *op)
{
    size_t at = fl_hash_slot((uintptr_t)op >> 5, TABLE_BITS);
    while (table[at].op && table[at].op != op) at = (at + 1) % TABLE_SIZE;
    return &table[at];
}

const fl_op *fl_op_find(const char *name)
{
    FL_FOR_EACH_OP(op)
    if (strcmp((*op)->name, name) == 0) return *op;
    return NULL;
}

/* ---- parsing ---- */

static const char *skip_space(const char *at)
{
    while (*at == ' ') at++;
    return at;
}

/* Copies a run of [A-Za-z0-9_] and returns what follows. */
static const char *read_word(char *out, size_t size, const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)*at) || *at == '_') {
        assert(n + 1 < size);
        out[n++] = *at++;
    }
    out[n] = 0;
    return at;
}

static const struct {
    const char *name;
    fl_attr_type type;
} type_names[] = {
    {"bool", FL_ATTR_BOOL},   {"int", FL_ATTR_INT},   {"float", FL_ATTR_FLOAT}, {"scalar", FL_ATTR_SCALAR},
    {"axis", FL_ATTR_AXIS},   {"axes", FL_ATTR_AXES}, {"ints", FL_ATTR_INTS},   {"sizes", FL_ATTR_SIZES},
    {"dtype", FL_ATTR_DTYPE}, {"text", FL_ATTR_TEXT},
};

/* Reads "float", "mean|sum|none" or "ints|same|valid" after the colon. */
static const char *read_type(fl_param *param, const char *at)
{
    const char *start = at;
    char word[32];
    at = read_word(word, sizeof word, at);
    if (*at != '|') {
        for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++)
            if (strcmp(type_names[i].name, word) == 0) {
                param->type = type_names[i].type;
                return at;
            }
        assert(!"unknown type in a signature");
    }
    param->type = strcmp(word, "ints") == 0 ? FL_ATTR_INTS : FL_ATTR_WORD;
    if (param->type == FL_ATTR_INTS) start = at + 1;
    while (*at == '|') at = read_word(word, sizeof word, at + 1);
    assert((size_t)(at - start) < sizeof param->words);
    memcpy(param->words, start, (size_t)(at - start));
    return at;
}

/* Position of word in "a|b|c", -1 when it is not there. */
static int word_position(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (int i = 0; *words; i++) {
        size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, word, n) == 0) return i;
        words += n + (words[n] == '|');
    }
    return -1;
}

/* Reads the default after "=" up to , or ). */
static const char *read_default(fl_param *param, const char *at)
{
    size_t n = strcspn(at, ",)");
    char text[48];
    assert(n < sizeof text);
    memcpy(text, at, n);
    text[n] = 0;
    while (n && text[n - 1] == ' ') text[--n] = 0;
    fl_attr *a = &param->initial;
    param->required = false;
    if (strcmp(text, "nil") != 0) {
        a->given = true;
        a->count = 1;
        a->kind = FL_NUM_INT;
        if (param->type == FL_ATTR_WORD) a->integer = word_position(param->words, text);
        else if (param->type == FL_ATTR_BOOL) a->integer = strcmp(text, "true") == 0;
        else if (param->type == FL_ATTR_DTYPE) a->integer = fl_dtype_parse(text);
        else if (param->type == FL_ATTR_FLOAT || strpbrk(text, ".e")) {
            a->kind = FL_NUM_FLOAT;
            a->number = strtod(text, NULL);
        } else a->list[0] = strtoll(text, NULL, 10);
        assert(param->type != FL_ATTR_WORD || a->integer >= 0);
    }
    return at + strcspn(at, ",)");
}

/* One parameter, from its first character to the , or ) after it. */
static const char *read_param(fl_signature *signature, const char *at)
{
    assert(signature->param_count < FL_MAX_PARAMS);
    fl_param *param = &signature->params[signature->param_count++];
    if (*at == '~') {
        param->is_value = true;
        at++;
    }
    at = skip_space(read_word(param->name, sizeof param->name, at));
    if (strcmp(param->name, "options") == 0) {
        param->type = FL_ATTR_OPTIONS;
        param->optional = true;
        param->slot = -1;
        signature->has_options = true;
        return at;
    }
    if (*at != ':') {
        param->is_tensor = true;
        param->slot = signature->tensor_count++;
        if (strncmp(at, "...", 3) == 0) {
            param->is_list = signature->variadic = true;
            at += 3;
        }
        if (strncmp(at, "|n", 2) == 0) {
            param->number_allowed = true;
            at += 2;
        }
        if (*at == '?') {
            param->optional = true;
            at++;
        }
        return skip_space(at);
    }
    param->slot = signature->attr_count++;
    assert(param->slot < FL_MAX_ATTRS);
    param->required = true;
    if (!param->is_value) signature->shape_mask |= 1u << param->slot;
    at = skip_space(read_type(param, skip_space(at + 1)));
    if (*at == '=') at = read_default(param, skip_space(at + 1));
    return skip_space(at);
}

static fl_signature *parse(const fl_op *op)
{
    fl_signature *s = calloc(1, sizeof *s);
    const char *p = s ? strchr(op->sig, '(') : NULL;
    if (!p) abort(); /* a registered op without a signature, or no memory for the first call of one */
    p = skip_space(p + 1);
    while (*p && *p != ')') {
        p = read_param(s, p);
        assert(*p == ',' || *p == ')');
        if (*p == ',') p = skip_space(p + 1);
    }
    return s;
}

const fl_signature *fl_op_signature(const fl_op *op)
{
    struct entry *e = entry_of(op);
    if (FL_UNLIKELY(!e->op)) {
        e->signature = parse(op);
        e->op = op;
    }
    return e->signature;
}

/* ---- attributes ---- */

void fl_attrs_init(fl_attrs *attrs, const fl_op *op)
{
    const fl_signature *s = fl_op_signature(op);
    memset(attrs, 0, offsetof(fl_attrs, at));
    attrs->count = s->attr_count;
    for (int i = 0; i < s->param_count; i++)
        if (!s->params[i].is_tensor && s->params[i].slot >= 0) attrs->at[s->params[i].slot] = s->params[i].initial;
}

void fl_attr_set_list(fl_attrs *attrs, int slot, const int64_t *values, int count)
{
    attrs->at[slot].given = true;
    attrs->at[slot].kind = FL_NUM_INT;
    attrs->at[slot].count = count;
    memset(attrs->at[slot].list, 0, sizeof attrs->at[slot].list);
    for (int i = 0; i < count; i++) attrs->at[slot].list[i] = values[i];
}
