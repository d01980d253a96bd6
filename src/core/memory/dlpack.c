/*
** dlpack.c -- the structures of DLPack, and tensors made of them and for them.
*/
#include "dlpack.h"
#include "device.h"

#include <stdlib.h>

/* ---- the structures ---- */

enum { MAJOR = 1, MINOR = 0 };
enum { ON_CPU = 1, ON_CUDA = 2, ON_CUDA_HOST = 3 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_BOOL = 6 };
enum { READ_ONLY = 1 };

struct description {
    void *data;
    int32_t device_type, device_index;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides: in elements, NULL: row-major */
    uint64_t byte_offset;
};

struct managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct managed *self);
    uint64_t flags;
    struct description tensor;
};

/* Before version 1. */
struct unversioned {
    struct description tensor;
    void *context;
    void (*deleter)(struct unversioned *self);
};

static const struct {
    uint8_t code, bits;
} codes[FL_DTYPE_COUNT] = {
    [FL_BOOL] = {CODE_BOOL, 8},        [FL_UINT8] = {CODE_UINT, 8},     [FL_INT8] = {CODE_INT, 8},
    [FL_INT32] = {CODE_INT, 32},       [FL_INT64] = {CODE_INT, 64},     [FL_FLOAT16] = {CODE_FLOAT, 16},
    [FL_BFLOAT16] = {CODE_BFLOAT, 16}, [FL_FLOAT32] = {CODE_FLOAT, 32}, [FL_FLOAT64] = {CODE_FLOAT, 64},
};

void fl_dlpack_drop(void *managed)
{
    struct managed *m = managed;
    if (m && m->deleter) m->deleter(m);
}

/* A tensor exported to another library, in either layout. */
struct exported {
    struct managed managed;
    struct unversioned unversioned;
    fl_tensor *tensor; /* owned */
    int64_t shape[FL_MAX_NDIM], strides[FL_MAX_NDIM];
};

static void drop_exported(struct managed *managed)
{
    struct exported *exported = managed->context;
    fl_tensor_release(exported->tensor);
    free(exported);
}

static void drop_unversioned(struct unversioned *unversioned)
{
    struct exported *exported = unversioned->context;
    drop_exported(&exported->managed);
}

/* ---- taking ---- */

static fl_status read_dtype(fl_dtype *out, const struct description *tensor)
{
    for (int d = 0; d < FL_DTYPE_COUNT; d++)
        if (codes[d].code == tensor->code && codes[d].bits == tensor->bits && tensor->lanes == 1) {
            *out = (fl_dtype)d;
            return FL_OK;
        }
    return fl_fail(FL_ERR_DTYPE, "from_dlpack: no dtype is like the array's (code %d, %d bits, %d lanes)", tensor->code,
                   tensor->bits, tensor->lanes);
}

static fl_status read_place(const fl_placement **out, const struct description *tensor)
{
    const fl_device *device;
    bool host = tensor->device_type == ON_CPU || tensor->device_type == ON_CUDA_HOST;
    if (!host && tensor->device_type != ON_CUDA)
        return fl_fail(FL_ERR_VALUE,
                       "from_dlpack: the array is on a device of type %d; it must be on the CPU or on CUDA",
                       tensor->device_type);
    *out = fl_placement_local(FL_CPU, -1);
    if (host) return FL_OK;
    FL_TRY(fl_device_get(&device, FL_CUDA));
    if (tensor->device_index < 0 || tensor->device_index >= device->count)
        return fl_fail(FL_ERR_VALUE, "from_dlpack: there is no cuda:%d", tensor->device_index);
    *out = fl_placement_local(FL_CUDA, tensor->device_index == device->own ? -1 : tensor->device_index);
    return FL_OK;
}

static fl_status read_meta(const fl_meta **out, const struct managed *managed)
{
    const struct description *t = &managed->tensor;
    const fl_placement *place = NULL;
    fl_dtype dtype = FL_FLOAT32;
    fl_shape shape;
    if (managed->major != MAJOR)
        return fl_fail(FL_ERR_VALUE, "from_dlpack: the array is of DLPack %u.%u, this is %d", managed->major,
                       managed->minor, MAJOR);
    FL_TRY(read_dtype(&dtype, t));
    FL_TRY(read_place(&place, t));
    if (t->ndim > 0 && !t->shape) return fl_fail(FL_ERR_VALUE, "from_dlpack: the array has no shape");
    FL_TRY(fl_shape_make(&shape, "from_dlpack", t->shape, t->ndim));
    FL_TRY(fl_meta_get(out, dtype, &shape, place, fl_nd_sbp_fill(FL_B, 1), true));
    fl_status status = t->strides ? fl_tensor_check_strides("from_dlpack", *out, t->strides) : FL_OK;
    if (status == FL_OK && (*out)->numel && !t->data)
        status = fl_fail(FL_ERR_VALUE, "from_dlpack: the array has no memory");
    if (status != FL_OK) fl_meta_unref(*out);
    return status;
}

static bool must_copy(const struct managed *managed, const char *data, const fl_meta *meta)
{
    const struct description *t = &managed->tensor;
    bool negative = false;
    for (int i = 0; t->strides && i < t->ndim; i++) negative = negative || t->strides[i] < 0;
    return managed->flags & READ_ONLY || negative || (uintptr_t)data % fl_dtype_size(meta->dtype);
}

/* Copies the elements of `axis` and those after it, row-major; returns what follows in out. */
static char *copy_axis(char *out, const char *in, const fl_meta *meta, const int64_t *strides, int axis)
{
    int64_t size = (int64_t)fl_dtype_size(meta->dtype);
    if (axis == meta->shape.ndim) {
        memcpy(out, in, (size_t)size);
        return out + size;
    }
    for (int64_t i = 0; i < meta->shape.dims[axis]; i++)
        out = copy_axis(out, in + i * strides[axis] * size, meta, strides, axis + 1);
    return out;
}

static fl_status copy_of(fl_tensor **out, const fl_meta *meta, const struct managed *managed, const char *data)
{
    const int64_t *strides = managed->tensor.strides ? managed->tensor.strides : meta->strides;
    if (meta->placement->type != FL_CPU)
        return fl_fail(FL_ERR_VALUE,
                       "from_dlpack: memory of a device that is read-only, or has negative strides, cannot "
                       "be taken; copy the array first");
    FL_TRY(fl_tensor_empty(out, meta));
    if (meta->numel) copy_axis(fl_tensor_data(*out), data, meta, strides, 0);
    return FL_OK;
}

/* A tensor of ours comes back: its variable orders the ops of both. */
static fl_status take_back(fl_tensor **out, const fl_meta *meta, struct managed *managed)
{
    fl_tensor *tensor = ((struct exported *)managed->context)->tensor;
    fl_status status = fl_tensor_view(out, tensor, meta, tensor->strides, tensor->offset);
    if (status == FL_OK) fl_dlpack_drop(managed);
    return status;
}

fl_status fl_dlpack_take(fl_tensor **out, void *given)
{
    struct managed *m = given;
    const fl_meta *meta;
    if (!m) return fl_fail(FL_ERR_VALUE, "from_dlpack: the array is NULL");
    FL_TRY(read_meta(&meta, m));
    if (m->deleter == drop_exported) {
        fl_status status = take_back(out, meta, m);
        fl_meta_unref(meta);
        return status;
    }
    char *data = (char *)m->tensor.data + m->tensor.byte_offset;
    bool copies = must_copy(m, data, meta);
    fl_status status = copies ? copy_of(out, meta, m, data)
                              : fl_tensor_foreign(out, meta, m->tensor.strides, data, fl_dlpack_drop, m);
    fl_meta_unref(meta);
    if (status == FL_OK && copies) fl_dlpack_drop(m);
    return status;
}

/* A tensor given in the old layout, wrapped in the new one. */
struct upgraded {
    struct managed managed;
    struct unversioned *given;
};

static void drop_upgraded(struct managed *managed)
{
    struct upgraded *upgraded = managed->context;
    if (upgraded->given->deleter) upgraded->given->deleter(upgraded->given);
    free(upgraded);
}

fl_status fl_dlpack_take_unversioned(fl_tensor **out, void *given)
{
    struct unversioned *unversioned = given;
    if (!unversioned) return fl_fail(FL_ERR_VALUE, "from_dlpack: the array is NULL");
    if (unversioned->deleter == drop_unversioned)
        return fl_dlpack_take(out, &((struct exported *)unversioned->context)->managed);
    struct upgraded *upgraded = malloc(sizeof *upgraded);
    if (!upgraded) return fl_fail(FL_ERR_MEMORY, "from_dlpack: out of memory");
    upgraded->given = unversioned;
    upgraded->managed = (struct managed){
        .major = MAJOR, .minor = MINOR, .context = upgraded, .deleter = drop_upgraded, .tensor = unversioned->tensor};
    fl_status status = fl_dlpack_take(out, &upgraded->managed);
    if (status != FL_OK) free(upgraded);
    return status;
}

/* ---- giving ---- */

/* The value is there, and no op is at it. */
static fl_status settle(fl_tensor *tensor)
{
    FL_TRY(fl_meta_check_values(tensor->meta));
    fl_tensor_data(tensor); /* a deferred value is computed */
    FL_TRY(fl_tensor_wait(tensor));
    fl_engine_wait_idle(&tensor->storage->var);
    return FL_OK;
}

fl_status fl_dlpack_give(void **out, fl_tensor *tensor)
{
    const fl_meta *meta = tensor->meta;
    FL_TRY(settle(tensor));
    struct exported *exported = calloc(1, sizeof *exported);
    if (!exported) return fl_fail(FL_ERR_MEMORY, "out of memory");
    exported->tensor = fl_tensor_ref(tensor);
    memcpy(exported->shape, meta->window.size, sizeof exported->shape);
    memcpy(exported->strides, tensor->strides, sizeof exported->strides);
    tensor->storage->var.exposed = true;
    tensor->storage->var.unset = false; /* others may have given it values */
    bool host = meta->placement->type == FL_CPU;
    exported->managed = (struct managed){
        .major = MAJOR,
        .minor = MINOR,
        .context = exported,
        .deleter = drop_exported,
        .tensor = {.data = meta->local_numel ? fl_tensor_data(tensor) : NULL,
                   .device_type = host ? ON_CPU : ON_CUDA,
                   .device_index = host ? 0 : tensor->storage->device_index,
                   .ndim = meta->shape.ndim,
                   .code = codes[meta->dtype].code,
                   .bits = codes[meta->dtype].bits,
                   .lanes = 1,
                   .shape = exported->shape,
                   .strides = exported->strides},
    };
    *out = &exported->managed;
    return FL_OK;
}

fl_status fl_dlpack_give_unversioned(void **out, fl_tensor *tensor)
{
    void *managed;
    FL_TRY(fl_dlpack_give(&managed, tensor));
    struct exported *exported = ((struct managed *)managed)->context;
    exported->unversioned =
        (struct unversioned){.tensor = exported->managed.tensor, .context = exported, .deleter = drop_unversioned};
    *out = &exported->unversioned;
    return FL_OK;
}
