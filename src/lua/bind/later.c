/*
** later.c -- methods of tensors that are made when they are read for the first time, so that a script pays for what it
** uses: ops, and functions of Lua modules.
*/
#include "members.h"
#include "modules.h"
#include "op_call.h"

#include <string.h>

static const struct {
    const char *module, *names;
} later[] = {
    {"shaping", "unbind tensor_split hsplit vsplit dsplit iter"},
    {"dtypes", "astype type_as is_floating_point is_complex new_zeros new_ones new_empty new_full new_tensor"},
    {"compare", "equal allclose isclose"},
    {"indexing", "index_put index_put_"},
    {"torch_names",
     "absolute absolute_ arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan_ arctan2 "
     "arctan2_ arctanh arctanh_ fix fix_ sgn sgn_ trapz mvlgamma pinverse split_with_sizes ndimension tolist "
     "conj_physical isreal addbmm_ addmm_ addmv_ addr_ baddbmm_ cumprod_ cumsum_ float_power_ ldexp_ mvlgamma_ "
     "polygamma_ tril_ triu_ fill_diagonal_ clamp_min clamp_max clamp_min_ clamp_max_ frexp dist histogram "
     "element_size is_signed is_same_size is_nonzero "
     "sum_to_size"},
    {"linalg_names", "geqrf orgqr ormqr lu lu_solve"},
    {"array_api", "positive conj"},
};
enum { MODULES = sizeof later / sizeof *later };

/* Calls of `each` with the words of a list, until it returns true. */
static bool is_in(const char *names, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = names; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0) return true;
        at += length;
    }
    return false;
}

static bool push_of_module(lua_State *L, const char *name)
{
    for (int i = 0; i < MODULES; i++) {
        if (!is_in(later[i].names, name)) continue;
        fl_lua_push_module(L, later[i].module);
        lua_getfield(L, -1, name);
        lua_remove(L, -2);
        return true;
    }
    return false;
}

bool fl_lua_push_later_method(lua_State *L, int methods, const char *name)
{
    methods = lua_absindex(L, methods);
    if (!fl_lua_push_op_method(L, methods, name) && !push_of_module(L, name)) return false;
    lua_pushstring(L, name);
    lua_pushvalue(L, -2);
    lua_rawset(L, methods);
    return true;
}

static int methods_index(lua_State *L)
{
    return lua_type(L, 2) == LUA_TSTRING && fl_lua_push_later_method(L, 1, lua_tostring(L, 2));
}

static int methods_names(lua_State *L)
{
    lua_newtable(L);
    fl_lua_append_op_names(L, FL_LUA_METHODS);
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    for (int i = 0; i < MODULES; i++) {
        for (const char *at = later[i].names; *at; at += strspn(at, " ")) {
            size_t length = strcspn(at, " ");
            lua_pushlstring(L, at, length);
            lua_rawseti(L, -2, ++n);
            at += length;
        }
    }
    return 1;
}

void fl_lua_open_later_methods(lua_State *L, int methods)
{
    lua_pushvalue(L, methods);
    fl_lua_set_op_members(L, methods_index, methods_names, FL_LUA_METHODS);
    lua_pop(L, 1);
}
