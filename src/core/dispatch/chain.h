/*
** chain.h -- elementwise results that are computed when their memory is needed, many in one pass.
**
** A result of enough elements is not computed at once: its op becomes a step of a chain. Reading, boxing, writing over
** an operand or waiting computes it, together with its operands, tile by tile (cpu/tiles.h). A result that is never
** read is never computed and has no memory. On a device one kernel computes them (fl_device.tiles). Values, errors and
** the order of random numbers are those of ops that run one by one.
**
** On the host an op in place may be a step, too: the deferred value is then that of the tensor's storage, and the
** pass that computes it stores it in the memory that the storage had.
*/
#ifndef FL_CHAIN_H
#define FL_CHAIN_H

#include "infer/infer.h"

/* One call of an op whose plan defers, its operands boxed. tensors: NULL for numbers, which are in `in`. */
typedef struct fl_chain_call {
    const fl_plan *plan;
    const fl_attrs *attrs;
    const fl_operand *in;
    fl_tensor *const *tensors;
    int nin;
} fl_chain_call;

/* Takes the hooks of deferred values, before anybody puts his in front of them. */
void fl_chain_start(void);

/* Makes the result a deferred tensor; NULL: the op must run now. */
fl_tensor *fl_chain_add(const fl_chain_call *call);

/* The op writes operand 0, which keeps its memory; false: it must run now. */
bool fl_chain_write(const fl_chain_call *call);

/* The result becomes the value of the target, as if it had been copied; false: nothing is done. Nobody uses the result
** after that. */
bool fl_chain_give(fl_tensor *target, fl_tensor *result);

/* True if the tensor, as a whole, is a result that is not computed yet. */
bool fl_chain_has(const fl_tensor *tensor);

/* Runs a kernel of an op with FL_OP_FOLDS on such a tensor; the view of operand 0 has no data. */
fl_status fl_chain_fold(fl_tensor *tensor, fl_kernel *kernel, fl_kernel_fn run);

/* The value is wanted once it is computed for another: it is stored then. Only a hint. */
void fl_chain_keep(fl_tensor *tensor);

/* Set by the host program: a collection of garbage, so that results without references are not computed. bytes: 0, a
** quick one; else those of the results that a quick one left: a thorough one is made if that costs little beside
** computing them. */
FL_OWN extern void (*fl_chain_collect)(int64_t bytes);

#endif
