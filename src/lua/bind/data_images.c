/*
** data_images.c -- flow._io's images: files decoded, steps on tensors, batches of a source (data_images.lua checks the
** arguments and documents them).
*/
#include "arguments.h"
#include "data_records.h"
#include "members.h"
#include "source.h"
#include "tensors.h"

#include <string.h>

/* ---- sources ---- */

static const char source_name[] = "flow.source";

static int source_gc(lua_State *L)
{
    fl_lua_source *self = luaL_checkudata(L, 1, source_name);
    if (self->source) fl_engine_wait_idle(&self->var);
    fl_item_source_free(self->source);
    self->source = NULL;
    return 0;
}

fl_lua_source *fl_lua_new_source(lua_State *L)
{
    fl_lua_source *self = lua_newuserdatauv(L, sizeof *self, 0);
    *self = (fl_lua_source){NULL, {0}};
    luaL_setmetatable(L, source_name);
    return self;
}

fl_lua_source *fl_lua_check_source(lua_State *L, int index)
{
    fl_lua_source *self = luaL_checkudata(L, index, source_name);
    luaL_argcheck(L, self->source, index, "the source is closed");
    return self;
}

/* _io.file_source(who, root or nil, paths, labels or nil) -> source; who: a constant of the Lua module */
static int io_file_source(lua_State *L)
{
    lua_Integer count = luaL_len(L, 3);
    bool labelled = lua_istable(L, 4);
    const char **paths = lua_newuserdatauv(L, sizeof *paths * (size_t)(count + 1), 0);
    int64_t *labels = lua_newuserdatauv(L, sizeof *labels * (size_t)(count + 1), 0);
    for (lua_Integer i = 0; i < count; i++) {
        if (lua_rawgeti(L, 3, i + 1) != LUA_TSTRING) return luaL_argerror(L, 3, "paths must be strings");
        paths[i] = lua_tostring(L, -1);
        lua_pop(L, 1); /* the list keeps the string */
        if (!labelled) continue;
        lua_rawgeti(L, 4, i + 1);
        labels[i] = luaL_checkinteger(L, -1);
        lua_pop(L, 1);
    }
    fl_lua_source *self = fl_lua_new_source(L);
    FL_CHECK(L,
             fl_files_source_new(&self->source, "images", luaL_optstring(L, 2, NULL), paths, labelled ? labels : NULL,
                                 count));
    return 1;
}

/* _io.record_source(set, image, label or nil) -> source: of the fields of these names */
static int io_record_source(lua_State *L)
{
    fl_record_set *set = fl_lua_to_record_set(L, 1);
    luaL_argcheck(L, set, 1, "not a set of records");
    fl_lua_source *self = fl_lua_new_source(L);
    FL_CHECK(L, fl_record_source_new(&self->source, "images", set, luaL_checkstring(L, 2), luaL_optstring(L, 3, NULL)));
    return 1;
}

/* _io.source_count(source) -> how many items */
static int io_source_count(lua_State *L)
{
    lua_pushinteger(L, fl_lua_check_source(L, 1)->source->count);
    return 1;
}

/* ---- sets: the processing of an item ---- */

static const char set_name[] = "flow.image_set";

static double number_field(lua_State *L, int index, const char *name, double otherwise)
{
    lua_getfield(L, index, name);
    double value = lua_isnil(L, -1) ? otherwise : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    return value;
}

/* Four numbers: the list in that field, whose last one stands for those that are missing. */
static void list_field(lua_State *L, int index, const char *name, float *out, float otherwise)
{
    for (int i = 0; i < 4; i++) out[i] = otherwise;
    if (lua_getfield(L, index, name) == LUA_TTABLE)
        for (int i = 0, n = (int)lua_rawlen(L, -1); i < 4 && n > 0; i++) {
            lua_rawgeti(L, -1, i < n ? i + 1 : n);
            out[i] = (float)luaL_checknumber(L, -1);
            lua_pop(L, 1);
        }
    lua_pop(L, 1);
}

/* {"resize", 224, 224} */
static void read_step(lua_State *L, fl_augment_step *step)
{
    int count = 0, kind;
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_rawgeti(L, -1, 1);
    kind = fl_augment_kind_of(luaL_checkstring(L, -1), &count);
    lua_pop(L, 1);
    if (kind < 0) luaL_error(L, "no such step");
    step->kind = (fl_augment_kind)kind;
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, -1, i + 2);
        step->values[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
}

/* _io.image_set{steps = {{"resize", 224, 224}, ...}, mode =, as_stored =, damaged =, wide =, exact =, dtype =,
** channels_last =, scale = {..}, shift = {..}, workers =} -> set */
static int io_image_set(lua_State *L)
{
    static const char *const modes[] = {"unchanged", "L", "RGB", "RGBA", NULL};
    luaL_checktype(L, 1, LUA_TTABLE);
    fl_image_set *set = lua_newuserdatauv(L, sizeof *set, 0);
    *set = (fl_image_set){.workers = (int)number_field(L, 1, "workers", 0)};
    luaL_setmetatable(L, set_name);
    lua_getfield(L, 1, "steps");
    set->augment.count = lua_istable(L, -1) ? (int)lua_rawlen(L, -1) : 0;
    luaL_argcheck(L, set->augment.count <= FL_STEPS_MOST, 1, "too many steps");
    for (int i = 0; i < set->augment.count; i++) {
        lua_rawgeti(L, -1, i + 1);
        read_step(L, &set->augment.steps[i]);
        lua_pop(L, 1);
    }
    lua_getfield(L, 1, "mode");
    set->options.mode = (fl_image_mode)luaL_checkoption(L, -1, "unchanged", modes);
    set->options.as_stored = fl_lua_flag(L, 1, "as_stored");
    set->options.damaged = fl_lua_flag(L, 1, "damaged");
    set->options.wide = fl_lua_flag(L, 1, "wide");
    set->augment.exact = fl_lua_flag(L, 1, "exact");
    lua_getfield(L, 1, "dtype");
    set->output.dtype = lua_isnil(L, -1) ? FL_UINT8 : fl_lua_check_dtype(L, -1, "images");
    set->output.channels_last = fl_lua_flag(L, 1, "channels_last");
    list_field(L, 1, "scale", set->output.scale, 1);
    list_field(L, 1, "shift", set->output.shift, 0);
    lua_pop(L, 3);
    return 1;
}

/* _io.image_size(set) -> height, width of every result; nothing: they depend on the image */
static int io_image_size(lua_State *L)
{
    const fl_image_set *set = luaL_checkudata(L, 1, set_name);
    int height, width;
    if (!fl_augment_size(&set->augment, &height, &width)) return 0;
    lua_pushinteger(L, height);
    lua_pushinteger(L, width);
    return 2;
}

static fl_augment_draw check_draw(lua_State *L, int index)
{
    return (fl_augment_draw){(uint64_t)luaL_checkinteger(L, index), (uint64_t)luaL_checkinteger(L, index + 1),
                             luaL_optinteger(L, index + 2, 0)};
}

/* ---- one image ---- */

/* Pixels of 16 bits as int32. */
static fl_status wide_tensor(fl_tensor **out, const fl_pixels *pixels, bool last)
{
    fl_shape shape = {.ndim = 3, .dims = {pixels->channels, pixels->height, pixels->width}};
    if (last) shape = (fl_shape){.ndim = 3, .dims = {pixels->height, pixels->width, pixels->channels}};
    FL_TRY(fl_tensor_empty_local(out, FL_INT32, &shape));
    int32_t *to = fl_tensor_data(*out);
    int64_t n = (int64_t)pixels->height * pixels->width, pixel = last ? pixels->channels : 1, channel = last ? 1 : n;
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < pixels->channels; c++) {
            uint16_t value = pixels->data[i * pixels->channels + c];
            if (pixels->wide) memcpy(&value, pixels->data + 2 * (i * pixels->channels + c), sizeof value);
            to[i * pixel + c * channel] = value;
        }
    return FL_OK;
}

/* The whole image. */
static fl_status decode(fl_tensor **out, fl_image_file *file, const fl_image_set *set, bool any_depth)
{
    fl_augmenter augmenter = {0};
    fl_augment_draw draw = {0};
    if (file->depth == 16 && !any_depth)
        return fl_fail(FL_ERR_DTYPE,
                       "%s: %s: has 16 bits per channel; say dtype = \"int32\" to keep them, dtype = \"uint8\" for 8",
                       file->bytes.who, file->bytes.name);
    fl_image_box whole = {0, 0, file->width, file->height};
    fl_status status;
    if (set->options.wide) {
        status = fl_image_read(file, &augmenter.pixels, NULL, whole, 1);
        if (status == FL_OK) status = wide_tensor(out, &augmenter.pixels, set->output.channels_last);
    } else {
        status = fl_augment_file(&augmenter, &set->augment, file, &draw);
        if (status == FL_OK) status = fl_image_tensor(out, &augmenter.now, &set->output);
    }
    fl_augmenter_free(&augmenter);
    return status;
}

static fl_status decode_bytes(fl_tensor **out, const fl_image_bytes *bytes, const fl_image_set *set, bool any_depth)
{
    fl_image_kind kind = strcmp(bytes->who, "jpeg") == 0 ? FL_IMAGE_JPEG : FL_IMAGE_PNG;
    fl_image_file *file;
    FL_TRY(fl_image_open(&file, bytes, kind, &set->options));
    fl_status status = decode(out, file, set, any_depth);
    fl_image_close(file);
    return status;
}

/* _io.image(who, name, bytes, set, any_depth) -> tensor; who: "jpeg" or "png", the format as well */
static int io_image(lua_State *L)
{
    fl_image_bytes bytes = {luaL_checkstring(L, 1), luaL_checkstring(L, 2), NULL, 0};
    bytes.data = (const unsigned char *)luaL_checklstring(L, 3, &bytes.size);
    const fl_image_set *set = luaL_checkudata(L, 4, set_name);
    FL_CHECK(L, fl_program_refuse("an image is decoded"));
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, decode_bytes(&box->tensor, &bytes, set, lua_toboolean(L, 5)));
    fl_lua_account(L);
    return 1;
}

/* _io.save_image(who, path, tensor, quality): "save_png" or "save_jpeg"; uint8 [height, width, channels], contiguous,
** on this host */
static int io_save_image(lua_State *L)
{
    const char *who = luaL_checkstring(L, 1), *path = fl_lua_check_path(L, 2, who);
    fl_tensor *x = fl_lua_check_tensor(L, 3, who, "x");
    FL_CHECK(L, fl_program_refuse("an image is written"));
    FL_CHECK(L, fl_tensor_wait(x));
    const int64_t *size = x->meta->shape.dims;
    fl_pixels pixels = {
        .data = fl_tensor_data(x), .height = (int)size[0], .width = (int)size[1], .channels = (int)size[2]};
    bool is_png = strcmp(who, "save_png") == 0;
    FL_CHECK(L, is_png ? fl_png_write(path, &pixels) : fl_jpeg_write(path, &pixels, (int)luaL_checkinteger(L, 4)));
    return 0;
}

/* _io.augment(set, tensor, seed, epoch, position) -> tensor; uint8, contiguous, on this host */
static int io_augment(lua_State *L)
{
    const fl_image_set *set = luaL_checkudata(L, 1, set_name);
    fl_tensor *in = fl_lua_check_tensor(L, 2, "augment", "x");
    fl_augment_draw draw = check_draw(L, 3);
    FL_CHECK(L, fl_program_refuse("an image is changed"));
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_tensor_wait(in));
    FL_CHECK(L, fl_image_augment(&box->tensor, in, set, &draw));
    fl_lua_account(L);
    return 1;
}

/* ---- items of a source ---- */

/* Negative positions count from the end. */
static int64_t check_position(lua_State *L, const fl_item_source *source, int64_t position)
{
    int64_t at = position < 0 ? position + source->count : position;
    if (at < 0 || at >= source->count)
        FL_RAISE(L, "position %lld is outside 0 to %lld", (long long)position, (long long)source->count - 1);
    return at;
}

/* _io.image_item(source, set, seed, epoch, position) -> tensor, label or nil */
static int io_image_item(lua_State *L)
{
    fl_lua_source *self = fl_lua_check_source(L, 1);
    const fl_image_set *set = luaL_checkudata(L, 2, set_name);
    fl_augment_draw draw = check_draw(L, 3);
    int64_t label;
    bool has_label;
    draw.position = check_position(L, self->source, draw.position);
    FL_CHECK(L, fl_program_refuse("an image is read"));
    fl_box *box = fl_lua_new_box(L);
    FL_CHECK(L, fl_image_item(&box->tensor, &label, &has_label, self->source, set, &draw));
    fl_lua_account(L);
    if (!has_label) return 1;
    lua_pushinteger(L, label);
    return 2;
}

/* _io.image_batch(source, set, positions, images, labels or nil, seed, epoch): fills the tensors, which are new, some
** time later. */
static int io_image_batch(lua_State *L)
{
    fl_lua_source *self = fl_lua_check_source(L, 1);
    const fl_image_set *set = luaL_checkudata(L, 2, set_name);
    fl_tensor *positions = fl_lua_check_tensor(L, 3, "batch", "positions");
    fl_tensor *images = fl_lua_check_tensor(L, 4, "batch", "images"), *labels = fl_lua_to_tensor(L, 5);
    fl_augment_draw draw = check_draw(L, 6);
    FL_CHECK(L, fl_program_refuse("images are read"));
    FL_CHECK(L, fl_tensor_wait(positions));
    int64_t count = positions->meta->shape.dims[0];
    const int64_t *list = count ? fl_tensor_data(positions) : NULL;
    for (int64_t i = 0; i < count; i++) check_position(L, self->source, list[i]);
    FL_CHECK(L, fl_image_batch(images, labels, self->source, &self->var, set, &draw, list, count));
    return 0;
}

void fl_lua_open_images(lua_State *L, int io)
{
    static const luaL_Reg functions[] = {
        {"file_source", io_file_source},
        {"record_source", io_record_source},
        {"source_count", io_source_count},
        {"image_set", io_image_set},
        {"image_size", io_image_size},
        {"image", io_image},
        {"save_image", io_save_image},
        {"augment", io_augment},
        {"image_item", io_image_item},
        {"image_batch", io_image_batch},
        {NULL, NULL},
    };
    luaL_newmetatable(L, source_name);
    lua_pushcfunction(L, source_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, set_name);
    lua_pop(L, 2);
    lua_pushvalue(L, io);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
