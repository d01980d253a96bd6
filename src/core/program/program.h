/*
** program.h -- programs: the kernels of a function, recorded once and run again without it.
**
** While a program is recorded, ops run as they do without. The recording is the list of kernels after inference, boxing
** and autograd, with the places their operands lie in. Running it again prepares nothing: results in between share one
** block of memory by lifetime, and the same kernels on the same parts give the same bits.
**
** Tensors of three kinds come from outside: arguments, given anew at every run; bound tensors, which the function
** reached by itself and which are held; gradients of leaves, taken from the leaves at every run. Effects of the
** function besides ops (numbers it computed, tensors it stored elsewhere) are not repeated. For the script's thread.
*/
#ifndef FL_PROGRAM_H
#define FL_PROGRAM_H

#include "memory/tensor.h"
#include "op/op.h"

typedef struct fl_program fl_program;

/* ---- recording ---- */

/* A copy with the strides of t, which can be viewed as t can; a row-major one where positions share elements. */
fl_status fl_program_copy_argument(fl_tensor **out, fl_tensor *tensor);

/* From now on all that runs is recorded. args: tensors whose memory nothing else uses. An error if a program is
** recorded already. strict: an op that cannot be recorded is an error there; else fl_program_end has it. */
fl_status fl_program_begin(fl_tensor *const *args, int count, bool strict);

bool fl_program_is_recording(void);

/* The recording has failed: something that cannot be recorded was met. */
bool fl_program_has_failed(void);

/* For what cannot be recorded ("a file is read"): the error with that text; FL_OK where nothing is recorded. */
fl_status fl_program_refuse(const char *what);

/* The step that was recorded last takes its attributes from the host at every run, as number `id`; -1: no step was
** recorded since `since` (fl_program_length), for this rank has no part in it. */
fl_status fl_program_mark_live(int id, int64_t since);
int64_t fl_program_length(void);

/* At this place of every run the host is called with `id`. */
fl_status fl_program_mark_host(int id);

/* Ends the recording; results: of a run, tensors that the caller holds. *held: the error is that something else still
** holds a tensor that was made meanwhile; garbage must have been collected. */
fl_status fl_program_end(fl_program **out, bool *held, fl_tensor *const *results, int count);

/* The same where the results are all that is held: a piece of a function (pieces.h). */
fl_status fl_program_end_piece(fl_program **out, fl_tensor *const *results, int count);

/* True if the memory was made since the recording began. */
bool fl_program_made(const fl_storage *storage);
void fl_program_abort(void);

/* True if fl_program_end would fail for that reason. */
bool fl_program_is_held(fl_tensor *const *results, int count);

/* ---- running ---- */

/* Called at its place in every run: attrs NULL for a mark of fl_program_mark_host, else to be filled. */
typedef fl_status (*fl_program_host)(void *context, int id, const fl_op *op, fl_attrs *attrs);

/* True if leaves have gradients, and require grad, as they did when it was recorded. */
bool fl_program_fits(fl_program *program);

/* True if the two lie in the same bytes, as far as their extents tell. */
bool fl_tensors_overlap(const fl_tensor *a, const fl_tensor *b);

/* The first of the arguments that has bytes in common with another one, or with what the program reaches from outside,
** where one of the two is written: the program must not run on these. -1: there is none. NULL among args: a number. */
int fl_program_shares(const fl_program *program, fl_tensor *const *args);

/* args: as many as were recorded, of the same metas and strides, without such. results: room for them, one reference
** each. */
fl_status fl_program_run(fl_program *program, fl_tensor *const *args, fl_tensor **results, fl_program_host host,
                         void *context);

/* It runs now: it cannot be run once more meanwhile. */
bool fl_program_is_busy(const fl_program *program);

void fl_program_free(fl_program *program); /* NULL is fine */

/* ---- looking at it ---- */

typedef struct fl_program_facts {
    int64_t steps;          /* kernels, and moves between ranks and devices */
    int64_t bytes_alone;    /* results in between, each in memory of its own */
    int64_t bytes_in_place; /* the same, where an operand that is not used any more gives its memory */
    int64_t bytes_shared;   /* the block that they share by lifetime */
    int64_t bytes_least;    /* of the shared ones, the most that live at one time: no block is smaller */
    int64_t bytes_own;      /* memory outside of it: results, gradients, moved tensors */
} fl_program_facts;
void fl_program_facts_get(fl_program_facts *out, const fl_program *program);

/* The launches of replays on devices, in this process. */
typedef struct fl_program_counts {
    int64_t steps;      /* by themselves */
    int64_t graphs;     /* launches of several steps at once */
    int64_t recordings; /* of those */
} fl_program_counts;
void fl_program_counts_get(fl_program_counts *out);

#endif
