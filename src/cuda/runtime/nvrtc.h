/*
** nvrtc.h -- kernels that are compiled at run time by NVRTC, which is opened when the first one is asked for.
*/
#ifndef FL_CUDA_NVRTC_H
#define FL_CUDA_NVRTC_H

#include "cuda/parts/cuda.h"

#include <stddef.h>

typedef struct fl_nvrtc_kernel fl_nvrtc_kernel;

/* The kernel of this source for the current device, from the cache on disk or, if `compile`, compiled; it lives until
** exit. NULL where that cannot be; the first time the reason is printed. */
fl_nvrtc_kernel *fl_nvrtc_make(const char *source, const char *name, bool compile);

/* Issues it to the queue that was entered; `arguments` is its only argument. */
fl_status fl_nvrtc_launch(fl_nvrtc_kernel *kernel, unsigned blocks, unsigned threads, void *arguments);

/* A compiled kernel of this text, kept on disk (kernel_cache.cu); malloc'd memory, NULL: there is none. */
void *fl_kernel_cache_read(size_t *bytes, const char *text);
void fl_kernel_cache_write(const char *text, const void *image, size_t bytes);

#endif
