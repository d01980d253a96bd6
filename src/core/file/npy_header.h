/*
** npy_header.h -- what the header of a .npy file says.
*/
#ifndef FL_NPY_HEADER_H
#define FL_NPY_HEADER_H

#include "base/dtype.h"
#include "base/shape.h"
#include "stream.h"

typedef struct fl_npy_header_facts {
    char kind;      /* NumPy's letter: b, i, u or f */
    int width;      /* bytes of an element as they lie in the file */
    bool swapped;   /* their order is not this machine's */
    fl_dtype dtype; /* of the tensor */
    bool columns_first;
    fl_shape shape; /* as Python has it */
} fl_npy_header_facts;

/* Reads the head of a stream up to the elements. */
fl_status fl_npy_header_read(fl_npy_header_facts *out, fl_stream *stream);

#endif
