/*
** own_ops.h -- for ops of one's own in C: the interface for shared objects that flow.load_ops opens.
**
** It defines descriptors with FL_OP as src/core/ops does, and once FL_OPS_LIBRARY. An op it does not define itself is
** found by fl_op_find("mul"). A kernel for GPUs is a function in op->on_device that issues launches to
** fl_device_stream(FL_CUDA) and does not wait. The object is built against the headers of the program that opens it,
** which compares sizes; it is never closed.
*/
#ifndef FL_OWN_OPS_H
#define FL_OWN_OPS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "base/plugin.h"
#include "memory/device.h"
#include "op/op.h"

#ifndef __cplusplus /* CUDA sources need descriptors' hooks alone */
#include "cpu/stage.h"
#include "engine/team.h"
#include "ops/ops.h"
#endif

#include "ops/library.h"

#ifdef __cplusplus
}
#endif

/* The descriptors of this object, in the order of its link. */
#define FL_OPS_LIBRARY                                                                                        \
    extern const fl_op *const fl_ops_first[] __asm__("__start_fl_ops") __attribute__((visibility("hidden"))); \
    extern const fl_op *const fl_ops_last[] __asm__("__stop_fl_ops") __attribute__((visibility("hidden")));   \
    FL_PLUGIN                                                                                                 \
    FL_EXPORT extern const fl_ops_library fl_ops_library_entry;                                               \
    const fl_ops_library fl_ops_library_entry = {FL_OPS_MAGIC, FL_OPS_ABI_NOW, fl_ops_first, fl_ops_last}

#endif
