/*
** function.h -- a node of the tape whose gradient is a function of the host, and not of an op.
*/
#ifndef FL_AUTOGRAD_FUNCTION_H
#define FL_AUTOGRAD_FUNCTION_H

#include "autograd.h"

/* One call of backward. Everything is borrowed but gin, whose tensors the caller owns; those left NULL are zero. */
typedef struct fl_function_grad {
    fl_tensor **gout; /* nout; no entry is NULL */
    int nout;
    fl_tensor **saved; /* saved_count */
    int saved_count;
    fl_tensor **gin;               /* nin */
    const bool *need;              /* nin */
    const fl_meta *const *in_meta; /* nin */
    int nin;
} fl_function_grad;

typedef struct fl_function {
    char name[32]; /* for messages */
    fl_status (*backward)(fl_function_grad *g, void *context);
    void (*release)(void *context);
    void *context;
} fl_function;

/* Connects `out`, new tensors that nothing else refers to, with the inputs they were computed from while nothing was
** recorded. saved: tensors that backward gets again, inputs, results or others; one that is changed in place until
** then is an error. The context is released once backward cannot come any more, or when this fails. */
fl_status fl_autograd_function(fl_tensor *const *out, int nout, fl_tensor *const *in, int nin, fl_tensor *const *saved,
                               int saved_count, const fl_function *function);

#endif
