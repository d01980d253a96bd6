/*
** autocast.h -- the dtype that products are computed in, and what is cast to it or to float32 (flow.autocast).
**
** Ops that gain from 16 bits have FL_OP_LOW, those that need a wide range FL_OP_WIDE; others compute in what their
** operands promote to. Casts are ops: they are recorded, captured and traced like any other. Within an op that has one
** of the flags nothing is cast, nor in backward, whose operands are what forward has made of them.
*/
#ifndef FL_AUTOCAST_H
#define FL_AUTOCAST_H

#include "op/op.h"

/* The setting of flow.autocast: none, no casts in this region, or a dtype. */
enum { FL_AUTOCAST_NONE, FL_AUTOCAST_OFF, FL_AUTOCAST_DTYPES };
FL_OWN extern uintptr_t fl_autocast_now;
static inline uintptr_t fl_autocast_to(fl_dtype dtype) { return FL_AUTOCAST_DTYPES + (uintptr_t)dtype; }

/* FL_AUTOCAST_NONE ends the outermost region: the casts of its leaves are forgotten. */
void fl_autocast_set(uintptr_t value);

/* No casts until fl_autocast_resume, which takes the value returned. */
uintptr_t fl_autocast_pause(void);
void fl_autocast_resume(uintptr_t before);

/* Casts of leaves are made once and kept: not beyond a backward, which frees their records, or a program's ends. */
void fl_autocast_forget(void);

static inline bool fl_autocast_takes(const fl_op *op)
{
    return fl_autocast_now >= FL_AUTOCAST_DTYPES && (op->flags & (FL_OP_LOW | FL_OP_WIDE));
}

/* The op on operands that are cast; as fl_dispatch. */
fl_status fl_autocast_call(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

#endif
