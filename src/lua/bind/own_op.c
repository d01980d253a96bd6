/*
** own_op.c -- ops that a script defines (own_op.lua): descriptors whose hooks call functions of Lua.
**
** A descriptor is never freed, because plans, tapes and captured programs name it, so the list of them has no limit;
** what it calls belongs to one Lua state, and ends with that. A formula whose gradients are derived calls nothing of
** its own: the same definition again, in the same state or after the end of the one before, takes the descriptor that
** is there. A definition that fails leaves nothing. The hooks are those of own_call.c and own_sbp.c.
*/
#include "arguments.h"
#include "instance.h"
#include "op_call.h"
#include "own_op.h"
#include "own_op_parts.h"

#include <stdlib.h>
#include <string.h>

static fl_own_op *ops;

#define UNFINISHED_TYPE "an unfinished op" /* a userdata: an own_op that is freed with it, or NULL */

/* ---- defining ---- */

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
    if (!text) FL_RAISE(L, "op: %s must be text, got %s", what, fl_lua_type_name(L, -1));
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

static void copy_samples(lua_State *L, fl_own_op *op)
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

/* g, g1 to g4: names of the results' gradients in gradients as text. */
static bool is_gradient_name(const char *name)
{
    return name[0] == 'g' && (!name[1] || (name[1] >= '1' && name[1] <= '4' && !name[2]));
}

/* Fails if a signature has a part that ops of scripts cannot have. */
static void check_signature(lua_State *L, fl_signature *signature, const char *sig)
{
    FL_CHECK(L, fl_signature_parse(signature, sig));
    if (signature->has_options) FL_RAISE(L, "op: signature '%s': options are for ops that make tensors", sig);
    if (signature->tensor_count == 0) FL_RAISE(L, "op: signature '%s': an op takes at least one tensor", sig);
    for (int i = 0; i < signature->param_count; i++) {
        const fl_param *p = &signature->params[i];
        if (!p->is_tensor && p->type == FL_ATTR_TEXT)
            FL_RAISE(L, "op: signature '%s': '%s' cannot be text; name the words: %s: one|two", sig, p->name, p->name);
        if (strcmp(p->name, "out") == 0 || strcmp(p->name, "needs") == 0 || is_gradient_name(p->name))
            FL_RAISE(L, "op: signature '%s': a parameter cannot be called '%s'", sig, p->name);
    }
}

/* ---- descriptors ---- */

static void free_op(fl_own_op *op)
{
    for (char **sample = op->samples; sample && *sample; sample++) free(*sample);
    fl_own_free_formula(op->formula);
    free(op->samples);
    free((char *)op->op.name);
    free((char *)op->op.sig);
    free((char *)op->op.doc);
    free(op);
}

static int unfinished_gc(lua_State *L)
{
    fl_own_op **handle = lua_touserdata(L, 1);
    if (*handle) free_op(*handle);
    *handle = NULL;
    return 0;
}

/* A descriptor in a userdata, which is pushed and frees it. */
static fl_own_op **new_op(lua_State *L)
{
    fl_own_op **handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = NULL;
    luaL_setmetatable(L, UNFINISHED_TYPE);
    *handle = fl_own_allocate(L, sizeof **handle);
    (*handle)->functions = LUA_NOREF;
    return handle;
}

static void use_formula(fl_own_op *op)
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
static void fill_op(lua_State *L, fl_own_op *op)
{
    fl_signature signature;
    op->op = (fl_op){.nout = (int)fl_own_integer(L, 1, "results"),
                     .saves_in = (uint32_t)fl_own_integer(L, 1, "saves_in"),
                     .saves_out = (uint32_t)fl_own_integer(L, 1, "saves_out"),
                     .flags = fl_lua_flag(L, 1, "differentiable") ? 0 : FL_OP_NO_GRAD,
                     .infer = fl_own_infer,
                     .sbp = fl_own_sbp,
                     .compute = fl_own_compute,
                     .grad = fl_lua_flag(L, 1, "backward") ? fl_own_grad : NULL};
    op->op.sig = copy_field(L, "sig");
    check_signature(L, &signature, op->op.sig);
    op->op.name = copy_field(L, "name");
    op->op.doc = copy_field(L, "doc");
    copy_samples(L, op);
    if (lua_getfield(L, 1, "formula") == LUA_TTABLE) {
        fl_own_read_formula(L, &op->formula, op->op.name, lua_gettop(L));
        use_formula(op);
    }
    op->is_shared = op->formula && fl_lua_flag(L, 1, "derived");
    op->broadcasts = !fl_lua_flag(L, 1, "infer");
    op->rows_given = lua_getfield(L, 1, "sbp") == LUA_TTABLE;
    if (op->rows_given) fl_own_read_rows(L, op, &signature);
}

static bool same_samples(const fl_own_op *a, const fl_own_op *b)
{
    char **x = a->samples, **y = b->samples;
    while (*x && *y && strcmp(*x, *y) == 0) x++, y++;
    return !*x && !*y;
}

/* A descriptor that computes the same and belongs to no other state that is open; NULL: there is none. */
static fl_own_op *find_same(const fl_own_op *wanted)
{
    if (!wanted->is_shared) return NULL;
    for (fl_own_op *op = ops; op; op = op->next)
        if (op->is_shared && (!op->instance->main || op->instance == fl_lua_running)
            && strcmp(op->op.name, wanted->op.name) == 0 && strcmp(op->op.sig, wanted->op.sig) == 0
            && strcmp(op->op.doc, wanted->op.doc) == 0 && op->op.flags == wanted->op.flags
            && op->op.saves_in == wanted->op.saves_in && op->op.saves_out == wanted->op.saves_out
            && same_samples(op, wanted) && fl_own_same_formula(op->formula, wanted->formula))
            return op;
    return NULL;
}

/* The descriptor that stands for the one in the handle: another one that is the same, or that, which stays. */
static fl_own_op *keep_op(lua_State *L, fl_own_op **handle)
{
    fl_own_op *op = find_same(*handle);
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
        fl_own_drop_gradients(op->formula); /* of ops that may have ended with the other state: derived again */
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
    fl_own_op **handle = new_op(L);
    fill_op(L, *handle);
    const char *changing = (*handle)->formula ? fl_own_in_place_name(L, (*handle)->op.name) : NULL;
    fl_own_op *op = keep_op(L, handle);
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
