/*
** piece_run.h -- a call that is answered (pieces.c), its values (piece_values.c), and a piece that is recorded
** (piece_record.c).
*/
#ifndef FL_PIECE_RUN_H
#define FL_PIECE_RUN_H

#include "autograd/autograd.h"
#include "piece.h"
#include "program_internal.h"

enum { FL_MAX_PIECES = 32 };

struct fl_pieces {
    fl_piece *root;
    int count;
    fl_dtype default_dtype; /* of floats that its ops made */
};

/* The call that is answered. */
typedef struct fl_piece_run {
    fl_pieces *of; /* NULL: none */
    fl_pieces_host host;
    fl_piece *at;       /* the last piece that was done */
    fl_piece *next;     /* the one that is followed; NULL: no call since */
    int position;       /* number of its calls that were made */
    fl_piece *recorded; /* owned; the one that is recorded instead; NULL: none */
    bool unfit;         /* no program can come of that one */
    bool failed;        /* because of an error, which another call need not meet */
    bool stopped;       /* nothing is answered any more */
    fl_tensor **values; /* owned; of the path, NULL: gone */
    int count, room;
    fl_storage **pending; /* owned; that values were put off in */
    int pending_count, pending_room;
} fl_piece_run;
extern fl_piece_run fl_piece_now;

/* A call of the script; of backward the operands are y and its gradient, or none. */
typedef struct fl_request {
    fl_piece_kind kind;
    const fl_op *op;
    bool in_place, retain;
    const fl_operand *in;
    int nin, nout;
    const fl_attrs *attrs;
} fl_request;

/* ---- values ---- */

/* Before the first is put off: read is called where somebody touches one that is not there. */
void fl_values_start(fl_status (*read)(void));

fl_status fl_values_add(fl_tensor *tensor);
void fl_values_cut(int count);
int fl_value_find(const fl_tensor *tensor); /* -1: none */

/* Those of the piece up to `past` are put off. */
fl_status fl_values_give(fl_piece *piece, int past);

/* `to` gets the storage of `from`; becomes what it is, its place on the tape too. */
void fl_value_move(fl_tensor *to, const fl_tensor *from);
void fl_value_become(fl_tensor *to, fl_tensor *from);

/* All that was put off is there, or lost: an error is in its place. */
void fl_values_end_pending(void);
void fl_values_lose(fl_piece *piece);

/* True if a call made the memory of value `base`; true if it has references besides the path's and `others` more. */
bool fl_value_is_made(fl_piece *piece, int base);
bool fl_value_is_held(fl_piece *piece, int base, int others);

/* Frees values without references, with their memory. */
void fl_values_release(fl_piece *piece);

/* ---- recording ---- */

/* A new piece after the last one is recorded; false: there can be none. */
bool fl_piece_begin(void);

/* Runs the request, noted where a piece is recorded. redone: it was put off, and gave these values; or NULL. */
fl_status fl_piece_record(fl_tensor **out, const fl_request *request, const fl_piece_call *redone,
                          fl_tensor *const *values);

/* The piece that is recorded is dropped; where that was no error's fault, after some times no more are begun at its
** place. */
void fl_piece_drop_recorded(void);

/* Runs the request as it is. */
fl_status fl_request_run(fl_tensor **out, const fl_request *request);

#endif
