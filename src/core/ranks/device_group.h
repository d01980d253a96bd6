/*
** device_group.h -- do the devices of a group's members move data among themselves, or do the CPUs for them?
**
** Asked once, at the first collective of parts that lie on a device, by all members at the same point, and answered
** alike on all of them: the device's own way (fl_device_comm) where every member has its library and a device of its
** own, else by way of the CPUs. FLOW_NCCL=0 on any of them: by way of the CPUs.
*/
#ifndef FL_DEVICE_GROUP_H
#define FL_DEVICE_GROUP_H

#include "device_comm.h"

/* Has it been asked? */
bool fl_device_group_known(const fl_group *g);

/* *handle: this member's in `group`, NULL when the CPUs move the data. Every member calls it; all wait for each
** other when it is asked for the first time, and once more after fl_comm_reset. Errors: of those meetings. */
fl_status fl_device_group_get(void **handle, fl_group *group, const fl_device *device);

#endif
