/*
** pack.c -- parts as a move reads them: whole, without gaps, in memory that is not lost meanwhile. Others are copied
** first.
*/
#include "pack.h"
#include "cpu/cpu.h"
#include "engine/engine.h"
#include "file/mapping.h"
#include "memory/device.h"
#include "region.h"

struct packing {
    const fl_device *device; /* NULL: the CPU */
    int index;               /* of the device */
    fl_dtype dtype;
    fl_region part;
    void *out;
    const void *in;
};

static fl_status run_packing(void *payload)
{
    const struct packing *p = payload;
    fl_view out = fl_region_view(p->out, &p->part, 0, p->part.to_stride, p->dtype),
            in = fl_region_view(p->in, &p->part, 0, p->part.from_stride, p->dtype);
    if (!p->device) return fl_cpu_copy(&out, &in);
    FL_TRY(p->device->enter(p->index, FL_QUEUE_COMPUTE));
    return p->device->copy_view(&out, &in);
}

/* A missing part is packed all the same: its collective has to be entered, so that all members learn of it. (A device's
** task that does not run is no error here.) */
static fl_status push_packing(fl_tensor *out, fl_tensor *in)
{
    struct packing p = {.index = in->storage->device_index,
                        .dtype = in->meta->dtype,
                        .part.ndim = in->meta->shape.ndim,
                        .out = fl_tensor_data(out),
                        .in = fl_tensor_data(in)};
    FL_TRY(fl_device_get(&p.device, in->storage->device));
    memcpy(p.part.size, in->meta->window.size, sizeof p.part.size);
    memcpy(p.part.from_stride, in->strides, sizeof p.part.from_stride);
    fl_region_packed(p.part.to_stride, &p.part);
    fl_var *reads[] = {&in->storage->var}, *writes[] = {&out->storage->var};
    fl_task task = {.name = "contiguous",
                    .run = run_packing,
                    .payload = &p,
                    .payload_size = sizeof p,
                    .reads = reads,
                    .writes = writes,
                    .read_count = 1,
                    .write_count = 1,
                    .lane = p.device ? p.device->lane(p.index, FL_QUEUE_COMPUTE) : FL_LANE_CPU,
                    .flags = FL_TASK_CHEAP | (p.device ? 0 : FL_TASK_NO_SKIP)};
    return fl_engine_push(&task);
}

fl_status fl_pack_part(fl_tensor **out, fl_tensor *x)
{
    fl_tensor *packed;
    if (x->contiguous && !fl_mapping_is_watched(x->storage->data)) {
        *out = fl_tensor_ref(x);
        return FL_OK;
    }
    FL_TRY(fl_tensor_empty(&packed, x->meta));
    fl_status status = push_packing(packed, x);
    if (status == FL_OK) *out = packed;
    else fl_tensor_unref(packed);
    return status;
}
