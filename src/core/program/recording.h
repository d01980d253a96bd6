/*
** recording.h -- a program while it is recorded, for record.c, record_slots.c and record_end.c.
*/
#ifndef FL_RECORDING_H
#define FL_RECORDING_H

#include "autograd/autograd.h"
#include "dispatch/listener.h"
#include "program_internal.h"

/* One entry of the table of storages. */
typedef struct fl_recorded_storage {
    fl_storage *storage; /* owned */
    int slot;
} fl_recorded_storage;

typedef struct fl_recording {
    fl_program *program;        /* NULL: nothing is recorded */
    fl_recorded_storage *known; /* open addressing */
    int known_bits, known_count;
    fl_tensor **gradients; /* owned; of the leaves, as they were; NULL entries */
    fl_status failed;      /* an error that could not be returned, with its message */
    char message[512];
    bool strict;
    int last_draw; /* the step of the draw recorded last; -1: it repeated an earlier one */
    bool closing;  /* gradients are looked at, not used */
} fl_recording;
extern fl_recording fl_recording_now;
extern const fl_listener fl_recording_listener;

/* An error that cannot be returned: the end has it. */
void fl_recording_fail(fl_status status);
fl_status fl_recording_refuse(const char *what);

/* ---- slots and operands (record_slots.c) ---- */

/* The slot of a storage; -1: it is not known. */
int fl_recording_find(const fl_storage *storage);

/* A table of 2^bits places, without the storages that no op will ask for again. */
fl_status fl_recording_rebuild(int bits);

/* A new slot for the memory of the tensor. */
fl_status fl_recording_add(int *out, fl_slot_role role, fl_tensor *tensor, int index);

/* The slot of the tensor. One that is not known yet comes from outside. */
fl_status fl_recording_slot(int *out, fl_tensor *tensor);

fl_status fl_recording_operand(fl_program_operand *out, fl_tensor *tensor);

/* The step reads or writes its operand. */
fl_status fl_recording_use(const fl_program_operand *operand, fl_tensor *tensor, int step);

/* Notes the tensor if it is a leaf from outside; its flag is looked at in the end. */
fl_status fl_recording_flag(fl_tensor *tensor);

bool fl_recording_is_whole(const fl_tensor *tensor);

/* ---- steps (record.c) ---- */

fl_status fl_recording_step(fl_step **out, fl_step_kind kind, const fl_op *op, int nin, int nout);

/* ---- gradients of leaves (record_end.c) ---- */

/* Called before one is looked at. */
void fl_recording_gradient(const fl_tensor *tensor, fl_grad_access access);

#endif
