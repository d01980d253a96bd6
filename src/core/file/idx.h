/*
** idx.h -- IDX files (http://yann.lecun.com/exdb/mnist), plain or compressed with gzip.
*/
#ifndef FL_IDX_H
#define FL_IDX_H

#include "memory/tensor.h"

/* Reads the whole file into a local CPU tensor: uint8, int8, int32, float32 or float64 (int16 becomes int32). Errors:
** FL_ERR_IO naming the path and what is wrong. */
fl_status fl_idx_read(fl_tensor **out, const char *path);

#endif
