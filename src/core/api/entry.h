/*
** entry.h -- ops by the names that hosts call: a hash table of entries.
**
** An entry is made at the first call of a name and kept: the op, its parsed signature and its attributes' defaults.
*/
#ifndef FL_ENTRY_H
#define FL_ENTRY_H

#include "flow.h"
#include "op/op.h"

/* A name that stands for several ops: over everything, along an axis, of two tensors. `along` is the entry's op. */
typedef struct fl_call_form {
    const char *name, *all, *along, *pair, *sig;
} fl_call_form;

/* A name that stands for a function over several ops (methods.c). */
typedef struct fl_call_method {
    const char *name, *sig;
    fl_status (*call)(flow_tensor **out, int count, const flow_arg *args, int nargs);
    bool detaches; /* its result is the operand without a history: the one method that is a step of programs */
} fl_call_method;

/* NULL: there is none. */
const fl_call_method *fl_call_method_find(const char *name);

typedef struct fl_call_entry {
    char *name;                   /* owned, as all below; NULL: free */
    const fl_call_method *method; /* instead of an op, or NULL */
    const fl_op *op;
    const fl_signature *signature;
    fl_attrs *defaults;
    bool in_place;   /* "add_" of the op "add" */
    bool plain;      /* all parameters are single tensors */
    bool of_program; /* for a step of a program, which calls more ops */
    const fl_call_form *form;
} fl_call_entry;

/* The entry of a name, or an error that suggests another. of_program: for a step of a program, which calls more ops. */
fl_status fl_call_entry_find(fl_call_entry **out, const char *name, bool of_program);

#endif
