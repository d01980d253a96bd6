/*
** pieces.h -- functions that read values: programs of the pieces between the reads.
**
** Lua runs such a function at every call, for its control flow depends on values. But the ops that it calls are not
** run: they are compared with those of an earlier call, and their results are given without values. When a value is
** read, the piece that led there runs as one program. If a call differs, the deferred ops run as in eager code and are
** recorded: pieces are a tree, in which each way through the function is a path. Results have the bits of eager code.
**
** A piece cannot end where a tensor with a graph is still held: backward could not go through what a program computed.
** Such a function runs as it is from there on. For the script's thread.
*/
#ifndef FL_PIECES_H
#define FL_PIECES_H

#include "program.h"

/* The pieces of a function for arguments of certain metas. */
typedef struct fl_pieces fl_pieces;

/* The functions of the host, called for a call. */
typedef struct fl_pieces_host {
    void (*collect)(void *context, bool all); /* garbage, young or all: tensors without references are freed */
    void (*stopped)(void *context);           /* nothing is answered any more */
    void *context;
} fl_pieces_host;

fl_status fl_pieces_new(fl_pieces **out, fl_tensor *const *args, int count);
void fl_pieces_free(fl_pieces *pieces); /* NULL is fine */

/* True if the arguments have the metas of those recorded. */
bool fl_pieces_fits(const fl_pieces *pieces, fl_tensor *const *args, int count);

/* No piece of it can be recorded. */
bool fl_pieces_is_vain(const fl_pieces *pieces);

/* From now on what the script calls is answered. No op is, if the arguments are not contiguous or share memory, or a
** call of another function is answered already: *answers. */
fl_status fl_pieces_begin(bool *answers, fl_pieces *pieces, fl_tensor *const *args, const fl_pieces_host *host);

/* After begin answered and the function returned, or failed: runs the deferred ops. */
fl_status fl_pieces_end(bool failed);

bool fl_pieces_is_running(void);

/* Pieces, and their facts summed; of blocks of memory the largest. */
int fl_pieces_facts_get(fl_program_facts *out, const fl_pieces *pieces);

#endif
