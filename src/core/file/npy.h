/*
** npy.h -- NumPy's files of one array (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html),
** versions 1 to 3: a header that is a Python dictionary, and the elements.
*/
#ifndef FL_NPY_H
#define FL_NPY_H

#include "memory/tensor.h"
#include "stream.h"

/* Reads one array into a local CPU tensor; the stream must end behind it. Either byte order; int16 and uint16 become
** int32, uint32 and uint64 int64. columns_first: the array was written in Fortran's order, and *out is its transpose:
** its axes are to be reversed. Errors: FL_ERR_IO naming the path and what is wrong; of elements that no tensor holds,
** what to do in Python. */
fl_status fl_npy_read(fl_tensor **out, bool *columns_first, fl_stream *stream);

/* The same for a file that is not compressed, whose elements are mapped, not read: they need no memory until they are
** used, and what is written to them does not go to the file. Elements of another byte order, of dtypes that tensors do
** not have, or not aligned are an error. While the tensor lives the file must not become shorter: elements that are
** gone then read as zeros, the tensor is poisoned, and the next wait for a value is an error. */
fl_status fl_npy_map(fl_tensor **out, bool *columns_first, const char *path);

enum { FL_NPY_HEADER = 384 /* bytes at most that fl_npy_header writes */ };

/* The bytes before the elements of a contiguous array, a multiple of 64; 0: NumPy has no such dtype. */
int fl_npy_header(char *out, fl_dtype dtype, const fl_shape *shape);

#endif
