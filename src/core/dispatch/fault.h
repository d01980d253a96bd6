/*
** fault.h -- FLOW_FAULT: a rank that fails on purpose, to test the reports of the others.
**
** FLOW_FAULT=rank:op_number:kind, op_number counting from 1 the ops that this rank carries out (boxing by to_global is
** one, an op written in other ops is those). Kinds: exit, kill, segv: the process ends before the op; sleep: it stops
** there for an hour; error: the op fails; skip: this rank leaves it out, with what it communicates, and its result has
** no defined value.
*/
#ifndef FL_FAULT_H
#define FL_FAULT_H

#include "memory/tensor.h"

/* True if FLOW_FAULT is set: every op then calls fl_fault_op before it allocates or communicates. */
FL_OWN extern bool fl_fault_armed;

/* Reads FLOW_FAULT; fails if it is wrong. */
fl_status fl_fault_init(void);

/* Counts one op, which would give results of these metas. True: the fault has decided it, with *status; when that
** is FL_OK *out holds the results. `target` is the tensor that the op writes, NULL when it makes new ones. */
bool fl_fault_op(fl_status *status, fl_tensor **out, const char *name, const fl_meta *const *metas, int nout,
                 fl_tensor *target);

/* Counts one op of a replay. True: it does not run, and *status is what becomes of it. */
bool fl_fault_step(fl_status *status, const char *name);

#endif
