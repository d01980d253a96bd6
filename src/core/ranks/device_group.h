/*
** device_group.h -- how the members of a group exchange parts that lie on devices.
**
** Decided once, at the first such collective, by all members at the same point and alike: by the device's own
** communication (fl_device_comm) if every member has its library and a device of its own, else through host memory.
** FLOW_NCCL=0 on any member: through host memory.
*/
#ifndef FL_DEVICE_GROUP_H
#define FL_DEVICE_GROUP_H

#include "device_comm.h"

/* True once it is decided. */
bool fl_device_group_known(const fl_group *group);

/* *handle: this member's in `group`, NULL when the CPUs move the data. Every member calls it; all wait for each
** other at the first call, and once more after fl_comm_reset. Errors: of those meetings. */
fl_status fl_device_group_get(void **handle, fl_group *group, const fl_device *device);

#endif
