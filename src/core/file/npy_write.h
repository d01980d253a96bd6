/*
** npy_write.h -- writing NumPy's files: one array (.npy), or several by name in a zip archive (.npz).
*/
#ifndef FL_NPY_WRITE_H
#define FL_NPY_WRITE_H

#include "memory/tensor.h"

#include <stdbool.h>

/* Tensors are local, contiguous, on the CPU, and their values there. The file takes its place when it is complete. */
fl_status fl_npy_write(const char *path, const fl_tensor *tensor);
/* A member "name.npy" for each; packed: deflated. */
fl_status fl_npz_write(const char *path, const char *const *names, fl_tensor *const *tensors, int count, bool packed);

#endif
