/*
** tensor.c -- tensors of hosts: made, borrowed, looked at, read and written.
*/
#include "api.h"
#include "dispatch/mapped.h"
#include "core/process.h"
#include "core/tasks.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- making ---- */

/* The meta of this rank's part as a local tensor on the CPU. */
static fl_status part_meta(const fl_meta **out, const fl_meta *meta)
{
    fl_shape part = {.ndim = meta->shape.ndim};
    FL_TRY(fl_meta_check_values(meta));
    memcpy(part.dims, meta->window.size, sizeof *part.dims * (size_t)part.ndim);
    return fl_meta_local(out, meta->dtype, &part);
}

/* The tensor of this meta whose part on this rank is `part`, on the CPU; takes its reference over. */
static fl_status place_part(fl_tensor **out, fl_tensor *part, const fl_meta *meta)
{
    const fl_placement *place = meta->placement;
    fl_status status = FL_OK;
    if (place->type != FL_CPU) {
        fl_tensor *moved;
        status = fl_to_device(&moved, part, fl_placement_local(place->type, place->device_index));
        fl_tensor_unref(part);
        if (status != FL_OK) return status;
        part = moved;
    }
    if (meta->is_local) {
        *out = part;
        return FL_OK;
    }
    status = fl_global_from_part(out, part, &meta->shape, place, meta->nd_sbp);
    fl_tensor_unref(part);
    return status;
}

flow_status flow_empty(flow_tensor **out, const flow_spec *spec)
{
    const fl_meta *meta;
    fl_tensor *made;
    FL_API_ENTER("flow_empty");
    FL_API_TRY(fl_api_need(out, "flow_empty", "out"));
    FL_API_TRY(fl_api_meta(&meta, "flow_empty", spec));
    fl_status status = fl_tensor_empty(&made, meta);
    fl_meta_unref(meta);
    if (status == FL_OK) *out = fl_api_out(made);
    else if (status == FL_ERR_MEMORY) fl_fail_prefix(status, "flow_empty: ");
    return fl_api_leave(status);
}

static fl_status copy_in(fl_tensor **out, const fl_meta *meta, const void *data)
{
    const fl_meta *host;
    fl_tensor *part;
    if (meta->local_numel) FL_TRY(fl_api_need(data, "flow_copy_in", "data"));
    if (meta->placement->type == FL_META) return fl_tensor_empty(out, meta); /* as in scripts: no values */
    FL_TRY(part_meta(&host, meta));
    fl_status status = fl_tensor_empty(&part, host);
    fl_meta_unref(host);
    FL_TRY(status);
    size_t bytes = (size_t)meta->local_numel * fl_dtype_size(meta->dtype);
    if (bytes) memcpy(fl_tensor_data(part), data, bytes);
    return place_part(out, part, meta);
}

flow_status flow_copy_in(flow_tensor **out, const flow_spec *spec, const void *data)
{
    const fl_meta *meta;
    fl_tensor *made;
    FL_API_ENTER("flow_copy_in");
    FL_API_TRY(fl_api_need(out, "flow_copy_in", "out"));
    FL_API_TRY(fl_api_meta(&meta, "flow_copy_in", spec));
    fl_status status = copy_in(&made, meta, data);
    fl_meta_unref(meta);
    if (status == FL_OK) *out = fl_api_out(made);
    else if (status == FL_ERR_MEMORY) fl_fail_prefix(status, "flow_copy_in: ");
    return fl_api_leave(status);
}

/* Memory that the CPU's kernels can use: aligned as its dtype, strides that are not negative, nor too large. */
static fl_status check_borrowed(const fl_meta *meta, const void *data, const int64_t *strides)
{
    size_t size = fl_dtype_size(meta->dtype);
    if (meta->placement->type != FL_CPU)
        return fl_fail(FL_ERR_VALUE,
                       "flow_borrow: only memory of the host can be borrowed; flow_copy_in copies it to a "
                       "device, flow_from_dlpack takes memory of a device");
    if (meta->local_numel) FL_TRY(fl_api_need(data, "flow_borrow", "data"));
    if ((uintptr_t)data % size)
        return fl_fail(FL_ERR_VALUE, "flow_borrow: data at %p is not aligned for %s, %zu bytes", data,
                       fl_dtype_name(meta->dtype), size);
    for (int i = 0; strides && i < meta->shape.ndim; i++)
        if (strides[i] < 0)
            return fl_fail(FL_ERR_VALUE, "flow_borrow: stride %lld of axis %d is negative", (long long)strides[i], i);
    return strides ? fl_tensor_check_strides("flow_borrow", meta, strides) : FL_OK;
}

/* The release is called for the tensor alone: not where the call fails. */
static fl_status borrow(fl_tensor **out, const fl_meta *meta, void *data, const int64_t *strides,
                        void (*release)(void *context), void *context)
{
    const fl_meta *host;
    fl_tensor *part;
    FL_TRY(check_borrowed(meta, data, strides));
    if (meta->is_local) return fl_tensor_foreign(out, meta, strides, data, release, context);
    FL_TRY(part_meta(&host, meta));
    fl_status status = fl_tensor_foreign(&part, host, strides, data, NULL, NULL);
    fl_meta_unref(host);
    FL_TRY(status);
    fl_storage *storage = fl_storage_ref(part->storage);
    status = place_part(out, part, meta);
    if (status == FL_OK) fl_storage_set_release(storage, release, context);
    fl_storage_unref(storage);
    return status;
}

flow_status flow_borrow(flow_tensor **out, const flow_spec *spec, void *data, const int64_t *strides,
                        void (*release)(void *context), void *context)
{
    const fl_meta *meta;
    fl_tensor *made;
    FL_API_ENTER("flow_borrow");
    FL_API_TRY(fl_api_need(out, "flow_borrow", "out"));
    FL_API_TRY(fl_api_meta(&meta, "flow_borrow", spec));
    fl_status status = borrow(&made, meta, data, strides, release, context);
    fl_meta_unref(meta);
    if (status == FL_OK) *out = fl_api_out(made);
    return fl_api_leave(status);
}

flow_tensor *flow_ref(flow_tensor *tensor)
{
    if (tensor) fl_tensor_ref(fl_api_in(tensor));
    return tensor;
}

void flow_unref(flow_tensor *tensor) { fl_tensor_release(fl_api_in(tensor)); }

int64_t flow_tensor_count(void) { return fl_tensor_count(); }

/* ---- properties of a tensor ---- */

static const fl_meta *meta_of(const flow_tensor *tensor) { return fl_api_in(tensor)->meta; }

const char *flow_dtype(const flow_tensor *tensor) { return tensor ? fl_dtype_name(meta_of(tensor)->dtype) : NULL; }
int flow_ndim(const flow_tensor *tensor) { return tensor ? meta_of(tensor)->shape.ndim : 0; }
const int64_t *flow_shape(const flow_tensor *tensor) { return tensor ? meta_of(tensor)->shape.dims : NULL; }
int64_t flow_numel(const flow_tensor *tensor) { return tensor ? meta_of(tensor)->numel : 0; }
bool flow_is_global(const flow_tensor *tensor) { return tensor && !meta_of(tensor)->is_local; }
const int64_t *flow_local_shape(const flow_tensor *tensor) { return tensor ? meta_of(tensor)->window.size : NULL; }
const int64_t *flow_local_start(const flow_tensor *tensor) { return tensor ? meta_of(tensor)->window.start : NULL; }
const int64_t *flow_strides(const flow_tensor *tensor) { return tensor ? fl_api_in(tensor)->strides : NULL; }

const char *flow_describe(char *buffer, size_t size, const flow_tensor *tensor)
{
    char text[FL_META_TEXT];
    if (size) snprintf(buffer, size, "%s", tensor ? fl_meta_placed_text(text, fl_api_in(tensor)->meta) : "nothing");
    return buffer;
}

/* ---- values ---- */

/* The whole value as a local tensor on the CPU, row-major and there; every rank of a global one calls it. */
static fl_status whole_value(fl_tensor **out, fl_tensor *tensor)
{
    fl_tensor *whole = NULL, *host = NULL;
    FL_TRY(fl_meta_check_values(tensor->meta));
    if (!tensor->meta->is_local) {
        const fl_placement *all = fl_placement_everywhere(tensor->meta->placement);
        if (!all) return fl_fail(FL_ERR_MEMORY, "out of memory");
        FL_TRY(fl_to_global(&whole, tensor, all, fl_nd_sbp_fill(FL_B, all->ndim), NULL));
    }
    fl_status status = fl_host_part(&host, whole ? whole : tensor);
    if (status == FL_OK) status = FL_CALL(out, contiguous, fl_of(host));
    fl_tensor_unref(host);
    fl_tensor_unref(whole);
    FL_TRY(status);
    status = fl_tensor_wait(*out);
    if (status == FL_OK && (*out)->meta->numel && !fl_tensor_data(*out)) status = fl_tensor_wait(*out);
    if (status != FL_OK) fl_tensor_unref(*out);
    return status;
}

static fl_status read_whole(fl_tensor **out, fl_tensor *tensor)
{
    bool recording = fl_record_pause();
    fl_status status = whole_value(out, tensor);
    fl_record_resume(recording);
    return status;
}

flow_status flow_read(const flow_tensor *tensor, void *buffer, size_t bytes)
{
    fl_tensor *whole;
    FL_API_ENTER("flow_read");
    FL_API_TRY(fl_api_need(tensor, "flow_read", "tensor"));
    const fl_meta *meta = fl_api_in(tensor)->meta;
    size_t has = (size_t)meta->numel * fl_dtype_size(meta->dtype);
    char text[FL_META_TEXT];
    if (bytes != has)
        return (flow_status)fl_fail(FL_ERR_VALUE, "flow_read: %s has %zu bytes, the buffer %zu",
                                    fl_meta_placed_text(text, meta), has, bytes);
    if (bytes) FL_API_TRY(fl_api_need(buffer, "flow_read", "buffer"));
    FL_API_TRY(read_whole(&whole, fl_api_in(tensor)));
    if (bytes) memcpy(buffer, fl_tensor_data(whole), bytes);
    fl_tensor_unref(whole);
    return FLOW_OK;
}

static double number_at(fl_dtype dtype, const void *at)
{
    switch (dtype) {
    case FL_FLOAT64: return *(const double *)at;
    case FL_FLOAT32: return *(const float *)at;
    case FL_FLOAT16: return fl_float16_to_float(*(const fl_float16 *)at);
    case FL_BFLOAT16: return fl_bfloat16_to_float(*(const fl_bfloat16 *)at);
    case FL_INT64: return (double)*(const int64_t *)at;
    case FL_INT32: return *(const int32_t *)at;
    case FL_INT8: return *(const int8_t *)at;
    default: return *(const uint8_t *)at;
    }
}

flow_status flow_item(double *value, const flow_tensor *tensor)
{
    fl_tensor *whole;
    char shape[FL_SHAPE_TEXT];
    FL_API_ENTER("flow_item");
    FL_API_TRY(fl_api_need(value, "flow_item", "value"));
    FL_API_TRY(fl_api_need(tensor, "flow_item", "tensor"));
    const fl_meta *meta = fl_api_in(tensor)->meta;
    if (meta->numel != 1)
        return (flow_status)fl_fail(FL_ERR_SHAPE, "flow_item: takes a tensor of one element, it has shape %s",
                                    fl_shape_text(shape, &meta->shape));
    FL_API_TRY(read_whole(&whole, fl_api_in(tensor)));
    *value = number_at(meta->dtype, fl_tensor_data(whole));
    fl_tensor_unref(whole);
    return FLOW_OK;
}

static fl_status do_nothing(void *payload)
{
    (void)payload;
    return FL_OK;
}

/* Waits for the uses of the tensor's memory, and computes deferred values that read its old value. Counts as a
** write. */
static fl_status make_writable(fl_tensor *tensor)
{
    fl_var *writes[] = {&tensor->storage->var};
    fl_task task = {.name = "flow_map",
                    .run = do_nothing,
                    .writes = writes,
                    .write_count = 1,
                    .lane = FL_LANE_CPU,
                    .flags = FL_TASK_CHEAP};
    FL_TRY(fl_engine_push(&task));
    fl_engine_wait_idle(&tensor->storage->var);
    return FL_OK;
}

static fl_status check_access(const char *who, int access)
{
    if (access == FLOW_READ || access == FLOW_WRITE || access == (FLOW_READ | FLOW_WRITE)) return FL_OK;
    return fl_fail(FL_ERR_VALUE, "%s: access must be FLOW_READ, FLOW_WRITE or both, got %d", who, access);
}

/* Maps that are open; the tensors are owned. */
static struct map {
    fl_tensor *tensor;
    int access;
} * maps;
static int map_count, map_capacity;

/* Has ops see what the open maps of a storage allow the host to do. */
static void show_access(fl_storage *storage)
{
    int access = 0;
    for (int i = 0; i < map_count; i++)
        if (maps[i].tensor->storage == storage) access |= maps[i].access;
    if (storage) fl_mapped_set(storage, access);
}

static fl_status note_map(fl_tensor *tensor, int access)
{
    if (map_count == map_capacity) {
        int capacity = map_capacity ? 2 * map_capacity : 8;
        struct map *more = realloc(maps, sizeof *more * (size_t)capacity);
        if (!more) return fl_fail(FL_ERR_MEMORY, "flow_map: out of memory");
        maps = more;
        map_capacity = capacity;
    }
    maps[map_count++] = (struct map){fl_tensor_ref(tensor), access};
    show_access(tensor->storage);
    return FL_OK;
}

/* Closes the latest map of the tensor with this access. */
static fl_status end_map(fl_tensor *tensor, int access)
{
    static const char *const names[] = {"nothing", "FLOW_READ", "FLOW_WRITE", "FLOW_READ | FLOW_WRITE"};
    int mapped = 0;
    for (int i = map_count - 1; i >= 0; i--) {
        if (maps[i].tensor != tensor) continue;
        mapped = maps[i].access;
        if (mapped != access) continue;
        maps[i] = maps[--map_count];
        show_access(tensor->storage);
        fl_tensor_unref(tensor);
        return FL_OK;
    }
    if (!mapped) return fl_fail(FL_ERR_STATE, "flow_unmap: the tensor is not mapped");
    return fl_fail(FL_ERR_STATE, "flow_unmap: the tensor is mapped with %s, not with %s", names[mapped], names[access]);
}

void fl_api_drop_maps(void)
{
    while (map_count > 0) {
        fl_tensor *tensor = maps[--map_count].tensor;
        show_access(tensor->storage);
        fl_tensor_unref(tensor);
    }
    free(maps);
    maps = NULL;
    map_capacity = 0;
}

flow_status flow_map(void **data, flow_tensor *tensor, int access)
{
    FL_API_ENTER("flow_map");
    FL_API_TRY(fl_api_need(data, "flow_map", "data"));
    FL_API_TRY(fl_api_need(tensor, "flow_map", "tensor"));
    FL_API_TRY(check_access("flow_map", access));
    fl_tensor *t = fl_api_in(tensor);
    char text[FL_META_TEXT];
    if (t->meta->placement->type != FL_CPU)
        return (flow_status)fl_fail(FL_ERR_STATE, "flow_map: %s is not on the CPU; flow_call \"to\" copies it there",
                                    fl_meta_placed_text(text, t->meta));
    fl_tensor_data(t); /* a deferred value is computed, and gets its place */
    if (access & FLOW_READ) FL_API_TRY(fl_tensor_wait(t));
    if (access & FLOW_WRITE) FL_API_TRY(make_writable(t));
    FL_API_TRY(note_map(t, access));
    *data = t->meta->local_numel ? fl_tensor_data(t) : NULL;
    return FLOW_OK;
}

flow_status flow_unmap(flow_tensor *tensor, int access)
{
    FL_API_ENTER("flow_unmap");
    FL_API_TRY(fl_api_need(tensor, "flow_unmap", "tensor"));
    FL_API_TRY(check_access("flow_unmap", access));
    return (flow_status)end_map(fl_api_in(tensor), access);
}

flow_status flow_wait(const flow_tensor *tensor)
{
    FL_API_ENTER("flow_wait");
    FL_API_TRY(fl_api_need(tensor, "flow_wait", "tensor"));
    return fl_api_leave(fl_tensor_wait(fl_api_in(tensor)));
}

flow_status flow_sync(void)
{
    FL_API_ENTER("flow_sync");
    return fl_api_leave(fl_engine_wait_all());
}
