/*
** piece.h -- the calls that a piece of a split function consists of, and the values they take and give.
*/
#ifndef FL_PIECE_H
#define FL_PIECE_H

#include "autograd/autograd.h"
#include "dispatch/answer.h"
#include "pieces.h"

/* A tensor that calls take or give, by number: those of a path through the pieces count on from the arguments. */
typedef struct fl_piece_value {
    fl_tensor *outside;  /* owned; reached from outside: the same tensor at every call. NULL: an argument, or made */
    const fl_meta *meta; /* owned */
    int base;            /* the value whose memory it lies in */
    int8_t device_index;
    bool moved_view, requires_grad, has_node;
    int64_t offset, strides[FL_MAX_NDIM];
    fl_view_link *link;   /* owned; the link of a view for backward, or NULL */
    int view_of;          /* then: the value that it is one of; -1: view_base */
    fl_tensor *view_base; /* owned */
} fl_piece_value;

typedef enum fl_piece_kind { FL_PIECE_OP, FL_PIECE_BACKWARD, FL_PIECE_DETACH } fl_piece_kind;

typedef struct fl_piece_leaf {
    int leaf, before, after; /* values; -1: no gradient */
} fl_piece_leaf;

typedef struct fl_piece_call {
    fl_piece_kind kind;
    const fl_op *op;
    bool in_place, grad_enabled, retain;
    bool live;             /* its numbers may be others at every call */
    int nin, nout;         /* backward: y and its gradient */
    fl_operand *in;        /* owned; of tensors the value's number in `integer` */
    int *out;              /* owned; values */
    fl_attrs *attrs;       /* owned; of a live call: of the last one */
    fl_piece_leaf *leaves; /* owned; of backward */
    int leaf_count;
    int *turned; /* owned; values that require grad from then on, by what was written in place */
    int turned_count;
    int past; /* number of values after it */
} fl_piece_call;

typedef struct fl_piece {
    struct fl_piece *parent, *child, *sibling;
    fl_piece_call *calls;
    int call_count, call_room;
    fl_piece_value *values;
    int first, value_count, value_room; /* first: number of values that the path had before */
    fl_program *program;                /* NULL: of the root */
    int *inputs, *results;              /* owned; values */
    int input_count, result_count;
    int failures; /* recordings that began after it, in vain */
    bool is_last; /* the calls after it are not recorded */
} fl_piece;

fl_piece *fl_piece_new(fl_piece *parent);
void fl_piece_free(fl_piece *piece); /* with those after it */

/* The record of value `id` on the path that ends with the piece. */
fl_piece_value *fl_piece_value_of(fl_piece *piece, int id);

fl_status fl_piece_add_value(fl_piece *piece, const fl_piece_value *value);

/* Room for a call at the end: all zero but lists of nin and nout. */
fl_status fl_piece_add_call(fl_piece_call **out, fl_piece *piece, fl_piece_kind kind, int nin, int nout);

/* A copy of the attributes; texts too. */
fl_status fl_piece_keep_attrs(fl_piece_call *call, const fl_attrs *attrs);

/* True if they are the call's attributes. Those of a live call may differ in numbers. */
bool fl_piece_has_attrs(const fl_piece_call *call, const fl_attrs *attrs);

/* The numbers of a live call become those of attrs. */
void fl_piece_take_numbers(fl_piece_call *call, const fl_attrs *attrs);

/* True if the first `count` calls of a and b are the same, with the same values. */
bool fl_piece_begins_alike(fl_piece *a, fl_piece *b, int count);

#endif
