/*
** bytes.c -- tensors as strings of bytes and back: x:tobytes(), flow.frombytes.
**
** The elements lie in row-major order without gaps, each as the machine holds it: little-endian on all that this
** builds for. A bool is one byte, 0 or 1. Both ways copy.
*/
#include "arguments.h"
#include "members.h"
#include "tensors.h"

/* x:tobytes() */
static int tensor_tobytes(lua_State *L)
{
    fl_tensor *x = fl_lua_check_tensor(L, 1, "tobytes", "x");
    fl_lua_check_count(L, 1, "tobytes", "x:tobytes()");
    fl_tensor *whole = fl_lua_push_host(L, "tobytes");
    size_t bytes = (size_t)whole->meta->numel * fl_dtype_size(x->meta->dtype);
    if (!whole->contiguous) {
        fl_box *box = fl_lua_new_box_fast(L);
        FL_CHECK(L, FL_CALL_UNRECORDED(&box->tensor, contiguous, fl_of(whole)));
        FL_CHECK(L, fl_tensor_wait(box->tensor));
        whole = box->tensor;
    }
    lua_pushlstring(L, bytes ? fl_tensor_data(whole) : "", bytes);
    FL_CHECK(L, fl_tensor_wait(whole)); /* a mapped file may have been lost just now */
    fl_lua_account(L);
    return 1;
}

/* The shape at index; nil: one axis, of as many elements as there are. */
static void read_shape(lua_State *L, fl_shape *shape, int index, fl_dtype dtype, size_t bytes)
{
    int64_t sizes[FL_MAX_NDIM] = {(int64_t)(bytes / fl_dtype_size(dtype))};
    int ndim = 1;
    if (!lua_isnoneornil(L, index)) ndim = fl_lua_check_list(L, index, sizes, FL_MAX_NDIM, "frombytes", "shape");
    FL_CHECK(L, fl_shape_make(shape, "frombytes", sizes, ndim));
    int64_t want = fl_dtype_size(dtype);
    for (int i = 0; i < ndim; i++) want *= shape->dims[i]; /* fl_shape_make has seen to it that this fits */
    char text[FL_SHAPE_TEXT];
    if ((size_t)want != bytes)
        FL_RAISE(L, "frombytes: %s%s takes %lld bytes, s has %lld", fl_dtype_name(dtype), fl_shape_text(text, shape),
                 (long long)want, (long long)bytes);
}

static void check_booleans(lua_State *L, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((unsigned char)bytes[i] > 1)
            FL_RAISE(L, "frombytes: a bool is a byte 0 or 1; byte %lld of s is %d", (long long)i + 1,
                     (unsigned char)bytes[i]);
}

/* flow.frombytes(s, dtype, shape, {device, placement, sbp, requires_grad}) */
static int flow_frombytes(lua_State *L)
{
    fl_lua_options options = {0};
    fl_attrs attrs = {0};
    fl_shape shape;
    size_t bytes;
    fl_lua_check_count(L, 4, "frombytes", "frombytes(s, dtype, shape, options)");
    if (lua_type(L, 1) != LUA_TSTRING) FL_RAISE(L, "frombytes: s must be a string, got %s", fl_lua_type_name(L, 1));
    const char *data = lua_tolstring(L, 1, &bytes);
    fl_dtype dtype = fl_lua_check_dtype(L, 2, "frombytes");
    lua_settop(L, 4);
    read_shape(L, &shape, 3, dtype, bytes);
    if (dtype == FL_BOOL) check_booleans(L, data, bytes);
    fl_lua_read_options(L, &options, 4, shape.ndim, "frombytes");
    if (options.has_dtype) FL_RAISE(L, "frombytes: the dtype is the second argument, not an option");
    fl_lua_complete_options(&options);
    fl_lua_apply_options(L, &attrs, &options, "frombytes");
    FL_CHECK(L, fl_program_refuse("a tensor is made of a string"));
    fl_box *box = fl_lua_new_box_fast(L);
    FL_CHECK(L, fl_tensor_empty_local(&box->tensor, dtype, &shape));
    if (bytes) memcpy(fl_tensor_data(box->tensor), data, bytes);
    if (attrs.has_placement) FL_CHECK_OF(L, "frombytes", fl_lua_place(box, &attrs, "frombytes"));
    if (options.requires_grad) FL_CHECK(L, fl_autograd_set_requires_grad(box->tensor, true));
    fl_lua_account(L);
    return 1;
}

void fl_lua_open_bytes(lua_State *L, int flow, int methods)
{
    static const luaL_Reg functions[] = {{"frombytes", flow_frombytes}, {NULL, NULL}};
    static const luaL_Reg method_functions[] = {{"tobytes", tensor_tobytes}, {NULL, NULL}};
    fl_lua_set_functions(L, flow, functions);
    fl_lua_set_functions(L, methods, method_functions);
}
