/*
** mapped.h -- tensors whose memory the host program has mapped: which ops must wait until it has unmapped them.
*/
#ifndef FL_MAPPED_H
#define FL_MAPPED_H

#include "memory/tensor.h"
#include "op/op.h"

enum { FL_MAPPED_READ = 1, FL_MAPPED_WRITE = 2 };

/* The host's access to a storage from now on: bits of the above, 0: none. While there are mapped ones, ops are looked
** at before they run (fl_dispatch_watched). */
void fl_mapped_set(fl_storage *storage, int access);

/* An error if the tensor given for the op's result is mapped. */
fl_status fl_mapped_check_out(const fl_op *op, const fl_tensor *out);

/* An error if a task of the host reads or writes a tensor, one of its `list`, that is mapped so that it may not. */
fl_status fl_mapped_check_task(const char *who, const char *list, const fl_tensor *tensor, bool writes);

/* An error if an operand is mapped for writing, or if the op writes one that is mapped. in_place: it writes operand
** 0. */
fl_status fl_mapped_check(const fl_op *op, const fl_operand *in, int nin, bool in_place);

#endif
