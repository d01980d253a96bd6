/*
** device.c -- devices other than the CPU: their plug-in is opened at the first question for one.
**
** FLOW_CUDA_EMULATED (1, deferred): the plug-in whose kernels run on the CPU takes the place of the GPU's.
*/
#include "device.h"
#include "op/op.h"
#include "base/plugin.h"
#include "testing.h"

#include <stdlib.h>
#include <string.h>

static const fl_device *cuda;

void fl_device_register(const fl_device *device) { cuda = device; }

static fl_status open_cuda(void **entry, const char *symbol)
{
    const char *emulated = getenv("FLOW_CUDA_EMULATED");
    if (!emulated || !*emulated || !strcmp(emulated, "0"))
        return fl_plugin_open(entry, "cuda", symbol, "nvidia-cuda-toolkit");
    char path[FL_PLUGIN_PATH];
    if (!fl_plugin_find(path, "emulated/cuda"))
        return fl_fail(FL_ERR_MISSING, "FLOW_CUDA_EMULATED=%s: the emulated GPU is not built; run make emulated",
                       emulated);
    return fl_plugin_open(entry, "emulated/cuda", symbol, "nvidia-cuda-toolkit");
}

fl_status fl_device_get(const fl_device **out, fl_device_type type)
{
    void *entry;
    *out = NULL;
    if (type != FL_CUDA) return FL_OK;
    if (!cuda) {
        fl_status status = open_cuda(&entry, FL_DEVICE_ENTRY);
        if (status == FL_OK) status = ((fl_device_start_fn *)entry)(&cuda);
        if (status != FL_OK) return fl_fail_prefix(status, "cuda: ");
    }
    *out = cuda;
    return FL_OK;
}

int fl_device_count(fl_device_type type)
{
    const fl_device *d;
    if (type != FL_CUDA) return 1;
    return fl_device_get(&d, type) == FL_OK ? d->count : 0;
}

fl_status fl_device_kernel_of(fl_kernel_fn *out, fl_device_type type, const fl_op *op)
{
    static fl_device_kernel_fn *find;
    void *entry;
    *out = type == FL_CPU ? op->cpu : NULL;
    if (type != FL_CUDA) return FL_OK;
    if (!find) {
        FL_TRY(open_cuda(&entry, FL_DEVICE_KERNEL));
        find = (fl_device_kernel_fn *)entry;
    }
    *out = find(op);
    return FL_OK;
}

void *fl_device_stream(fl_device_type type)
{
    const fl_device *device;
    return fl_device_get(&device, type) == FL_OK && device && device->stream ? device->stream() : NULL;
}
