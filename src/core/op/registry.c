/*
** registry.c -- finding ops and reading their signatures.
**
** Descriptors are constants collected by the linker; data about them from run time (the
** parsed signature) lies in a table beside them, keyed by the descriptor's address.
*/
#include "registry.h"
#include "outside.h"
#include "base/hash.h"
#include "base/locale.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { TABLE_BITS = 11, TABLE_SIZE = 1 << TABLE_BITS, TABLE_LIMIT = TABLE_SIZE / 4 * 3 };

struct entry {
    const fl_op *op;
    fl_signature *signature;
};

static struct entry table[TABLE_SIZE];
static int known; /* entries of `table` */

/* Ops that come when `table` is full enough, which has those of this library long before: it grows. */
static struct {
    struct entry *entries;
    int bits, count;
} late;

/* The op's entry in a table of 1 << bits, or the free one for it. */
static inline struct entry *entry_of(struct entry *entries, int bits, const fl_op *op)
{
    size_t mask = ((size_t)1 << bits) - 1, at = fl_hash_slot((uintptr_t)op >> 5, bits);
    while (entries[at].op && entries[at].op != op) at = (at + 1) & mask;
    return &entries[at];
}

/* Ops from elsewhere (ops/library.h). */
static const fl_op **registered; /* owned, and kept until the process ends */
static int registered_count, registered_capacity;

fl_status fl_op_register(const fl_op *op)
{
    if (registered_count == registered_capacity) {
        int capacity = registered_capacity ? 2 * registered_capacity : 64;
        const fl_op **grown = realloc(registered, sizeof *grown * (size_t)capacity);
        if (!grown) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", op->name);
        registered = grown;
        registered_capacity = capacity;
    }
    registered[registered_count++] = op;
    fl_ops_outside = true;
    return FL_OK;
}

void fl_op_forget(int count) { registered_count -= count; }

bool fl_op_is_registered(const fl_op *op)
{
    for (int i = 0; i < registered_count; i++)
        if (registered[i] == op) return true;
    return false;
}

/* The ops of this library by name, from the first search on. */
static const fl_op *by_name[TABLE_SIZE];

/* The slot of the op of that name: the op, or the empty slot where it belongs. */
static const fl_op **place_of(const char *name)
{
    size_t at = fl_hash_slot(fl_hash_words(FL_HASH_START, name, strlen(name)), TABLE_BITS);
    while (by_name[at] && strcmp(by_name[at]->name, name) != 0) at = (at + 1) % TABLE_SIZE;
    return &by_name[at];
}

const fl_op *fl_op_find_own(const char *name)
{
    static bool filled;
    assert(__stop_fl_ops - __start_fl_ops < TABLE_LIMIT);
    if (!filled) FL_FOR_EACH_OP(op) * place_of((*op)->name) = *op;
    filled = true;
    return *place_of(name);
}

const fl_op *fl_op_find(const char *name)
{
    const fl_op *own = fl_op_find_own(name);
    if (own) return own;
    for (int i = 0; i < registered_count; i++)
        if (strcmp(registered[i]->name, name) == 0) return registered[i];
    return NULL;
}

const char *fl_op_public_name(const fl_op *op)
{
    if (op->flags & FL_OP_HIDDEN) FL_FOR_EACH_OP(narrow)
    if ((*narrow)->wider && strcmp((*narrow)->wider, op->name) == 0) return (*narrow)->name;
    return op->name;
}

/* ---- parsing ---- */

/* A signature while it is read. */
struct reader {
    const char *text, *at;
};

static fl_status fail_at(const struct reader *reader, const char *at, const char *what)
{
    return fl_fail(FL_ERR_VALUE, "signature '%s': %s at '%.20s' (character %d)", reader->text, what, at,
                   (int)(at - reader->text) + 1);
}

static void skip_space(struct reader *reader)
{
    while (*reader->at == ' ') reader->at++;
}

static bool accept(struct reader *reader, const char *expected)
{
    size_t n = strlen(expected);
    if (strncmp(reader->at, expected, n) != 0) return false;
    reader->at += n;
    return true;
}

static bool in_word(const char *at)
{
    return isalnum((unsigned char)*at) || *at == '_' || (*at == '-' && isalpha((unsigned char)at[1]));
}

/* Reads a run of [A-Za-z0-9_] of at least one character, with single hyphens in it. */
static fl_status read_word(char *out, size_t size, struct reader *reader, const char *what)
{
    const char *start = reader->at;
    while (in_word(reader->at)) reader->at++;
    size_t n = (size_t)(reader->at - start);
    if (n == 0 || isdigit((unsigned char)*start)) return fail_at(reader, start, what);
    if (n >= size) return fail_at(reader, start, "a name that is too long");
    memcpy(out, start, n);
    out[n] = 0;
    return FL_OK;
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
static fl_status read_type(fl_param *param, struct reader *reader)
{
    const char *start = reader->at;
    char word[48];
    FL_TRY(read_word(word, sizeof word, reader, "a type is missing"));
    if (*reader->at != '|') {
        for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++)
            if (strcmp(type_names[i].name, word) == 0) {
                param->type = type_names[i].type;
                return FL_OK;
            }
        return fail_at(reader, start,
                       "an unknown type (bool int float scalar axis axes ints sizes dtype, or words: mean|sum)");
    }
    param->type = strcmp(word, "ints") == 0 ? FL_ATTR_INTS : FL_ATTR_WORD;
    if (param->type == FL_ATTR_INTS) start = reader->at + 1;
    while (accept(reader, "|")) FL_TRY(read_word(word, sizeof word, reader, "a word is missing"));
    size_t n = (size_t)(reader->at - start);
    if (n >= sizeof param->words) return fail_at(reader, start, "too many words");
    memcpy(param->words, start, n);
    return FL_OK;
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

/* A number, all of the text. */
static bool read_number(fl_attr *attr, const fl_param *param, const char *text)
{
    char *end;
    if (param->type == FL_ATTR_FLOAT || strpbrk(text, ".ein")) {
        attr->kind = FL_NUM_FLOAT;
        attr->number = fl_plain_number(text, &end);
        return end != text && !*end && (param->type == FL_ATTR_FLOAT || param->type == FL_ATTR_SCALAR);
    }
    errno = 0;
    attr->list[0] = strtoll(text, &end, 10);
    return end != text && !*end && errno == 0;
}

/* Reads the default after "=" up to , or ). */
static fl_status read_default(fl_param *param, struct reader *reader)
{
    const char *start = reader->at;
    size_t n = strcspn(start, ",)");
    char text[48];
    reader->at += n;
    while (n && start[n - 1] == ' ') n--;
    if (n == 0 || n >= sizeof text) return fail_at(reader, start, "a default is missing or too long");
    memcpy(text, start, n);
    text[n] = 0;
    fl_attr *a = &param->initial;
    param->required = false;
    if (strcmp(text, "nil") == 0) return FL_OK;
    bool good = true;
    a->given = true;
    a->count = 1;
    a->kind = FL_NUM_INT;
    if (param->type == FL_ATTR_WORD) good = (a->integer = word_position(param->words, text)) >= 0;
    else if (param->type == FL_ATTR_BOOL) good = (a->integer = strcmp(text, "true") == 0) || strcmp(text, "false") == 0;
    else if (param->type == FL_ATTR_DTYPE)
        good = (a->integer = (int64_t)fl_dtype_parse(text)) < FL_DTYPE_COUNT && a->integer >= 0;
    else if (param->type == FL_ATTR_TEXT) good = false;
    else good = read_number(a, param, text);
    return good ? FL_OK : fail_at(reader, start, "a default that does not fit the type");
}

static fl_status read_tensor(fl_signature *signature, fl_param *param, struct reader *reader)
{
    param->is_tensor = true;
    param->slot = signature->tensor_count++;
    if (param->is_value) return fail_at(reader, reader->at, "~ is for attributes (~name: type)");
    if (signature->variadic) return fail_at(reader, reader->at, "a list of tensors must be the last tensor");
    if (accept(reader, "...")) param->is_list = signature->variadic = true;
    if (accept(reader, "|n")) param->number_allowed = true;
    if (accept(reader, "?")) param->optional = true;
    return FL_OK;
}

/* One parameter, from its first character to the , or ) after it. */
static fl_status read_param(fl_signature *signature, struct reader *reader)
{
    const char *start = reader->at;
    if (signature->param_count == FL_MAX_PARAMS) return fail_at(reader, start, "more than 16 parameters");
    fl_param *param = &signature->params[signature->param_count];
    param->is_value = accept(reader, "~");
    FL_TRY(read_word(param->name, sizeof param->name, reader, "a name is missing"));
    for (int i = 0; i < signature->param_count; i++)
        if (strcmp(signature->params[i].name, param->name) == 0)
            return fail_at(reader, start, "a name that is there already");
    signature->param_count++;
    skip_space(reader);
    if (strcmp(param->name, "options") == 0) {
        param->type = FL_ATTR_OPTIONS;
        param->optional = true;
        param->slot = -1;
        signature->has_options = true;
        return FL_OK;
    }
    if (!accept(reader, ":")) return read_tensor(signature, param, reader);
    param->slot = signature->attr_count++;
    if (param->slot >= FL_MAX_ATTRS) return fail_at(reader, start, "more than 10 attributes");
    param->required = true;
    if (!param->is_value) signature->shape_mask |= 1u << param->slot;
    skip_space(reader);
    FL_TRY(read_type(param, reader));
    skip_space(reader);
    if (!accept(reader, "=")) return FL_OK;
    skip_space(reader);
    return read_default(param, reader);
}

fl_status fl_signature_parse(fl_signature *out, const char *text)
{
    struct reader r = {text, text};
    char name[64];
    memset(out, 0, sizeof *out);
    do FL_TRY(read_word(name, sizeof name, &r, "a name is missing"));
    while (accept(&r, ".")); /* "linalg.det" */
    if (!accept(&r, "(")) return fail_at(&r, r.at, "( is missing");
    skip_space(&r);
    while (*r.at != ')') {
        FL_TRY(read_param(out, &r));
        skip_space(&r);
        if (accept(&r, ",")) skip_space(&r);
        else if (*r.at != ')') return fail_at(&r, r.at, ", or ) is missing");
    }
    return r.at[1] ? fail_at(&r, r.at + 1, "text behind the )") : FL_OK;
}

static fl_signature *parse(const fl_op *op)
{
    fl_signature *s = malloc(sizeof *s);
    if (!s || fl_signature_parse(s, op->sig) != FL_OK) {
        fprintf(stderr, "%s: %s\n", op->name, s ? fl_message() : "out of memory");
        abort(); /* a registered op with a bad signature, or no memory for the first call of one */
    }
    return s;
}

static void grow_late(void)
{
    int bits = late.entries ? late.bits + 1 : TABLE_BITS;
    struct entry *grown = calloc((size_t)1 << bits, sizeof *grown);
    if (!grown) {
        fprintf(stderr, "out of memory for the signatures of ops\n");
        abort();
    }
    for (size_t i = 0; late.entries && i < (size_t)1 << late.bits; i++)
        if (late.entries[i].op) *entry_of(grown, bits, late.entries[i].op) = late.entries[i];
    free(late.entries);
    late.entries = grown;
    late.bits = bits;
}

/* The signature of an op that `table` has not, where it would lie at e. */
static __attribute__((noinline)) const fl_signature *new_signature(struct entry *entry, const fl_op *op)
{
    int *count = &known;
    if (known == TABLE_LIMIT) {
        if (!late.entries || late.count == (1 << late.bits) / 2) grow_late();
        entry = entry_of(late.entries, late.bits, op);
        count = &late.count;
    }
    if (!entry->op) {
        entry->signature = parse(op);
        entry->op = op;
        ++*count;
    }
    return entry->signature;
}

const fl_signature *fl_op_signature(const fl_op *op)
{
    struct entry *e = entry_of(table, TABLE_BITS, op);
    return FL_UNLIKELY(!e->op) ? new_signature(e, op) : e->signature;
}

const char *fl_op_operand_name(const fl_op *op, int i)
{
    const fl_signature *s = fl_op_signature(op);
    for (int k = s->param_count - 1; k >= 0; k--)
        if (s->params[k].is_tensor && s->params[k].slot <= i) return s->params[k].name;
    return "an operand";
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
