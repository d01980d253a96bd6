/*
** device.c -- where tensors are made, and of what dtype: flow.with_device and the defaults, and flow.spec, a tensor of
** the meta device.
*/
#include "arguments.h"
#include "members.h"
#include "scope.h"
#include "tensors.h"

/* flow.with_device(device, f, ...) -> what f, a function or a class, returns; without f: a value for
** `local _ <close> =` */
static int with_device(lua_State *L)
{
    const fl_placement *device = fl_lua_check_device(L, 1, "with_device");
    int given = lua_gettop(L);
    if (given > 1 && !fl_lua_is_callable(L, 2))
        FL_RAISE(L, "with_device: f must be a function or a class, got %s", fl_lua_type_name(L, 2));
    fl_lua_scope_open(L, FL_SETTING_DEVICE, (uintptr_t)device, 0);
    if (given == 1) return 1;
    lua_replace(L, 1);
    return fl_lua_scope_call(L);
}

/* Until another one is set; inside a scope of the same setting until that ends. */
static int set_default_dtype(lua_State *L)
{
    static const char who[] = "set_default_dtype";
    fl_lua_check_count(L, 1, who, "set_default_dtype(dtype)");
    fl_dtype dtype = fl_lua_check_dtype(L, 1, who);
    if (!fl_dtype_is_float(dtype))
        FL_RAISE(L, "set_default_dtype: dtype must be a float, got %s", fl_dtype_name(dtype));
    fl_lua_setting_set(FL_SETTING_DTYPE, dtype);
    return 0;
}

static int get_default_dtype(lua_State *L)
{
    fl_lua_check_count(L, 0, "get_default_dtype", "get_default_dtype()");
    lua_pushstring(L, fl_dtype_name(fl_dtype_default));
    return 1;
}

static int set_default_device(lua_State *L)
{
    fl_lua_check_count(L, 1, "set_default_device", "set_default_device(device)");
    fl_lua_setting_set(FL_SETTING_DEVICE, (uintptr_t)fl_lua_check_device(L, 1, "set_default_device"));
    return 0;
}

static int get_default_device(lua_State *L)
{
    char device[FL_DEVICE_TEXT];
    fl_lua_check_count(L, 0, "get_default_device", "get_default_device()");
    lua_pushstring(L, fl_lua_device ? fl_placement_device_text(device, fl_lua_device) : "cpu");
    return 1;
}

/* Puts the tensor that the options describe on the meta device; of a placement on the same ranks. */
static void describe(lua_State *L, fl_lua_options *options)
{
    const fl_placement *p = options->placement;
    if (options->device) FL_RAISE(L, "spec: the device of a spec is \"meta\"; a placement says which ranks");
    if (!p && !options->has_sbp) options->device = fl_placement_local(FL_META, -1);
    if (!p) return;
    FL_CHECK(L, fl_placement_get(&options->placement, FL_META, p->ranks, p->count, p->hierarchy, p->ndim));
}

/* flow.spec(shape, dtype or {dtype, placement, sbp, requires_grad}) */
static int flow_spec(lua_State *L)
{
    fl_lua_options options = {.dtype = fl_dtype_default};
    fl_attrs attrs = {0};
    fl_shape shape;
    int64_t sizes[FL_MAX_NDIM];
    const fl_meta *meta;
    fl_lua_check_count(L, 2, "spec", "spec(shape, dtype or options)");
    int ndim = fl_lua_check_list(L, 1, sizes, FL_MAX_NDIM, "spec", "shape");
    FL_CHECK(L, fl_shape_make(&shape, "spec", sizes, ndim));
    if (lua_type(L, 2) == LUA_TSTRING) options.dtype = fl_lua_check_dtype(L, 2, "spec");
    else fl_lua_read_options(L, &options, 2, ndim, "spec");
    describe(L, &options);
    fl_lua_apply_options(L, &attrs, &options, "spec");
    fl_box *box = fl_lua_new_box(L);
    fl_status status = fl_meta_get(&meta, options.dtype, &shape, attrs.placement, attrs.nd_sbp, attrs.is_local);
    if (status != FL_OK) fl_lua_error(L, fl_fail_prefix(status, "spec: "));
    status = fl_tensor_empty(&box->tensor, meta);
    fl_meta_unref(meta);
    FL_CHECK(L, status);
    if (options.requires_grad) FL_CHECK(L, fl_autograd_set_requires_grad(box->tensor, true));
    return 1;
}

/* flow.device_count("cuda"): a missing part is no error here */
static int flow_device_count(lua_State *L)
{
    fl_lua_check_count(L, 1, "device_count", "device_count(type)");
    const fl_placement *p = fl_lua_check_device(L, 1, "device_count");
    if (p->device_index >= 0) FL_RAISE(L, "device_count: takes \"cpu\" or \"cuda\", got '%s'", lua_tostring(L, 1));
    lua_pushinteger(L, fl_device_count(p->type));
    return 1;
}

void fl_lua_open_device(lua_State *L, int flow)
{
    static const luaL_Reg functions[] = {{"with_device", with_device},
                                         {"spec", flow_spec},
                                         {"device_count", flow_device_count},
                                         {"set_default_dtype", set_default_dtype},
                                         {"get_default_dtype", get_default_dtype},
                                         {"set_default_device", set_default_device},
                                         {"get_default_device", get_default_device},
                                         {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
}
