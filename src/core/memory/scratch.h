/*
** scratch.h -- buffers of a thread for the duration of a kernel.
*/
#ifndef FL_SCRATCH_H
#define FL_SCRATCH_H

#include <stddef.h>

enum { FL_SCRATCH_SLOTS = 4 };

/* Scratch memory of kernels, per thread, 64-byte aligned, valid until the kernel returns; NULL when
** out of memory. slot 0..3: independent buffers. */
void *fl_scratch(int slot, size_t bytes);

/* Frees this thread's buffers. */
void fl_scratch_release(void);

#endif
