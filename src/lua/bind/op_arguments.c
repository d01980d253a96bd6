/*
** op_arguments.c -- the arguments of a call of an op, read by its signature.
**
** Arguments come in the signature's order; a table with named keys may come last and names any of the others.
*/
#include "op_binding.h"

/* ---- one operand ---- */

bool fl_lua_tensor_first(const fl_op *op)
{
    const char *p = strchr(op->sig, '(') + 1;
    size_t n = strcspn(p, ",)");
    return n > 0 && !memchr(p, ':', n) && !memchr(p, '.', n) && strncmp(p, "options", n) != 0;
}

/* Is `word` one of "mean|sum|none"? */
static bool is_word_of(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; n > 0 && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == '|') && (p[n] == 0 || p[n] == '|')) return true;
    return false;
}

/* "linalg.inv" is a function of a table, and no method. */
static bool is_of_table(const fl_lua_call *call) { return strchr(call->name, '.') != NULL; }

/* Pushes what to write in place of a value that is no tensor, "" where nothing suggests itself. */
static const char *push_operand_hint(lua_State *L, const fl_lua_call *call, int type, int index)
{
    if (type == LUA_TTABLE) return lua_pushliteral(L, "; flow.tensor makes one of a list");
    for (int i = 0; type == LUA_TSTRING && i < call->signature->param_count; i++) {
        const fl_param *p = &call->signature->params[i];
        if (p->is_tensor || p->type != FL_ATTR_WORD || !is_word_of(p->words, lua_tostring(L, index))) continue;
        return lua_pushfstring(L, "; options go in a table: {%s = \"%s\"}", p->name, lua_tostring(L, index));
    }
    if (index != 1 || type == LUA_TNIL || !fl_lua_tensor_first(call->op) || is_of_table(call)
        || (call->op->flags & FL_OP_FUNCTION_ONLY))
        return lua_pushliteral(L, "");
    if (call->in_place || (call->op->flags & FL_OP_METHOD_ONLY))
        return lua_pushfstring(L, "; write x:%s(...)", call->name);
    return lua_pushfstring(L, "; write x:%s(...) or flow.%s(x, ...)", call->name, call->name);
}

void fl_lua_read_non_tensor(lua_State *L, fl_operand *operand, const fl_lua_call *call, const fl_param *param,
                            int index)
{
    int type = lua_type(L, index);
    if (type == LUA_TNUMBER && param->number_allowed) {
        if (lua_isinteger(L, index)) *operand = fl_of_integer(lua_tointeger(L, index));
        else *operand = fl_of_number(lua_tonumber(L, index));
    } else if (type == LUA_TBOOLEAN && param->number_allowed) {
        operand->kind = FL_NUM_BOOL;
        operand->integer = lua_toboolean(L, index);
    } else if (type <= LUA_TNIL && param->optional) operand->kind = FL_NONE;
    else {
        const char *what = param->number_allowed ? "a tensor or a number" : "a tensor";
        if (type == LUA_TNONE && !is_of_table(call)
            && (param->slot == 0 || (fl_lua_tensor_first(call->op) && !fl_lua_box(L, 1))))
            FL_RAISE(L, "%s: missing argument '%s' (a method is called with a colon: x:%s())", call->name, param->name,
                     call->name);
        if (type == LUA_TNONE) FL_RAISE(L, "%s: missing argument '%s'", call->name, param->name);
        const char *given = fl_lua_type_name(L, index);
        FL_RAISE(L, "%s: %s must be %s, got %s%s", call->name, param->name, what, given,
                 push_operand_hint(L, call, type, index));
    }
}

/* ---- a list of operands ---- */

/* The tensors at `index` and after it become a list in their place. */
static void collect_tensors(lua_State *L, int index, int top)
{
    lua_createtable(L, top - index + 1, 0);
    for (int i = index; i <= top; i++) {
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, i - index + 1);
    }
    lua_replace(L, index);
}

/* A list of lists holds each parameter of an optimizer's step, the gradients being those of the list before. */
static bool is_gradients(lua_State *L, int index)
{
    return lua_type(L, index) == LUA_TSTRING && strcmp(lua_tostring(L, index), "grad") == 0;
}

/* Counts the tensors in the list at index; with `nested`, entries may be lists themselves. */
static int count_list(lua_State *L, int index, bool nested)
{
    int n = (int)lua_rawlen(L, index), count = 0, last = 0;
    if (!nested) return n;
    for (int i = 1; i <= n; i++) {
        int type = lua_rawgeti(L, index, i);
        if (type == LUA_TTABLE) last = (int)lua_rawlen(L, -1);
        else if (!is_gradients(L, -1)) last = 1;
        count += last;
        lua_pop(L, 1);
    }
    return count;
}

/* Appends the gradients of the last `many` operands. */
static int read_gradients(lua_State *L, fl_operand *out, int count, int limit, const fl_lua_binding *binding, int many)
{
    for (int i = count - many; many-- > 0 && count < limit; i++) {
        fl_tensor *grad = fl_autograd_grad_of(out[i].tensor);
        if (!grad) FL_RAISE(L, "%s: tensor %d has no gradient", binding->call->name, i + 1);
        out[count++] = fl_of(grad);
    }
    return count;
}

/* Appends the tensors of the list at index, no more than `limit` in all; with `nested`, entries may be lists
** themselves, and "grad" the gradients of the list before. */
static int read_list(lua_State *L, fl_operand *out, int count, int limit, const fl_lua_binding *binding,
                     const fl_param *param, int index, bool nested)
{
    int n = (int)lua_rawlen(L, index), before = count;
    for (int i = 1; i <= n && count < limit; i++) {
        int type = lua_rawgeti(L, index, i), first = count;
        fl_box *box = fl_lua_box(L, -1);
        if (box) out[count++] = fl_of(box->tensor);
        else if (type == LUA_TTABLE && nested)
            count = read_list(L, out, count, limit, binding, param, lua_gettop(L), false);
        else if (nested && is_gradients(L, -1)) count = read_gradients(L, out, count, limit, binding, count - before);
        else
            FL_RAISE(L, "%s: entry %d of %s must be a tensor, got %s", binding->call->name, i, param->name,
                     fl_lua_type_name(L, -1));
        before = first;
        lua_pop(L, 1);
    }
    return count;
}

static void read_operands(lua_State *L, fl_lua_binding *binding, const fl_param *param, int index)
{
    const char *who = binding->call->name;
    if (fl_lua_box(L, index))
        FL_RAISE(L, "%s: %s must be a list of tensors, got tensor; write flow.%s({x, y})", who, param->name, who);
    if (!lua_istable(L, index))
        FL_RAISE(L, "%s: %s must be a list of tensors, got %s", who, param->name, fl_lua_type_name(L, index));
    const char *stray = fl_lua_stray_key(L, index);
    if (stray) FL_RAISE(L, "%s: %s " FL_STRAY_KEY, who, param->name, stray);
    bool nested = binding->call->op->groups > 0;
    luaL_checkstack(L, 8, binding->call->name);
    int count = param->slot + count_list(L, index, nested);
    if (count > FL_MAX_PARAMS) {
        fl_operand *many = lua_newuserdatauv(L, sizeof *many * (size_t)count, 0);
        memcpy(many, binding->in, sizeof *many * (size_t)param->slot);
        binding->in = many;
    }
    binding->nin = param->slot
        + read_list(L, binding->in + param->slot, 0, count - param->slot, binding, param, index, nested);
}

/* ---- all arguments ---- */

bool fl_lua_is_named(lua_State *L, int index)
{
    if (lua_rawlen(L, index) != 0) return false;
    lua_pushnil(L);
    if (!lua_next(L, index)) return false;
    bool named = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 2);
    return named;
}

/* Axes of the tensor that is made or taken, for "S(-1)"; 0 when not known. */
static int ndim_of(const fl_lua_binding *binding)
{
    for (int i = 0; i < binding->signature->param_count; i++) {
        const fl_param *p = &binding->signature->params[i];
        if (!p->is_tensor && p->type == FL_ATTR_SIZES && binding->attrs.at[p->slot].given)
            return binding->attrs.at[p->slot].count;
    }
    return binding->nin > 0 && binding->in[0].kind == FL_TENSOR ? binding->in[0].tensor->meta->shape.ndim : 0;
}

int fl_lua_param_at(const fl_signature *signature, const char *name)
{
    for (int i = 0; i < signature->param_count; i++)
        if (strcmp(signature->params[i].name, name) == 0) return i;
    return -1;
}

static void read_param(lua_State *L, fl_lua_binding *binding, int i, int index, int numbers)
{
    const fl_param *p = &binding->signature->params[i];
    if (p->is_tensor) {
        if (p->is_list) read_operands(L, binding, p, index);
        else fl_lua_read_operand(L, &binding->in[p->slot], binding->call, p, index);
    } else fl_lua_read_attr(L, binding, p, index, numbers);
    binding->given |= 1u << i;
}

static void unknown_option(lua_State *L, const fl_lua_binding *binding, const char *key)
{
    const char *name = binding->call->name;
    fl_suggestion s = {.word = key, .place = fl_lua_advice(name, key) ? name : "option"};
    for (int i = 0; i < binding->signature->param_count; i++)
        if (binding->signature->params[i].type != FL_ATTR_OPTIONS || binding->signature->params[i].is_tensor)
            fl_suggest_offer(&s, binding->signature->params[i].name);
    if (binding->signature->has_options) fl_lua_suggest_options(&s);
    fl_suggest_offer(&s, "out");
    char hint[FL_SUGGEST_TEXT];
    FL_RAISE(L, "%s: unknown option '%s'%s", binding->call->name, key, fl_suggest_text(hint, &s));
}

/* The list of operands named in the table at index, where it has not come before; its memory stays on the stack. */
static void read_named_list(lua_State *L, fl_lua_binding *binding, int index)
{
    for (int i = 0; binding->signature->variadic && i < binding->signature->param_count; i++) {
        const fl_param *p = &binding->signature->params[i];
        if (!p->is_list || (binding->given >> i & 1u)) continue;
        lua_pushstring(L, p->name);
        if (lua_rawget(L, index) != LUA_TNIL) read_param(L, binding, i, lua_gettop(L), 1);
    }
}

/* {out = c}, at index. */
static void read_out(lua_State *L, fl_lua_binding *binding, int index)
{
    fl_box *box = fl_lua_box(L, index);
    if (!box) FL_RAISE(L, "%s: out must be a tensor, got %s", binding->call->name, fl_lua_type_name(L, index));
    if (binding->call->in_place) FL_RAISE(L, "%s: writes its operand, and takes no out", binding->call->name);
    if (binding->call->op->nout != 1 || binding->call->op->mutates)
        FL_RAISE(L, "%s: takes no out", binding->call->name);
    binding->out = box->tensor;
}

/* The table at index names parameters and, where the signature says `options`, dtype, device, ... */
static void read_named(lua_State *L, fl_lua_binding *binding, int index)
{
    luaL_checkstack(L, FL_MAX_PARAMS + 8, binding->call->name);
    uint32_t positional = binding->given;
    read_named_list(L, binding, index);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            FL_RAISE(L, "%s: options must have names, got a key of type %s", binding->call->name, luaL_typename(L, -2));
        const char *key = lua_tostring(L, -2);
        int i = fl_lua_param_at(binding->signature, key), value = lua_gettop(L);
        if (i >= 0 && positional >> i & 1u) FL_RAISE(L, "%s: '%s' is given twice", binding->call->name, key);
        if (i >= 0) {
            if (!binding->signature->params[i].is_list) read_param(L, binding, i, value, 1);
        } else if (strcmp(key, "out") == 0) {
            read_out(L, binding, value);
        } else if (!binding->signature->has_options
                   || !fl_lua_option(L, &binding->options, key, value, ndim_of(binding), binding->call->name))
            unknown_option(L, binding, key);
        lua_pop(L, 1);
    }
}

/* Counts the numbers among the arguments from `index` on, up to the first other value. */
static int count_numbers(lua_State *L, int index, int top)
{
    int n = 0;
    while (index + n <= top && lua_type(L, index + n) == LUA_TNUMBER) n++;
    return n;
}

const char *fl_lua_push_usage(lua_State *L, const fl_lua_call *call)
{
    const char *name = call->op->flags & FL_OP_HIDDEN ? call->name : call->op->name;
    const fl_op *op = call->op->wider ? fl_op_find(call->op->wider) : call->op;
    lua_pushfstring(L, "%s%s", name, strchr(op->sig, '('));
    const char *text = luaL_gsub(L, lua_tostring(L, -1), "~", "");
    lua_remove(L, -2);
    text = luaL_gsub(L, text, "|n,", "|number,");
    text = luaL_gsub(L, text, "|n)", "|number)");
    text = luaL_gsub(L, text, "|n?", "|number?");
    lua_replace(L, -4);
    lua_pop(L, 2);
    return text;
}

/* Modules and other objects, whose keys are tables, are not empty. */
static bool is_empty_table(lua_State *L, int index)
{
    if (!lua_istable(L, index) || lua_rawlen(L, index) != 0) return false;
    lua_pushnil(L);
    if (!lua_next(L, index)) return true;
    lua_pop(L, 2);
    return false;
}

/* A list that is the last parameter may be written as so many arguments: f("ij,jk", x, y). */
static bool is_spread(lua_State *L, const fl_signature *signature, int i, int index)
{
    return signature->params[i].is_tensor && signature->params[i].is_list && i == signature->param_count - 1
        && fl_lua_box(L, index);
}

static void too_many(lua_State *L, const fl_lua_binding *binding, int index)
{
    const char *name = binding->call->name;
    if (binding->signature->has_options) fl_lua_refuse_bare_option(L, index, name);
    if (lua_isnil(L, index))
        FL_RAISE(L, "%s: one argument too many, which is nil (a misspelt variable?): %s", name,
                 fl_lua_push_usage(L, binding->call));
    FL_RAISE(L, "%s: too many arguments: %s", name, fl_lua_push_usage(L, binding->call));
}

/* Arguments 1..top in the signature's order. An empty table at the end is an empty list, or else options none of which
** is set. */
static void read_positional(lua_State *L, fl_lua_binding *binding, int top)
{
    const fl_signature *s = binding->signature;
    int index = 1;
    for (int i = 0; i < s->param_count && index <= top; i++) {
        const fl_param *p = &s->params[i];
        int numbers = 1;
        if (!p->is_tensor && p->type == FL_ATTR_OPTIONS) continue;
        if (index == top && is_empty_table(L, top) && !(p->is_tensor ? p->is_list : fl_lua_is_list_type(p->type)))
            return;
        if (!p->is_tensor && fl_lua_is_list_type(p->type) && (binding->call->greedy >> i & 1u)) {
            numbers = count_numbers(L, index, top);
            if (numbers == 0) numbers = 1;
        }
        if (is_spread(L, s, i, index)) {
            collect_tensors(L, index, top);
            numbers = top - index + 1;
        }
        if (p->is_tensor || !lua_isnil(L, index)) read_param(L, binding, i, index, p->is_tensor ? 1 : numbers);
        index += numbers;
    }
    if (index <= top && !(index == top && is_empty_table(L, top))) too_many(L, binding, index);
}

/* The first of the parameters in `needed` that is not given. */
static void miss(lua_State *L, const fl_lua_binding *binding, uint32_t needed)
{
    const fl_param *p = &binding->signature->params[__builtin_ctz(needed & ~binding->given)];
    fl_operand operand;
    if (p->is_tensor && !p->is_list)
        fl_lua_read_operand(L, &operand, binding->call, p, lua_gettop(L) + 1); /* words the error */
    FL_RAISE(L, "%s: missing argument '%s': %s", binding->call->name, p->name, fl_lua_push_usage(L, binding->call));
}

static inline void check_needed(lua_State *L, const fl_lua_binding *binding, uint32_t needed)
{
    if (FL_UNLIKELY(needed & ~binding->given)) miss(L, binding, needed);
}

void fl_lua_read_call(lua_State *L, fl_lua_binding *binding, const fl_lua_call *call)
{
    const fl_signature *s = call->signature;
    binding->call = call;
    binding->signature = s;
    binding->in = binding->fixed;
    binding->nin = s->tensor_count;
    binding->given = 0;
    binding->out = NULL;
    binding->options = (fl_lua_options){0};
    memset(binding->fixed, 0,
           sizeof *binding->fixed * (size_t)s->tensor_count); /* and no more: this is every call's way */
    memcpy(&binding->attrs, call->defaults, offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)s->attr_count);
    int top = lua_gettop(L);
    bool named = top > 0 && fl_lua_is_options(L, top);
    read_positional(L, binding, named ? top - 1 : top);
    binding->options_index = top;
    if (named) read_named(L, binding, top);
    check_needed(L, binding, call->needed_operands | call->needed_attrs);
    if (!s->has_options) return;
    if (FL_UNLIKELY(fl_lua_device != NULL) && call->op->flags & FL_OP_SOURCE)
        fl_lua_complete_options(&binding->options);
    fl_lua_apply_options(L, &binding->attrs, &binding->options, call->name);
}

void fl_lua_read_attrs(lua_State *L, fl_attrs *attrs, const fl_lua_call *call, int index, bool others_stay)
{
    fl_lua_binding b = {.call = call, .signature = call->signature};
    size_t bytes = offsetof(fl_attrs, at) + sizeof(fl_attr) * (size_t)attrs->count;
    luaL_checktype(L, index, LUA_TTABLE);
    memcpy(&b.attrs, others_stay ? attrs : call->defaults, bytes);
    read_named(L, &b, index);
    if (!others_stay) check_needed(L, &b, call->needed_attrs);
    memcpy(attrs, &b.attrs, bytes);
}
