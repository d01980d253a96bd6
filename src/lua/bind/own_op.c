/*
** own_op.c -- ops that a script defines (own_op.lua): descriptors whose hooks call functions of Lua.
**
** A descriptor is never freed, because plans, tapes and captured programs name it, so the list of them has no limit;
** what it calls belongs to one Lua state, and ends with that. A formula whose gradients are derived calls nothing of
** its own: the same definition again, in the same state or after the end of the one before, takes the descriptor that
** is there. A definition that fails leaves nothing. Inference calls Lua once per kind of operands, as the plan is kept.
*/
#include "arguments.h"
#include "instance.h"
#include "members.h"
#include "op_call.h"
#include "own_op.h"
#include "own_op_parts.h"
#include "tensors.h"
#include "trace.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 64, MOST_ENTRIES = FL_MAX_PARAMS + FL_MAX_OUT };

/* A signature of one hierarchy axis: an SBP for each tensor parameter, then for each result. */
struct row {
    fl_sbp at[MOST_ENTRIES];
};

struct own_op {
    fl_op op;                  /* first: hooks get its address */
    fl_lua_instance *instance; /* of the state that defined it: a reference */
    fl_formula *formula;       /* or NULL */
    int functions;             /* registry reference: the table of infer, sbp, forward, backward */
    bool broadcasts;           /* it has no infer */
    int row_count;             /* of the last inference */
    bool is_shared;            /* a formula that the same definition may take over */
    char **samples;            /* owned; NULL-terminated */
    struct own_op *next;       /* of `ops` */
    struct row rows[MOST_ROWS];
};

static struct own_op *ops;

#define UNFINISHED_TYPE "an unfinished op" /* a userdata: an own_op that is freed with it, or NULL */

static const struct own_op *own(const fl_op *op) { return (const struct own_op *)op; }

/* ---- calling Lua from the core ---- */

/* The error on top of the stack without the line that it will be raised at once more. */
static const char *bare_message(lua_State *L)
{
    char line[256];
    const char *text = luaL_tolstring(L, -1, NULL);
    fl_lua_where(L, line, sizeof line);
    size_t n = strlen(line);
    return n && strncmp(text, line, n) == 0 && text[n] == ':' && text[n + 1] == ' ' ? text + n + 2 : text;
}

/* Calls f(job) in the op's state, where an error of Lua's becomes one of the core. */
static fl_status enter(const fl_op *op, lua_CFunction f, void *job)
{
    lua_State *caller = fl_lua_current, *L = fl_lua_thread_of(own(op)->instance);
    if (!L) return fl_fail(FL_ERR_STATE, "%s: the lua_State that defined this op is closed", op->name);
    if (!lua_checkstack(L, 8)) return fl_fail(FL_ERR_MEMORY, "%s: the Lua stack is full", op->name);
    int top = lua_gettop(L);
    fl_status status = FL_OK;
    lua_pushcfunction(L, f);
    lua_pushlightuserdata(L, job);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK) status = fl_fail(FL_ERR_VALUE, "%s", bare_message(L));
    lua_settop(L, top);
    fl_lua_enter(caller ? caller : L);
    return status;
}

/* Pushes a function of the op by its name; false: it has none. */
static bool push_function(lua_State *L, const fl_op *op, const char *name)
{
    luaL_checkstack(L, FL_MAX_PARAMS + 16, op->name);
    lua_rawgeti(L, LUA_REGISTRYINDEX, own(op)->functions);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    return lua_toboolean(L, -1);
}

/* Pushes the arguments in the order of the signature. push: an operand; with_values: ~attributes as well. */
static int push_arguments(lua_State *L, const fl_op *op, const void *in, int nin, const fl_attrs *attrs,
                          void (*push)(lua_State *, const void *, int), bool with_values)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (p->is_list) {
            lua_createtable(L, nin - p->slot, 0);
            for (int k = p->slot; k < nin; k++) {
                push(L, in, k);
                lua_rawseti(L, -2, k - p->slot + 1);
            }
        } else if (p->is_tensor) push(L, in, p->slot);
        else if (!attrs->at[p->slot].given || (p->is_value && !with_values)) lua_pushnil(L);
        else fl_lua_push_attr(L, p, &attrs->at[p->slot]);
    }
    return s->param_count;
}

/* ---- inference ---- */

/* Pushes {shape =, dtype =, ndim =} of operand i; nil for one that is absent. */
static void push_spec(lua_State *L, const void *in, int i)
{
    const fl_spec *spec = (const fl_spec *)in + i;
    if (spec->kind == FL_NONE) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 4);
    lua_createtable(L, spec->shape.ndim, 0);
    for (int k = 0; k < spec->shape.ndim; k++) {
        lua_pushinteger(L, spec->shape.dims[k]);
        lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "shape");
    lua_pushstring(L, fl_dtype_name(spec->dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushinteger(L, spec->shape.ndim);
    lua_setfield(L, -2, "ndim");
    lua_pushboolean(L, spec->kind != FL_TENSOR);
    lua_setfield(L, -2, "is_number");
}

/* The result at index: a table with a shape and perhaps a dtype. */
static void take_spec(lua_State *L, fl_infer *infer, int result, int index)
{
    fl_spec *out = &infer->out[result];
    if (!lua_istable(L, index))
        FL_RAISE(L, "%s: infer must return {shape =, dtype =} for each result, result %d is %s", infer->name,
                 result + 1, fl_lua_type_name(L, index));
    if (lua_getfield(L, index, "shape") != LUA_TTABLE)
        FL_RAISE(L, "%s: infer must return {shape =, dtype =}, the shape of result %d is %s", infer->name, result + 1,
                 fl_lua_type_name(L, -1));
    int64_t dims[FL_MAX_NDIM];
    int ndim = fl_lua_check_list(L, lua_gettop(L), dims, FL_MAX_NDIM, infer->name, "the shape of a result");
    FL_CHECK(L, fl_shape_make(&out->shape, infer->name, dims, ndim));
    if (lua_getfield(L, index, "dtype") != LUA_TNIL) out->dtype = fl_lua_check_dtype(L, lua_gettop(L), infer->name);
    else out->dtype = fl_infer_promote(infer);
    lua_pop(L, 2);
}

/* Where there is no infer: the operands broadcast. */
static fl_status infer_broadcast(fl_infer *infer)
{
    fl_shape shape = {0, {0}};
    for (int i = 0; i < infer->nin; i++)
        if (infer->in[i].kind == FL_TENSOR)
            FL_TRY(fl_shape_broadcast(&shape, infer->name, &shape, &infer->in[i].shape));
    for (int i = 0; i < infer->nout; i++) {
        infer->out[i].shape = shape;
        infer->out[i].dtype = fl_infer_promote(infer);
    }
    return FL_OK;
}

static void run_infer(lua_State *L, fl_infer *infer)
{
    if (!push_function(L, infer->op, "infer")) {
        lua_pop(L, 1);
        FL_CHECK(L, infer_broadcast(infer));
        return;
    }
    int n = push_arguments(L, infer->op, infer->in, infer->nin, infer->attrs, push_spec, false);
    int first = lua_gettop(L) - n;
    lua_call(L, n, LUA_MULTRET);
    int given = lua_gettop(L) - first + 1;
    if (given > infer->nout)
        FL_RAISE(L, "%s: infer must return {shape =, dtype =} for each result, %d in all, got %d values", infer->name,
                 infer->nout, given);
    lua_settop(L, first + infer->nout - 1);
    for (int i = 0; i < infer->nout; i++) take_spec(L, infer, i, first + i);
}

/* ---- SBP ---- */

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

static const char *plural(int n) { return n == 1 ? "" : "s"; }

static void fail_counts(lua_State *L, const char *name, const char *text, int inputs, int outputs)
{
    FL_RAISE(L, "%s: sbp '%s': %d operand%s and %d result%s are expected", name, text, inputs, plural(inputs), outputs,
             plural(outputs));
}

/* Reads "S(0), B -> S(0)": inputs entries, then outputs. */
static void read_row(lua_State *L, struct row *row, const char *name, const char *text, int inputs, int outputs)
{
    const char *at = text;
    for (int i = 0; i < inputs + outputs; i++) {
        bool last = i == inputs - 1 || i == inputs + outputs - 1;
        if (i == inputs && !(at[0] == '-' && at[1] == '>'))
            FL_RAISE(L, "%s: sbp '%s': -> is expected behind %d operand%s", name, text, inputs, plural(inputs));
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

/* The rows of the list on top of the stack, which is popped. */
static void read_rows(lua_State *L, struct own_op *op, const fl_signature *s)
{
    const char *name = op->op.name;
    op->row_count = 0;
    if (!lua_istable(L, -1))
        FL_RAISE(L, "%s: sbp must be a list of rows as \"S(0), B -> S(0)\", got %s", name, fl_lua_type_name(L, -1));
    int n = (int)lua_rawlen(L, -1);
    if (n > MOST_ROWS) FL_RAISE(L, "%s: sbp holds at most %d rows, got %d", name, MOST_ROWS, n);
    for (int i = 0; i < n; i++) {
        if (lua_rawgeti(L, -1, i + 1) != LUA_TSTRING)
            FL_RAISE(L, "%s: sbp must be a list of rows as \"S(0), B -> S(0)\", row %d is %s", name, i + 1,
                     fl_lua_type_name(L, -1));
        read_row(L, &op->rows[i], name, lua_tostring(L, -1), s->tensor_count, op->op.nout);
        lua_pop(L, 1);
    }
    op->row_count = n;
    lua_pop(L, 1);
}

static int infer_in_lua(lua_State *L)
{
    fl_infer *infer = lua_touserdata(L, 1);
    struct own_op *op = (struct own_op *)infer->op;
    run_infer(L, infer);
    if (push_function(L, infer->op, "sbp") && !lua_istable(L, -1)) {
        int n = push_arguments(L, infer->op, infer->in, infer->nin, infer->attrs, push_spec, false);
        lua_call(L, n, 1);
        read_rows(L, op, fl_op_signature(&op->op));
    }
    return 0;
}

static fl_status own_infer(fl_infer *infer)
{
    fl_status status = enter(infer->op, infer_in_lua, infer);
    size_t n = strlen(infer->name);
    if (status == FL_OK || strncmp(fl_message(), infer->name, n) == 0) return status;
    return fl_fail_prefix(status, "%s: ", infer->name);
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
static void own_sbp(fl_sigs *sigs)
{
    const struct own_op *op = own(sigs->op);
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
        if (fits && (!op->broadcasts || splits_broadcast(sigs, full))) fl_sig_add(sigs, NULL, full);
    }
    free(full);
}

/* ---- forward ---- */

enum { LAST_MADE = 16 };

/* A call of forward. */
struct forward {
    const fl_op *op;
    const fl_operand *in;
    int nin;
    const fl_attrs *attrs;
    fl_tensor **out;
    bool recorded;
    /* storages of the tensors that it made last */
    const fl_storage *made[LAST_MADE];
    unsigned made_count;
    void (*made_before)(fl_tensor *); /* fl_tensor_made */
    struct forward *outer;
};

static struct forward *forward_now;

static void note_made(fl_tensor *tensor)
{
    for (struct forward *call = forward_now; call; call = call->outer) {
        call->made[call->made_count++ % LAST_MADE] = tensor->storage;
        if (call->made_before && call->made_before != note_made) call->made_before(tensor);
    }
}

static void begin_forward(struct forward *call)
{
    call->outer = forward_now;
    call->made_before = fl_tensor_made;
    forward_now = call;
    fl_tensor_made = note_made;
}

/* Whoever listened meanwhile has replaced note_made: what was made then is not known, and is copied. */
static void end_forward(struct forward *call)
{
    if (fl_tensor_made == note_made) fl_tensor_made = call->made_before;
    forward_now = call->outer;
}

static void push_operand(lua_State *L, const void *in, int i)
{
    const fl_operand *o = (const fl_operand *)in + i;
    switch (o->kind) {
    case FL_TENSOR: fl_lua_push_tensor(L, o->tensor); break;
    case FL_NUM_BOOL: lua_pushboolean(L, o->integer != 0); break;
    case FL_NUM_INT: lua_pushinteger(L, o->integer); break;
    case FL_NUM_FLOAT: lua_pushnumber(L, o->number); break;
    default: lua_pushnil(L);
    }
}

static bool is_made(const struct forward *call, const fl_storage *storage)
{
    for (unsigned i = 0; i < call->made_count && i < LAST_MADE; i++)
        if (call->made[i] == storage) return true;
    return false;
}

/* True if the memory of result i may be that of an operand, of another result or of what the script keeps. What is
** recorded is held by the tape, too, so there the count of references says nothing. */
static bool is_shared(const struct forward *call, const fl_tensor *t, int i)
{
    if (!t->storage) return false;
    for (int k = 0; k < call->nin; k++)
        if (call->in[k].kind == FL_TENSOR && call->in[k].tensor->storage == t->storage) return true;
    for (int k = 0; k < i; k++)
        if (call->out[k]->storage == t->storage) return true;
    if (!call->recorded && t->storage->refs > 1 + fl_storage_watchers) return true;
    return !is_made(call, t->storage);
}

/* A result that shares memory becomes a tensor of its own. (Not found is one that this call has made and keeps.) */
static fl_status own_result(fl_tensor **out, fl_tensor *t, const struct forward *call, int i)
{
    if (is_shared(call, t, i)) return FL_CALL(out, clone, fl_of(t));
    *out = fl_tensor_ref(t);
    return FL_OK;
}

static const char *operand_name(const fl_op *op, int i)
{
    const fl_signature *s = fl_op_signature(op);
    for (int k = s->param_count - 1; k >= 0; k--)
        if (s->params[k].is_tensor && s->params[k].slot <= i) return s->params[k].name;
    return "?";
}

static uint32_t version_of(const fl_operand *operand)
{
    return operand->kind == FL_TENSOR && operand->tensor->storage ? operand->tensor->storage->var.version : 0;
}

static int forward_in_lua(lua_State *L)
{
    enum { FIRST = 3 }; /* result, behind the job and the versions */
    struct forward *call = lua_touserdata(L, 1);
    const fl_op *op = call->op;
    push_function(L, op, "forward");
    uint32_t *versions = lua_newuserdatauv(L, sizeof *versions * (size_t)call->nin, 0);
    lua_insert(L, 2);
    for (int i = 0; i < call->nin; i++) versions[i] = version_of(&call->in[i]);
    int n = push_arguments(L, op, call->in, call->nin, call->attrs, push_operand, true);
    lua_call(L, n, LUA_MULTRET);
    for (int i = 0; i < call->nin; i++)
        if (version_of(&call->in[i]) != versions[i])
            FL_RAISE(L, "%s: forward changed %s in place; let it work on a clone()", op->name, operand_name(op, i));
    int count = lua_gettop(L) - FIRST + 1;
    if (count != op->nout)
        FL_RAISE(L, "%s: forward must return %d tensor%s, got %d value%s", op->name, op->nout, plural(op->nout), count,
                 plural(count));
    for (int i = 0; i < op->nout; i++)
        if (!fl_lua_to_tensor(L, FIRST + i))
            FL_RAISE(L, "%s: forward must return tensors, result %d is %s", op->name, i + 1,
                     fl_lua_type_name(L, FIRST + i));
    for (int i = 0; i < op->nout; i++) FL_CHECK(L, own_result(&call->out[i], fl_lua_to_tensor(L, FIRST + i), call, i));
    return 0;
}

static fl_status own_compute(const fl_op *op, fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    struct forward call = {
        .op = op, .in = in, .nin = nin, .attrs = attrs, .out = out, .recorded = fl_record_wanted(op, in, nin)};
    for (int i = 0; i < op->nout; i++) out[i] = NULL;
    begin_forward(&call);
    fl_status status = enter(op, forward_in_lua, &call);
    end_forward(&call);
    for (int i = 0; i < op->nout && status != FL_OK; i++) {
        fl_tensor_unref(out[i]);
        out[i] = NULL;
    }
    return status;
}

/* ---- backward ---- */

/* Pushes what backward gets as ctx: operands, attributes and results by name, and which gradients are needed. */
static void push_context(lua_State *L, const fl_grad *g)
{
    const fl_signature *s = fl_op_signature(g->op);
    int n = push_arguments(L, g->op, g->in, g->nin, g->attrs, push_operand, true), first = lua_gettop(L) - n + 1;
    lua_createtable(L, 0, n + 2);
    int context = lua_gettop(L);
    lua_createtable(L, 0, s->tensor_count);
    for (int i = 0; i < n; i++) {
        const fl_param *p = &s->params[i];
        lua_pushvalue(L, first + i);
        lua_setfield(L, context, p->name);
        bool need = false;
        for (int k = p->slot; p->is_tensor && k < (p->is_list ? g->nin : p->slot + 1); k++) need |= g->need[k];
        lua_pushboolean(L, need);
        lua_setfield(L, -2, p->name);
    }
    lua_setfield(L, context, "needs");
    if (g->nout == 1) fl_lua_push_tensor(L, g->out[0]);
    else {
        lua_createtable(L, g->nout, 0);
        for (int i = 0; i < g->nout; i++) {
            fl_lua_push_tensor(L, g->out[i]);
            lua_rawseti(L, -2, i + 1);
        }
    }
    lua_setfield(L, context, "out");
    lua_replace(L, first);
    lua_settop(L, first);
}

/* The gradients at first.., one for each tensor parameter, of a list a list. */
static void take_gradients(lua_State *L, fl_grad *g, int first)
{
    const fl_signature *s = fl_op_signature(g->op);
    int given = lua_gettop(L) - first + 1, at = 0;
    if (given > s->tensor_count)
        FL_RAISE(L, "it must return a gradient for each of the %d operand%s, got %d", s->tensor_count,
                 plural(s->tensor_count), given);
    lua_settop(L, first + s->tensor_count - 1);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor) continue;
        int index = first + at++;
        if (!p->is_list) {
            fl_lua_take_gradient(L, index, &g->gin[p->slot], g->in_meta[p->slot], g->need[p->slot]);
            continue;
        }
        if (!lua_istable(L, index)) FL_RAISE(L, "it must return a list of gradients for '%s'", p->name);
        for (int k = p->slot; k < g->nin; k++) {
            lua_rawgeti(L, index, k - p->slot + 1);
            fl_lua_take_gradient(L, -1, &g->gin[k], g->in_meta[k], g->need[k]);
            lua_pop(L, 1);
        }
    }
}

static int backward_in_lua(lua_State *L)
{
    fl_grad *g = lua_touserdata(L, 1);
    push_function(L, g->op, "backward");
    push_context(L, g);
    for (int i = 0; i < g->nout; i++) {
        fl_box *box = fl_lua_new_box(L);
        if (g->gout[i]) box->tensor = fl_tensor_ref(g->gout[i]);
        else FL_CHECK(L, fl_vjp_zeros(&box->tensor, g->out_meta[i]));
    }
    lua_call(L, 1 + g->nout, LUA_MULTRET);
    take_gradients(L, g, 2);
    return 0;
}

static fl_status own_grad(fl_grad *g)
{
    if (g->op->formula && g->op->formula->gradients) return fl_formula_grad(g);
    fl_status status = enter(g->op, backward_in_lua, g);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "error in the backward of %s: ", g->op->name);
}

/* ---- defining ---- */

bool fl_own_flag(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

void *fl_own_allocate(lua_State *L, size_t bytes)
{
    void *block = calloc(1, bytes);
    if (!block) fl_lua_error(L, fl_fail(FL_ERR_MEMORY, "op: out of memory"));
    return block;
}

lua_Integer fl_own_integer(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    lua_Integer value = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return value;
}

/* Names that functions keep for as long as the process lives, each once. */
struct text {
    struct text *next;
    char chars[];
};
static struct text *texts;

const char *fl_own_in_place_name(lua_State *L, const char *name)
{
    size_t n = strlen(name);
    for (struct text *t = texts; t; t = t->next)
        if (strncmp(t->chars, name, n) == 0 && t->chars[n] == '_' && !t->chars[n + 1]) return t->chars;
    struct text *t = fl_own_allocate(L, sizeof *t + n + 2);
    memcpy(t->chars, name, n);
    memcpy(t->chars + n, "_", 2);
    t->next = texts;
    texts = t;
    return t->chars;
}

/* A copy of the text on top of the stack, which is popped; `what` it is, for messages. */
static char *copy_text(lua_State *L, const char *what)
{
    size_t n;
    const char *text = lua_tolstring(L, -1, &n);
    if (strlen(text) != n) FL_RAISE(L, "op: %s must not contain a zero byte", what);
    char *copy = fl_own_allocate(L, n + 1);
    memcpy(copy, text, n);
    lua_pop(L, 1);
    return copy;
}

static char *copy_field(lua_State *L, const char *field)
{
    lua_getfield(L, 1, field);
    return copy_text(L, field);
}

static void copy_samples(lua_State *L, struct own_op *op)
{
    lua_getfield(L, 1, "samples");
    int count = (int)lua_rawlen(L, -1);
    op->samples = fl_own_allocate(L, sizeof *op->samples * (size_t)(count + 1));
    op->op.samples = (const char *const *)op->samples;
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, -1, i + 1);
        op->samples[i] = copy_text(L, "a sample");
    }
    lua_pop(L, 1);
}

/* g, g1 to g4: what gradients as text call the gradients of the results. */
static bool is_gradient_name(const char *name)
{
    return name[0] == 'g' && (!name[1] || (name[1] >= '1' && name[1] <= '4' && !name[2]));
}

/* Checks a signature: what an op of a script cannot have. */
static void check_signature(lua_State *L, fl_signature *s, const char *sig)
{
    FL_CHECK(L, fl_signature_parse(s, sig));
    if (s->has_options) FL_RAISE(L, "op: signature '%s': options are for ops that make tensors", sig);
    if (s->tensor_count == 0) FL_RAISE(L, "op: signature '%s': an op takes at least one tensor", sig);
    for (int i = 0; i < s->param_count; i++) {
        const fl_param *p = &s->params[i];
        if (!p->is_tensor && p->type == FL_ATTR_TEXT)
            FL_RAISE(L, "op: signature '%s': '%s' cannot be text; name the words: %s: one|two", sig, p->name, p->name);
        if (strcmp(p->name, "out") == 0 || strcmp(p->name, "needs") == 0 || is_gradient_name(p->name))
            FL_RAISE(L, "op: signature '%s': a parameter cannot be called '%s'", sig, p->name);
    }
}

/* ---- descriptors ---- */

static void free_op(struct own_op *op)
{
    for (char **sample = op->samples; sample && *sample; sample++) free(*sample);
    if (op->formula) free(op->formula->gradients);
    free(op->formula);
    free(op->samples);
    free((char *)op->op.name);
    free((char *)op->op.sig);
    free((char *)op->op.doc);
    free(op);
}

static int unfinished_gc(lua_State *L)
{
    struct own_op **handle = lua_touserdata(L, 1);
    if (*handle) free_op(*handle);
    *handle = NULL;
    return 0;
}

/* A descriptor in a userdata, which is pushed and frees it. */
static struct own_op **new_op(lua_State *L)
{
    struct own_op **handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = NULL;
    luaL_setmetatable(L, UNFINISHED_TYPE);
    *handle = fl_own_allocate(L, sizeof **handle);
    (*handle)->functions = LUA_NOREF;
    return handle;
}

static void use_formula(struct own_op *op)
{
    op->op.formula = op->formula;
    op->op.flags |= FL_OP_ELEMENTWISE;
    op->op.infer = fl_formula_infer;
    op->op.sbp = fl_formula_sbp;
    op->op.cpu = fl_formula_kernel;
    op->op.on_device = fl_formula_on_device;
    op->op.compute = fl_formula_compute;
}

/* Fills a descriptor from the definition, the table at 1. */
static void fill_op(lua_State *L, struct own_op *op)
{
    fl_signature signature;
    op->op = (fl_op){.nout = (int)fl_own_integer(L, 1, "results"),
                     .saves_in = (uint32_t)fl_own_integer(L, 1, "saves_in"),
                     .saves_out = (uint32_t)fl_own_integer(L, 1, "saves_out"),
                     .flags = fl_own_flag(L, 1, "differentiable") ? 0 : FL_OP_NO_GRAD,
                     .infer = own_infer,
                     .sbp = own_sbp,
                     .compute = own_compute,
                     .grad = fl_own_flag(L, 1, "backward") ? own_grad : NULL};
    op->op.sig = copy_field(L, "sig");
    check_signature(L, &signature, op->op.sig);
    op->op.name = copy_field(L, "name");
    op->op.doc = copy_field(L, "doc");
    copy_samples(L, op);
    if (lua_getfield(L, 1, "formula") == LUA_TTABLE) {
        fl_own_read_formula(L, &op->formula, op->op.name, lua_gettop(L));
        use_formula(op);
    }
    op->is_shared = op->formula && fl_own_flag(L, 1, "derived");
    op->broadcasts = !fl_own_flag(L, 1, "infer");
    if (lua_getfield(L, 1, "sbp") == LUA_TTABLE) read_rows(L, op, &signature);
}

static bool same_samples(const struct own_op *a, const struct own_op *b)
{
    char **x = a->samples, **y = b->samples;
    while (*x && *y && strcmp(*x, *y) == 0) x++, y++;
    return !*x && !*y;
}

/* A descriptor that computes the same and belongs to no other state that is open; NULL: there is none. */
static struct own_op *find_same(const struct own_op *wanted)
{
    if (!wanted->is_shared) return NULL;
    for (struct own_op *op = ops; op; op = op->next)
        if (op->is_shared && (!op->instance->main || op->instance == fl_lua_running)
            && strcmp(op->op.name, wanted->op.name) == 0 && strcmp(op->op.sig, wanted->op.sig) == 0
            && strcmp(op->op.doc, wanted->op.doc) == 0 && op->op.flags == wanted->op.flags
            && op->op.saves_in == wanted->op.saves_in && op->op.saves_out == wanted->op.saves_out
            && same_samples(op, wanted) && fl_own_same_formula(op->formula, wanted->formula))
            return op;
    return NULL;
}

/* The descriptor that stands for the one in the handle: another one that is the same, or that, which stays. */
static struct own_op *keep_op(lua_State *L, struct own_op **handle)
{
    struct own_op *op = find_same(*handle);
    lua_pushvalue(L, 1);
    int functions = luaL_ref(L, LUA_REGISTRYINDEX);
    if (!op) {
        op = *handle;
        *handle = NULL;
        op->next = ops;
        ops = op;
    } else {
        if (op->instance == fl_lua_running) luaL_unref(L, LUA_REGISTRYINDEX, op->functions);
        fl_lua_instance_unref(op->instance);
        free(op->formula->gradients); /* of ops that may have ended with the other state: they are derived again */
        op->formula->gradients = NULL;
    }
    op->instance = fl_lua_instance_ref(fl_lua_running);
    op->functions = functions;
    return op;
}

/* define{name, sig, doc, samples, results, saves_in, saves_out, differentiable, infer, sbp, forward, backward, formula,
** linear, as_ops, derived}: the op's function, whether it is a method, and of a formula x:name_(). own_op.lua has
** checked the types. */
static int define(lua_State *L)
{
    fl_lua_enter(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    struct own_op **handle = new_op(L);
    fill_op(L, *handle);
    const char *changing = (*handle)->formula ? fl_own_in_place_name(L, (*handle)->op.name) : NULL;
    struct own_op *op = keep_op(L, handle);
    fl_lua_push_op(L, &op->op, op->op.name, false);
    lua_pushboolean(L, fl_lua_tensor_first(&op->op));
    if (!changing) return 2;
    fl_lua_push_op(L, &op->op, changing, true);
    return 3;
}

/* parameters(sig) -> the parameters in order, each {name =, is_tensor =, is_value =, is_list =, takes_number =,
** is_number =, default = a number or nil} */
static int parameters(lua_State *L)
{
    fl_signature s;
    FL_CHECK(L, fl_signature_parse(&s, luaL_checkstring(L, 1)));
    lua_createtable(L, s.param_count, 0);
    for (int i = 0; i < s.param_count; i++) {
        const fl_param *p = &s.params[i];
        lua_createtable(L, 0, 4);
        lua_pushstring(L, p->name);
        lua_setfield(L, -2, "name");
        lua_pushboolean(L, p->is_tensor);
        lua_setfield(L, -2, "is_tensor");
        lua_pushboolean(L, p->is_value);
        lua_setfield(L, -2, "is_value");
        lua_pushboolean(L, p->is_list);
        lua_setfield(L, -2, "is_list");
        lua_pushboolean(L, p->number_allowed);
        lua_setfield(L, -2, "takes_number");
        lua_pushboolean(L, !p->is_tensor && (p->type <= FL_ATTR_SCALAR));
        lua_setfield(L, -2, "is_number");
        if (!p->is_tensor && p->type <= FL_ATTR_SCALAR && p->initial.given) {
            lua_pushnumber(L, fl_attr_number(&p->initial));
            lua_setfield(L, -2, "default");
        }
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

void fl_lua_open_own_ops(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"define", define},
                                         {"parameters", parameters},
                                         {"row", fl_own_row},
                                         {"load", fl_own_load},
                                         {"set_gradients", fl_own_set_gradients},
                                         {NULL, NULL}};
    luaL_newmetatable(L, UNFINISHED_TYPE);
    lua_pushcfunction(L, unfinished_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    lua_setfield(L, flow, "_own");
}
