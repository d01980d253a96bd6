/*
** options.c -- the options that creation ops share: dtype, device, placement, sbp, requires_grad.
*/
#include "arguments.h"

static const char *const option_names[] = {"dtype", "device", "placement", "sbp", "requires_grad", NULL};

void fl_lua_suggest_options(fl_suggestion *suggestion)
{
    for (const char *const *name = option_names; *name; name++) fl_suggest_offer(suggestion, *name);
}

bool fl_lua_option(lua_State *L, fl_lua_options *options, const char *key, int index, int ndim, const char *who)
{
    if (strcmp(key, "dtype") == 0) {
        options->dtype = fl_lua_check_dtype(L, index, who);
        options->has_dtype = true;
    } else if (strcmp(key, "device") == 0) options->device = fl_lua_check_device(L, index, who);
    else if (strcmp(key, "placement") == 0) options->placement = fl_lua_check_placement(L, index, who);
    else if (strcmp(key, "sbp") == 0) {
        options->sbp = fl_lua_check_sbp(L, index, ndim, who);
        options->has_sbp = true;
    } else if (strcmp(key, "requires_grad") == 0) {
        if (!lua_isboolean(L, index))
            FL_RAISE(L, "%s: requires_grad must be true or false, got %s", who, fl_lua_type_name(L, index));
        options->requires_grad = lua_toboolean(L, index);
    } else return false;
    return true;
}

void fl_lua_refuse_bare_option(lua_State *L, int index, const char *who)
{
    const char *word = lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : "";
    const char *name = fl_dtype_parse(word) != FL_DTYPE_COUNT ? "dtype" : fl_lua_names_device(word) ? "device" : NULL;
    if (name) FL_RAISE(L, "%s: options go in a table: {%s = \"%s\"}", who, name, word);
}

void fl_lua_read_options(lua_State *L, fl_lua_options *options, int index, int ndim, const char *who)
{
    if (lua_isnoneornil(L, index)) return;
    fl_lua_refuse_bare_option(L, index, who);
    if (!lua_istable(L, index)) FL_RAISE(L, "%s: options must be a table, got %s", who, fl_lua_type_name(L, index));
    fl_lua_check_keys(L, index, who, option_names);
    for (const char *const *name = option_names; *name; name++) {
        if (lua_getfield(L, index, *name) != LUA_TNIL) fl_lua_option(L, options, *name, lua_gettop(L), ndim, who);
        lua_pop(L, 1);
    }
}

const fl_placement *fl_lua_device;

void fl_lua_complete_options(fl_lua_options *options)
{
    if (!options->device && !options->placement && !options->has_sbp) options->device = fl_lua_device;
}

void fl_lua_apply_options(lua_State *L, fl_attrs *attrs, const fl_lua_options *options, const char *who)
{
    attrs->requires_grad = options->requires_grad;
    attrs->has_dtype = options->has_dtype;
    attrs->option_dtype = options->dtype;
    if (options->device && options->placement)
        FL_RAISE(L, "%s: give a device (a local tensor) or a placement and an sbp (a global one), not both", who);
    if (options->device) {
        attrs->has_placement = attrs->is_local = true;
        attrs->placement = options->device;
        attrs->nd_sbp = fl_nd_sbp_fill(FL_B, 1);
    }
    if (!options->placement != !options->has_sbp)
        FL_RAISE(L, "%s: placement and sbp go together; %s", who,
                 options->placement ? "sbp is missing: write sbp = \"B\" (whole on every rank) or \"S(0)\" (split)"
                                    : "placement is missing: write placement = flow.placement.all(\"cpu\")");
    if (!options->placement) return;
    fl_lua_check_fit(L, options->sbp, options->placement, who);
    attrs->has_placement = true;
    attrs->is_local = false;
    attrs->placement = options->placement;
    attrs->nd_sbp = options->sbp;
}
