/*
** testing.h -- functions of this layer that only tests call.
*/
#ifndef FL_MEMORY_TESTING_H
#define FL_MEMORY_TESTING_H

#include "device.h"
#include "storage.h"

/* This is the FL_CUDA device from now on; NULL: none, the plug-in is opened again. */
void fl_device_register(const fl_device *device);

/* fl_storage_new_for by the compute queue. */
fl_status fl_storage_new(fl_storage **out, size_t bytes, fl_device_type device, int device_index);

/* Frees every cache (after fl_engine_stop); storages still alive stay valid. */
void fl_storage_shutdown(void);

#endif
