/*
** device.c -- devices other than the CPU: their plug-in is opened at the first question for one.
*/
#include "device.h"
#include "plugin.h"

static const fl_device *cuda;

void fl_device_register(const fl_device *device) { cuda = device; }

fl_status fl_device_get(const fl_device **out, fl_device_type type)
{
    void *entry;
    *out = NULL;
    if (type == FL_CPU) return FL_OK;
    if (!cuda) {
        fl_status status = fl_plugin_open(&entry, "cuda", FL_DEVICE_ENTRY, "nvidia-cuda-toolkit");
        if (status == FL_OK) status = ((fl_device_start_fn *)entry)(&cuda);
        if (status != FL_OK) return fl_fail_prefix(status, "cuda: ");
    }
    *out = cuda;
    return FL_OK;
}
