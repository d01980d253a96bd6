/*
** library.h -- shared objects with ops: their entry, and how it is checked.
*/
#ifndef FL_OPS_LIBRARY_H
#define FL_OPS_LIBRARY_H

#include "op/op.h"

#define FL_OPS_MAGIC "flowops"

/* The layout of a descriptor, and of the arguments of its hooks: a number for changes of meaning, then sizes. */
typedef struct fl_ops_abi {
    int32_t number, op, infer, sigs, kernel, view, attrs, grad, dtypes;
} fl_ops_abi;
enum { FL_OPS_ABI_NUMBER = 4 };
#define FL_OPS_ABI_NOW                                                                                                 \
    {                                                                                                                  \
        FL_OPS_ABI_NUMBER, (int32_t)sizeof(fl_op), (int32_t)sizeof(fl_infer), (int32_t)sizeof(fl_sigs),                \
            (int32_t)sizeof(fl_kernel), (int32_t)sizeof(fl_view), (int32_t)sizeof(fl_attrs), (int32_t)sizeof(fl_grad), \
            FL_DTYPE_COUNT                                                                                             \
    }

typedef struct fl_ops_library {
    char magic[8];
    fl_ops_abi abi;
    const fl_op *const *first, *const *last;
} fl_ops_library;

/* Opens the object at `path`, for good, and checks it and each descriptor: nothing is registered yet. *known: an
** earlier call has registered its ops. */
fl_status fl_ops_open(const fl_ops_library **out, bool *known, const char *path);

/* Its ops are found by their names from now on. */
fl_status fl_ops_register(const fl_ops_library *library);

#endif
