/*
** registry.h -- the ops of this library by name, without those that scripts and libraries have added.
*/
#ifndef FL_REGISTRY_H
#define FL_REGISTRY_H

#include "op.h"

/* NULL when there is none. */
FL_OWN const fl_op *fl_op_find_own(const char *name);

/* The name by which scripts call the op: of one that is another's `wider`, that of the other. */
FL_OWN const char *fl_op_public_name(const fl_op *op);

/* True for an op that fl_op_register was called with. */
FL_OWN bool fl_op_is_registered(const fl_op *op);

#endif
