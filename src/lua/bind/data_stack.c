/*
** data_stack.c -- items put together to the fields of a batch (data_stack.h).
*/
#include "data_stack.h"
#include "errors.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

/* Memory of a field; of a device's host memory, when there is a device. */
struct memory {
    const fl_device *device;
    void *data;
    size_t bytes;
};

struct field {
    int type;              /* of Lua; LUA_TUSERDATA: arrays */
    struct memory *memory; /* owned; NULL: of strings, without bytes, or given to a tensor */
    fl_dtype dtype;
    fl_shape shape;
    size_t size; /* of an item's part */
};

struct fl_stack {
    const fl_device *device;
    fl_row *const *rows; /* borrowed */
    int64_t count;
    struct field fields[]; /* those of the first row */
};

static void memory_free(void *context)
{
    struct memory *memory = context;
    if (!memory) return;
    if (memory->device) memory->device->host_release(memory->data, memory->bytes);
    else free(memory->data);
    free(memory);
}

static struct memory *memory_new(const fl_device *device, size_t bytes)
{
    struct memory *memory = malloc(sizeof *memory);
    if (!memory) return NULL;
    *memory = (struct memory){device, NULL, bytes};
    if (device && device->host_allocate(&memory->data, bytes) == FL_OK) return memory;
    memory->device = NULL;
    memory->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory->data) return memory;
    free(memory);
    return NULL;
}

/* The value of the first row's field k in another row; NULL: there is none like it. */
static const fl_row_field *alike(const fl_stack *stack, int k, int64_t i)
{
    const fl_row *first = stack->rows[0], *row = stack->rows[i];
    const fl_row_field *a = &first->fields[k], *b = fl_row_find(row, first, a, k);
    if (!b || a->value.type != b->value.type) return NULL;
    if (a->value.type != LUA_TUSERDATA) return b;
    return a->dtype == b->dtype && fl_shape_equal(&a->shape, &b->shape) ? b : NULL;
}

/* Plans the result of field k; false: the items differ. */
static bool plan_field(fl_stack *stack, int k)
{
    const fl_row_field *first = &stack->rows[0]->fields[k];
    struct field *f = &stack->fields[k];
    bool whole = true;
    for (int64_t i = 0; i < stack->count; i++) {
        const fl_row_field *field = alike(stack, k, i);
        if (!field) return false;
        whole = whole && field->value.whole;
    }
    f->type = first->value.type;
    f->dtype = f->type == LUA_TUSERDATA ? first->dtype
        : f->type == LUA_TBOOLEAN       ? FL_BOOL
        : whole                         ? FL_INT64
                                        : FL_FLOAT32;
    f->size = f->type == LUA_TUSERDATA ? first->size : fl_dtype_size(f->dtype);
    f->shape.ndim = 1;
    f->shape.dims[0] = stack->count;
    if (f->type != LUA_TUSERDATA) return true;
    if (first->shape.ndim == FL_MAX_NDIM) return false;
    f->shape.ndim += first->shape.ndim;
    memcpy(f->shape.dims + 1, first->shape.dims, sizeof(int64_t) * (size_t)first->shape.ndim);
    return true;
}

static void store(char *out, const struct field *f, const fl_row *row, const fl_row_field *field)
{
    const fl_plain *v = &field->value;
    if (f->type == LUA_TUSERDATA) memcpy(out, fl_row_bytes(row) + field->at, f->size);
    else if (f->dtype == FL_BOOL) *(uint8_t *)out = v->integer != 0;
    else if (f->dtype == FL_INT64) *(int64_t *)out = v->integer;
    else *(float *)out = v->whole ? (float)v->integer : (float)v->number;
}

static bool fill_field(fl_stack *stack, int k)
{
    struct field *f = &stack->fields[k];
    size_t bytes = f->size * (size_t)stack->count;
    if (f->type == LUA_TSTRING || bytes == 0) return true;
    f->memory = memory_new(stack->device, bytes);
    if (!f->memory) return false;
    for (int64_t i = 0; i < stack->count; i++)
        store((char *)f->memory->data + (size_t)i * f->size, f, stack->rows[i], alike(stack, k, i));
    return true;
}

fl_stack *fl_stack_rows(fl_row *const *rows, int64_t count, const fl_device *device)
{
    int fields = count > 0 ? rows[0]->count : 0;
    fl_stack *stack = count > 0 ? calloc(1, sizeof *stack + sizeof(struct field) * (size_t)fields) : NULL;
    if (!stack) return NULL;
    stack->device = device;
    stack->rows = rows;
    stack->count = count;
    bool good = true;
    for (int64_t i = 0; i < count; i++) good = good && rows[i]->count == fields;
    for (int k = 0; good && k < fields; k++) good = plan_field(stack, k);
    for (int k = 0; good && k < fields; k++) good = fill_field(stack, k);
    if (good) return stack;
    fl_stack_free(stack);
    return NULL;
}

bool fl_stack_is_whole(const fl_stack *stack)
{
    bool strings = false;
    for (int k = 0; k < stack->rows[0]->count; k++) strings = strings || stack->fields[k].type == LUA_TSTRING;
    return !strings;
}

void fl_stack_free(fl_stack *stack)
{
    if (!stack) return;
    for (int k = 0; k < stack->rows[0]->count; k++) memory_free(stack->fields[k].memory);
    free(stack);
}

static fl_status to_tensor(fl_tensor **out, struct field *field)
{
    const fl_meta *meta;
    if (!field->memory) return fl_tensor_empty_local(out, field->dtype, &field->shape);
    FL_TRY(
        fl_meta_get(&meta, field->dtype, &field->shape, fl_placement_local(FL_CPU, -1), fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = fl_tensor_foreign(out, meta, NULL, field->memory->data, memory_free, field->memory);
    fl_meta_unref(meta);
    if (status == FL_OK) field->memory = NULL;
    return status;
}

static void push_strings(lua_State *L, const fl_stack *stack, int k)
{
    lua_createtable(L, (int)stack->count, 0);
    for (int64_t i = 0; i < stack->count; i++) {
        fl_row_push_plain(L, stack->rows[i], &alike(stack, k, i)->value);
        lua_rawseti(L, -2, i + 1);
    }
}

void fl_stack_push(lua_State *L, fl_stack *stack)
{
    const fl_row *first = stack->rows[0];
    lua_createtable(L, 0, first->count);
    for (int k = 0; k < first->count; k++) {
        struct field *f = &stack->fields[k];
        fl_row_push_key(L, first, &first->fields[k]);
        if (f->type == LUA_TSTRING) push_strings(L, stack, k);
        else FL_CHECK(L, to_tensor(&fl_lua_new_box(L)->tensor, f));
        lua_rawset(L, -3);
    }
}
