/*
** index.c -- x[key] and x[key] = value.
**
** A key is a method or field name, a position, a list like {i, {a, b}, {}}, the same as text
** ("0, 1:3, :"), or a tensor. Positions and ranges become views one axis after the other; one tensor of positions
** or a mask is the op `index`; several are put together by indexing.lua.
*/
#include "arguments.h"
#include "members.h"
#include "modules.h"
#include "op_call.h"
#include "tensors.h"

#include <stdlib.h>

typedef enum part_kind { PART_POSITION, PART_RANGE, PART_ALL, PART_REST, PART_NEW, PART_TENSOR } part_kind;

/* The part of a key for one axis. */
struct part {
    part_kind kind;
    int64_t position; /* PART_POSITION */
    bool has_start, has_stop;
    int64_t start, stop, step; /* PART_RANGE */
    int at;                    /* PART_TENSOR: its stack index */
    int axis;                  /* of the tensor it is applied to */
};

struct parts {
    int count, tensors; /* number of parts; number of PART_TENSOR */
    struct part at[FL_MAX_NDIM + 1];
};

static struct part *part_new(lua_State *L, struct parts *list, part_kind kind)
{
    if (list->count == FL_MAX_NDIM + 1) FL_RAISE(L, "index: more than %d entries", FL_MAX_NDIM);
    struct part *p = &list->at[list->count++];
    *p = (struct part){.kind = kind, .step = 1};
    return p;
}

/* ---- keys as text ---- */

static const char *skip_blank(const char *at)
{
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

/* The length of "newaxis", or of NumPy's None, at the start of a text; 0 where there is neither. */
static size_t newaxis_length(const char *text)
{
    static const char name[] = "newaxis", other[] = "None";
    if (strncmp(text, name, sizeof name - 1) == 0) return sizeof name - 1;
    return strncmp(text, other, sizeof other - 1) == 0 ? sizeof other - 1 : 0;
}

/* True if the string is an index, not a name. */
static bool is_index_text(const char *key)
{
    const char *at = key;
    for (size_t n = 1; n > 0; at += n) {
        at += strspn(at, "0123456789:,.- \t");
        n = newaxis_length(at);
    }
    return at != key && *at == 0;
}

/* flow.newaxis: an axis of size 1 here. */
static bool is_newaxis(const char *key) { return strcmp(key, "newaxis") == 0; }

/* An optional number; *given: it is there. */
static const char *read_number(const char *at, int64_t *out, bool *given)
{
    char *end;
    long long value = strtoll(at, &end, 10);
    *given = end != at;
    if (*given) *out = value;
    return skip_blank(end);
}

/* One entry: a number, a:b:c with any of them missing, "..." or "newaxis"; NULL when it is none. */
static const char *read_entry(lua_State *L, struct parts *list, const char *at)
{
    int64_t number = 0;
    bool given;
    if (strncmp(at, "...", 3) == 0) {
        part_new(L, list, PART_REST);
        return skip_blank(at + 3);
    }
    if (newaxis_length(at)) {
        part_new(L, list, PART_NEW);
        return skip_blank(at + newaxis_length(at));
    }
    at = read_number(at, &number, &given);
    if (*at != ':') {
        if (!given) return NULL;
        part_new(L, list, PART_POSITION)->position = number;
        return at;
    }
    struct part *range = part_new(L, list, PART_RANGE);
    range->has_start = given;
    range->start = number;
    at = read_number(skip_blank(at + 1), &range->stop, &range->has_stop);
    if (*at == ':') {
        at = read_number(skip_blank(at + 1), &range->step, &given);
        if (!given) range->step = 1;
    }
    return at;
}

static void read_text(lua_State *L, struct parts *list, const char *key)
{
    const char *p = skip_blank(key);
    for (;;) {
        p = read_entry(L, list, p);
        if (p && *p == 0) return;
        if (!p || *p != ',') FL_RAISE(L, "index: \"%s\" is not an index; an index is like \"0, 1:3, :, -1\"", key);
        p = skip_blank(p + 1);
    }
}

/* ---- keys as lists ---- */

/* The number at position i of the list, if there is one; nil leaves that side open. */
static bool read_bound(lua_State *L, int64_t *out, int list, int i)
{
    int type = lua_rawgeti(L, list, i);
    if (type == LUA_TNUMBER) *out = fl_lua_check_integer(L, -1, "index", "a range");
    else if (type != LUA_TNIL)
        FL_RAISE(L, "index: a range must hold whole numbers, number %d is %s", i, fl_lua_type_name(L, -1));
    lua_pop(L, 1);
    return type == LUA_TNUMBER;
}

/* {}, {a, b} or {a, b, step}, of which any may be nil: {a} or {a, nil} is all from a on, {nil, b} all before b */
static void read_range(lua_State *L, struct parts *list, int index)
{
    enum { MOST = 3 };
    lua_Unsigned n = lua_rawlen(L, index);
    const char *stray = fl_lua_stray_key(L, index);
    if (n > MOST) FL_RAISE(L, "index: a range holds at most %d numbers, got %d", MOST, (int)n);
    if (stray) FL_RAISE(L, "index: a range has no key '%s'; it is {first, end} or {first, end, step}", stray);
    struct part *range = part_new(L, list, PART_RANGE);
    range->has_start = read_bound(L, &range->start, index, 1);
    range->has_stop = read_bound(L, &range->stop, index, 2);
    bool has_step = n != 2 && read_bound(L, &range->step, index, 3); /* of length 2: the third is nil */
    if (!range->has_start && !range->has_stop && !has_step) range->kind = PART_ALL;
}

/* The value on top of the stack as one entry; a tensor stays on the stack. */
static void read_value(lua_State *L, struct parts *list, int where)
{
    switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
        part_new(L, list, PART_POSITION)->position = fl_lua_check_integer(L, -1, "index", "a position");
        break;
    case LUA_TTABLE: read_range(L, list, lua_gettop(L)); break;
    case LUA_TSTRING:
        if (is_newaxis(lua_tostring(L, -1))) {
            part_new(L, list, PART_NEW);
            break;
        }
        if (is_index_text(lua_tostring(L, -1)) && !strchr(lua_tostring(L, -1), ',')) {
            read_text(L, list, lua_tostring(L, -1));
            break;
        } /* fall through */
    default:
        if (!fl_lua_box(L, -1))
            FL_RAISE(L, "index: entry %d must be a number, a range {a, b}, {}, \"...\" or a tensor, got %s", where,
                     fl_lua_type_name(L, -1));
        part_new(L, list, PART_TENSOR)->at = lua_gettop(L);
        list->tensors++;
        return;
    }
    lua_pop(L, 1);
}

static void read_key(lua_State *L, struct parts *list, int index)
{
    list->count = list->tensors = 0;
    luaL_checkstack(L, FL_MAX_NDIM + 8, "index");
    if (lua_istable(L, index)) {
        lua_Unsigned n = lua_rawlen(L, index);
        if (n > FL_MAX_NDIM + 1) FL_RAISE(L, "index: more than %d entries", FL_MAX_NDIM);
        for (int i = 1; i <= (int)n; i++) {
            lua_rawgeti(L, index, i);
            read_value(L, list, i);
        }
    } else if (lua_type(L, index) == LUA_TSTRING && !is_newaxis(lua_tostring(L, index)))
        read_text(L, list, lua_tostring(L, index));
    else {
        lua_pushvalue(L, index);
        read_value(L, list, 1);
    }
}

/* ---- applying ---- */

/* Length of "select: " where a message begins with the name of an op, 0 where it does not. */
static size_t op_prefix(const char *message)
{
    char name[64];
    size_t n = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (n == 0 || n >= sizeof name || strncmp(message + n, ": ", 2) != 0) return 0;
    memcpy(name, message, n);
    name[n] = 0;
    if (!fl_op_find(name) && name[n - 1] == '_') name[n - 1] = 0; /* in place */
    return fl_op_find(name) ? n + 2 : 0;
}

/* True for the x[i] of a loop `for i, row in ipairs(x)`. */
static bool read_by_ipairs(lua_State *L)
{
    lua_Debug ar;
    return lua_getstack(L, 1, &ar) && lua_getinfo(L, "nS", &ar) && *ar.what == 'C'
        && strcmp(ar.namewhat, "for iterator") == 0;
}

/* Raises what went wrong in the name of indexing: the script has not written the ops that do it. */
static void check(lua_State *L, fl_status status)
{
    if (FL_LIKELY(status == FL_OK)) return;
    const char *message = fl_message();
    for (size_t n; (n = op_prefix(message)) != 0; message += n) {}
    if (read_by_ipairs(L))
        status = fl_fail(status, "index: %s; ipairs counts from 1, tensors from 0: write " FL_ITERATION, message);
    else if (message != fl_message()) status = fl_fail(status, "index: %s", message);
    fl_lua_error(L, status);
}

/* Replaces *box by the view an op makes of it. */
static void step(lua_State *L, fl_box *box, const fl_op *op, fl_attrs *attrs)
{
    fl_operand in = fl_of(box->tensor);
    fl_tensor *out;
    check(L, fl_dispatch(&out, op, &in, 1, attrs));
    fl_tensor_unref(box->tensor);
    box->tensor = out;
}

static void apply_position(lua_State *L, fl_box *box, int axis, int64_t position)
{
    fl_attrs attrs;
    const fl_op *op = FL_OP_REF(select);
    fl_attrs_init(&attrs, op);
    fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
    fl_attr_set(&attrs, FL_SLICE_POSITION, position);
    step(L, box, op, &attrs);
}

static void apply_range(lua_State *L, fl_box *box, int axis, const struct part *part)
{
    fl_attrs attrs;
    const fl_op *op = FL_OP_REF(slice);
    fl_attrs_init(&attrs, op);
    fl_attr_set(&attrs, FL_SLICE_AXIS, axis);
    if (part->has_start) fl_attr_set(&attrs, FL_SLICE_START, part->start);
    if (part->has_stop) fl_attr_set(&attrs, FL_SLICE_STOP, part->stop);
    fl_attr_set(&attrs, FL_SLICE_STEP, part->step);
    step(L, box, op, &attrs);
}

static void apply_new(lua_State *L, fl_box *box, int axis)
{
    fl_attrs attrs;
    const fl_op *op = FL_OP_REF(unsqueeze);
    fl_attrs_init(&attrs, op);
    fl_attr_set(&attrs, FL_SQUEEZE_AXIS, axis);
    step(L, box, op, &attrs);
}

/* Axes that an entry uses up; a mask uses as many as it has. */
static int axes_used(lua_State *L, const struct part *part)
{
    if (part->kind == PART_REST || part->kind == PART_NEW) return 0;
    if (part->kind != PART_TENSOR) return 1;
    const fl_meta *meta = fl_lua_to_tensor(L, part->at)->meta;
    return meta->dtype == FL_BOOL ? meta->shape.ndim : 1;
}

/* Axes that "..." stands for. */
static int rest_axes(lua_State *L, const struct parts *list, const fl_tensor *x)
{
    int used = 0, rests = 0;
    char shape[FL_SHAPE_TEXT];
    for (int i = 0; i < list->count; i++) {
        used += axes_used(L, &list->at[i]);
        rests += list->at[i].kind == PART_REST;
    }
    if (rests > 1) FL_RAISE(L, "index: \"...\" may occur once");
    if (used > x->meta->shape.ndim)
        FL_RAISE(L, "index: %d entries for a tensor of shape %s", used, fl_shape_text(shape, &x->meta->shape));
    return x->meta->shape.ndim - used;
}

/* Makes views of positions and ranges. Tensors index later: their axes in the result so far are noted. */
static void apply_parts(lua_State *L, fl_box *box, struct parts *list)
{
    int axis = 0, rest = rest_axes(L, list, box->tensor);
    for (int i = 0; i < list->count; i++) {
        struct part *p = &list->at[i];
        p->axis = axis;
        switch (p->kind) {
        case PART_POSITION: apply_position(L, box, axis, p->position); break;
        case PART_RANGE: apply_range(L, box, axis++, p); break;
        case PART_ALL: axis++; break;
        case PART_REST: axis += rest; break;
        case PART_NEW: apply_new(L, box, axis++); break;
        case PART_TENSOR: axis += axes_used(L, p); break;
        }
    }
}

/* Pushes what positions and ranges of the key leave of x; tensors in the key are still to be applied. */
static fl_box *push_selected(lua_State *L, struct parts *list, fl_tensor *x)
{
    fl_box *box = fl_lua_new_box_fast(L);
    box->tensor = fl_tensor_ref(x);
    apply_parts(L, box, list);
    return box;
}

/* The only tensor of the key. */
static const struct part *single_tensor(const struct parts *list)
{
    const struct part *p = list->at;
    while (p->kind != PART_TENSOR) p++;
    return p;
}

/* Calls indexing.lua for a key of several tensors: name(x, {axis, tensor, axis, tensor, ...}[, value]). */
static void call_indexing(lua_State *L, const char *name, const struct parts *list, int selected, int value)
{
    int n = 0;
    fl_lua_push_module(L, "indexing");
    lua_getfield(L, -1, name);
    lua_pushvalue(L, selected);
    lua_createtable(L, 2 * list->tensors, 0);
    for (int i = 0; i < list->count; i++) {
        if (list->at[i].kind != PART_TENSOR) continue;
        lua_pushinteger(L, list->at[i].axis);
        lua_rawseti(L, -2, ++n);
        lua_pushvalue(L, list->at[i].at);
        lua_rawseti(L, -2, ++n);
    }
    if (value) lua_pushvalue(L, value);
    lua_call(L, value ? 3 : 2, value ? 0 : 1);
}

static void apply_tensor(lua_State *L, fl_box *box, const struct part *part)
{
    fl_attrs attrs;
    fl_tensor *out;
    fl_attrs_init(&attrs, FL_OP_REF(index));
    fl_attr_set(&attrs, FL_INDEXED_AXIS, part->axis);
    check(L, FL_CALL_WITH(&out, &attrs, index, fl_of(box->tensor), fl_of(fl_lua_to_tensor(L, part->at))));
    fl_tensor_unref(box->tensor);
    box->tensor = out;
}

/* ---- reading ---- */

/* A method's first parameter is `self`: when that is this tensor, the method of another object was called with a
** dot. */
static void check_self(lua_State *L, const char *key)
{
    lua_Debug ar;
    const char *local = lua_getstack(L, 1, &ar) ? lua_getlocal(L, &ar, 1) : NULL;
    if (!local) return;
    bool mistaken = strcmp(local, "self") == 0 && lua_rawequal(L, -1, 1);
    lua_pop(L, 1);
    if (!mistaken || !lua_getinfo(L, "n", &ar)) return;
    FL_RAISE(L, "tensor has no method or field '%s'; self is a tensor here: a method is called with a colon, net:%s(x)",
             key, ar.name ? ar.name : "method");
}

/* "x:softmax_" where there is x:softmax, whose result is another tensor. */
static void check_in_place(lua_State *L, const char *key)
{
    size_t n = strlen(key);
    if (n < 2 || key[n - 1] != '_' || fl_lua_advice("tensor", key)) return;
    lua_pushlstring(L, key, n - 1);
    lua_pushvalue(L, -1);
    if (lua_gettable(L, lua_upvalueindex(2)) != LUA_TFUNCTION) return;
    const char *name = lua_tostring(L, -2);
    FL_RAISE(L, "tensor has no method or field '%s': %s does not work in place; write y = x:%s(...)", key, name, name);
}

static int unknown_name(lua_State *L, const char *key)
{
    if (strchr("0123456789:-.", *key))
        FL_RAISE(L, "index: \"%s\" is not an index; an index is like \"0, 1:3, :, -1\"", key);
    check_self(L, key);
    check_in_place(L, key);
    fl_suggestion s = {.word = key, .place = "tensor"};
    fl_lua_make_members(L, lua_upvalueindex(2), FL_LUA_METHODS);
    lua_pushnil(L);
    while (lua_next(L, lua_upvalueindex(2))) {
        if (lua_type(L, -2) == LUA_TSTRING) fl_suggest_offer(&s, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    char hint[FL_SUGGEST_TEXT];
    FL_RAISE(L, "tensor has no method or field '%s'%s", key, fl_suggest_text(hint, &s));
}

int fl_lua_index(lua_State *L)
{
    int type = lua_type(L, 2);
    if (FL_LIKELY(type == LUA_TSTRING)) {
        lua_pushvalue(L, 2);
        switch (lua_rawget(L, lua_upvalueindex(2))) {
        case LUA_TFUNCTION: return 1;
        case LUA_TLIGHTUSERDATA: {
            const fl_lua_field *field = lua_touserdata(L, -1);
            field->get(L, fl_lua_check_tensor(L, 1, field->name, "x"));
            return 1;
        }
        default: break;
        }
        const char *key = lua_tostring(L, 2);
        if (!is_index_text(key) && !is_newaxis(key))
            return fl_lua_push_later_method(L, lua_upvalueindex(2), key) ? 1 : unknown_name(L, key);
    }
    fl_tensor *x = fl_lua_check_tensor(L, 1, "index", "x");
    if (type == LUA_TNUMBER) {
        int64_t position = fl_lua_check_integer(L, 2, "index", "a position");
        fl_box *box = fl_lua_new_box_fast(L);
        box->tensor = fl_tensor_ref(x);
        apply_position(L, box, 0, position);
    } else {
        struct parts list;
        read_key(L, &list, 2);
        fl_box *box = push_selected(L, &list, x);
        if (list.tensors == 1) apply_tensor(L, box, single_tensor(&list));
        else if (list.tensors) call_indexing(L, "get", &list, lua_gettop(L), 0);
    }
    fl_lua_account(L);
    return 1;
}

/* ---- writing ---- */

/* The value at index as an operand; a list becomes a tensor of this dtype, which stays on the stack. */
static fl_tensor *push_list(lua_State *L, int index, const fl_tensor *x)
{
    fl_tensor *list = fl_lua_push_from_value(L, index, true, x->meta->dtype);
    if (!x->meta->is_local || x->meta->placement == list->meta->placement) return list;
    fl_box *box = fl_lua_new_box(L);
    check(L, fl_to_device(&box->tensor, list, x->meta->placement));
    return box->tensor;
}

/* The value assigned to elements of x. A list becomes a tensor on x's device; it stays on the stack. */
static fl_operand check_value(lua_State *L, int index, const fl_tensor *x)
{
    fl_operand o = {FL_NUM_BOOL, {0}};
    switch (lua_type(L, index)) {
    case LUA_TBOOLEAN: o.integer = lua_toboolean(L, index); return o;
    case LUA_TNUMBER:
        return lua_isinteger(L, index) ? fl_of_integer(lua_tointeger(L, index)) : fl_of_number(lua_tonumber(L, index));
    case LUA_TTABLE: return fl_of(push_list(L, index, x));
    default: break;
    }
    fl_tensor *t = fl_lua_to_tensor(L, index);
    if (!t)
        FL_RAISE(L, "index: the value assigned must be a tensor, a number or a list, got %s",
                 fl_lua_type_name(L, index));
    return fl_of(t);
}

static fl_status fill(fl_tensor **out, fl_tensor *target, const fl_operand *value)
{
    fl_attrs attrs;
    fl_attrs_init(&attrs, FL_OP_REF(fill_));
    fl_attr *a = &attrs.at[FL_FILL_VALUE];
    a->given = true;
    a->count = 1;
    a->kind = value->kind;
    if (value->kind == FL_NUM_FLOAT) a->number = value->number;
    else a->integer = value->integer;
    return FL_CALL_WITH(out, &attrs, fill_, fl_of(target));
}

static void assign(lua_State *L, fl_tensor *target, const fl_operand *value)
{
    fl_tensor *out = NULL;
    if (value->kind == FL_TENSOR) check(L, FL_CALL(&out, copy_, fl_of(target), *value));
    else check(L, fill(&out, target, value));
    fl_tensor_unref(out);
}

static void assign_at(lua_State *L, fl_tensor *target, const struct part *part, const fl_operand *value)
{
    fl_attrs attrs;
    fl_tensor *out = NULL;
    fl_attrs_init(&attrs, FL_OP_REF(index_put_));
    fl_attr_set(&attrs, FL_INDEXED_AXIS, part->axis);
    check(L, FL_CALL_WITH(&out, &attrs, index_put_, fl_of(target), fl_of(fl_lua_to_tensor(L, part->at)), *value));
    fl_tensor_unref(out);
}

/* True if a position or a range of the key is on an axis that is split over ranks. */
static bool cuts_split_axis(lua_State *L, const struct parts *list, const fl_tensor *x)
{
    int axis = 0, rest = rest_axes(L, list, x);
    for (int i = 0; i < list->count; i++) {
        const struct part *p = &list->at[i];
        for (int k = 0; k < x->meta->nd_sbp.n; k++)
            if ((p->kind == PART_POSITION || p->kind == PART_RANGE) && x->meta->nd_sbp.at[k] == FL_S(axis)) return true;
        axis += p->kind == PART_REST ? rest : axes_used(L, p);
    }
    return false;
}

int fl_lua_newindex(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "index", "x");
    if (lua_type(L, 2) == LUA_TSTRING) {
        const char *name = lua_tostring(L, 2);
        if (fl_lua_set_field(L, x, name)) return 0;
        if (!is_index_text(name) && !is_newaxis(name)) return unknown_name(L, name);
    }
    struct parts list;
    read_key(L, &list, 2);
    if (!x->meta->is_local && !x->moved_view && cuts_split_axis(L, &list, x)) {
        fl_lua_push_module(L, "indexing");
        lua_getfield(L, -1, "place");
        for (int i = 1; i <= 3; i++) lua_pushvalue(L, i);
        lua_call(L, 3, 0);
        return 0;
    }
    fl_tensor *target = push_selected(L, &list, x)->tensor;
    int selected = lua_gettop(L);
    if (list.tensors > 1) {
        call_indexing(L, "set", &list, selected, 3);
        return 0;
    }
    fl_operand value = check_value(L, 3, x);
    if (list.tensors == 1) assign_at(L, target, single_tensor(&list), &value);
    else assign(L, target, &value);
    return 0;
}
