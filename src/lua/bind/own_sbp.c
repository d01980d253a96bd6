/*
** own_sbp.c -- the signatures of an op that a script defines: rows as "S(0), B -> S(0)".
*/
#include "arguments.h"
#include "own_op_parts.h"

#include <stdlib.h>
#include <string.h>

static const char *skip_space(const char *at)
{
    while (*at == ' ') at++;
    return at;
}

/* An axis counted from the end, S(-1), until the tensor is known: above all axes there are, below FL_B. */
enum { FROM_END = FL_MAX_NDIM };

/* Reads one SBP; where it ends, NULL: it is none. */
static const char *read_sbp(fl_sbp *out, const char *at)
{
    static const char *const words[] = {"P(max)", "P(min)", "P(sum)", "B", "P"};
    char *end;
    at = skip_space(at);
    if (at[0] == 'S' && at[1] == '(') {
        long axis = strtol(at + 2, &end, 10);
        if (end == at + 2 || *end != ')' || axis >= FL_MAX_NDIM || axis < -FL_MAX_NDIM) return NULL;
        *out = (fl_sbp)(axis < 0 ? FROM_END - 1 - axis : axis);
        return skip_space(end + 1);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(at, words[i], n) == 0 && fl_sbp_parse(out, words[i], 0)) return skip_space(at + n);
    }
    return NULL;
}

static void fail_counts(lua_State *L, const char *name, const char *text, int inputs, int outputs)
{
    FL_RAISE(L, "%s: sbp '%s': %d operand%s and %d result%s are expected", name, text, inputs, fl_own_plural(inputs),
             outputs, fl_own_plural(outputs));
}

/* Reads "S(0), B -> S(0)": inputs entries, then outputs. */
static void read_row(lua_State *L, fl_own_row_sbp *row, const char *name, const char *text, int inputs, int outputs)
{
    const char *at = text;
    for (int i = 0; i < inputs + outputs; i++) {
        bool last = i == inputs - 1 || i == inputs + outputs - 1;
        if (i == inputs && !(at[0] == '-' && at[1] == '>'))
            FL_RAISE(L, "%s: sbp '%s': -> is expected behind %d operand%s", name, text, inputs, fl_own_plural(inputs));
        const char *next = read_sbp(&row->at[i], i == inputs ? at + 2 : at);
        if (!next)
            FL_RAISE(L, "%s: sbp '%s': S(axis), B, P, P(max) or P(min) is expected at '%s'", name, text,
                     i == inputs ? at + 2 : at);
        at = next;
        if (last) continue;
        if (*at != ',') fail_counts(L, name, text, inputs, outputs);
        at++;
    }
    if (*at) fail_counts(L, name, text, inputs, outputs);
}

void fl_own_read_rows(lua_State *L, fl_own_op *op, const fl_signature *signature)
{
    const char *name = op->op.name;
    op->row_count = 0;
    if (!lua_istable(L, -1))
        FL_RAISE(L, "%s: sbp must be a list of rows as \"S(0), B -> S(0)\", got %s", name, fl_lua_type_name(L, -1));
    int n = (int)lua_rawlen(L, -1);
    if (n > FL_OWN_ROWS) FL_RAISE(L, "%s: sbp holds at most %d rows, got %d", name, FL_OWN_ROWS, n);
    for (int i = 0; i < n; i++) {
        if (lua_rawgeti(L, -1, i + 1) != LUA_TSTRING)
            FL_RAISE(L, "%s: sbp must be a list of rows as \"S(0), B -> S(0)\", row %d is %s", name, i + 1,
                     fl_lua_type_name(L, -1));
        read_row(L, &op->rows[i], name, lua_tostring(L, -1), signature->tensor_count, op->op.nout);
        lua_pop(L, 1);
    }
    op->row_count = n;
    lua_pop(L, 1);
}
/* True if the tensor has the axis that the SBP splits. A number is whole on every rank, so it is no partial sum. */
static bool resolve(fl_sbp *sbp, const fl_spec *spec)
{
    if (spec->kind != FL_TENSOR && fl_sbp_is_partial(*sbp)) return false;
    if (spec->kind != FL_TENSOR) *sbp = FL_B;
    if (!fl_sbp_is_split(*sbp)) return true;
    int axis = *sbp < FROM_END ? *sbp : spec->shape.ndim - 1 - (*sbp - FROM_END);
    if (axis < 0 || axis >= spec->shape.ndim) return false;
    *sbp = FL_S(axis);
    return true;
}

/* Of operands that broadcast those may be split that have all elements of the axis. */
static bool splits_broadcast(const fl_sigs *sigs, const fl_sbp *row)
{
    fl_sbp result = row[sigs->nin];
    for (int i = 0; i < sigs->nin; i++) {
        if (sigs->in[i].kind != FL_TENSOR || !fl_sbp_is_split(row[i])) continue;
        int axis = row[i] + sigs->out_logical->ndim - sigs->in_logical[i].ndim;
        if (result != FL_S(axis) || sigs->in_logical[i].dims[row[i]] != sigs->out_logical->dims[axis]) return false;
    }
    return true;
}

/* Rows that split axes which a tensor does not have are not for these tensors. */
void fl_own_sbp(fl_sigs *sigs)
{
    fl_own_op *op = (fl_own_op *)sigs->op;
    const fl_signature *s = fl_op_signature(sigs->op);
    fl_sbp *full = malloc(sizeof *full * (size_t)(sigs->nin + sigs->nout));
    for (int r = 0; full && r < op->row_count; r++) {
        bool fits = true;
        for (int i = 0; i < sigs->nin; i++) {
            full[i] = op->rows[r].at[i < s->tensor_count ? i : s->tensor_count - 1];
            fits &= resolve(&full[i], &sigs->in[i]);
        }
        for (int i = 0; i < sigs->nout; i++) {
            full[sigs->nin + i] = op->rows[r].at[s->tensor_count + i];
            fits &= resolve(&full[sigs->nin + i], &sigs->out[i]);
        }
        op->rows[r].met |= fits;
        if (fits && (!op->broadcasts || splits_broadcast(sigs, full))) fl_sig_add(sigs, NULL, full);
    }
    free(full);
}

int fl_own_unmet_row(const fl_op *op)
{
    int unmet = 0;
    fl_own_op *own = (fl_own_op *)op;
    if (op->sbp != fl_own_sbp || !own->rows_given) return 0;
    for (int r = own->row_count; r-- > 0; own->rows[r].met = false)
        if (!own->rows[r].met) unmet = r + 1;
    return unmet;
}
