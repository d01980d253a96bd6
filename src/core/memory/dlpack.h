/*
** dlpack.h -- tensors whose memory another library has, or gets: DLPack, version 1, and the layout before it.
**
** The structures are those of the specification (https://dmlc.github.io/dlpack/latest/c_api.html), in names of ours.
*/
#ifndef FL_DLPACK_H
#define FL_DLPACK_H

#include "tensor.h"

/* A tensor in memory that is not ours. `managed` (a DLManagedTensorVersioned) belongs to it on success: its deleter is
** called once, when nothing uses the memory any more. Memory that is read-only, that is not aligned as its dtype or has
** negative strides is copied, and the deleter called at once. */
fl_status fl_dlpack_take(fl_tensor **out, void *managed);

/* The tensor's part on this rank for another library; waits for its value. It lives until the deleter is called, on any
** thread. Errors have no name in front. */
fl_status fl_dlpack_give(void **out, fl_tensor *tensor);

/* Calls the deleter of a tensor that was not taken. NULL is fine. */
void fl_dlpack_drop(void *managed);

/* The same in the layout before version 1 (a DLManagedTensor), which cannot say that memory is read-only: it is taken
** as memory that may be written. */
fl_status fl_dlpack_take_unversioned(fl_tensor **out, void *managed);
fl_status fl_dlpack_give_unversioned(void **out, fl_tensor *tensor);

#endif
