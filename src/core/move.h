/*
** move.h -- one step of a boxing plan as this rank carries it out: which regions of whose parts make up its own.
**
** Compiled once per pair of metas and kept (boxing_apply.c), so a task only points to it. Parts are contiguous; offsets and strides count elements.
** A region says where it lies in the part of the one that has it and in the part of the one that wants it. In shared
** memory every rank pulls its regions out of the others' parts, and nothing is packed; across hosts what the others
** pull from here is packed, sent and unpacked.
*/
#ifndef FL_MOVE_H
#define FL_MOVE_H

#include "boxing.h"
#include "comm.h"

typedef struct fl_region {
    int peer;                   /* position in the group: who has it (pulls), who wants it (pushes) */
    bool add;                   /* joins what an earlier pull has put there; false: the first */
    int ndim;                   /* axes left after those that lie together were merged */
    int64_t size[FL_MAX_NDIM];
    int64_t from, from_stride[FL_MAX_NDIM];     /* in the part of the one that has it */
    int64_t to, to_stride[FL_MAX_NDIM];         /* in the part of the one that wants it */
} fl_region;

typedef struct fl_region_list {
    fl_region *at;              /* owned */
    int count, capacity;
} fl_region_list;

typedef struct fl_move {
    fl_var busy;                /* read by the tasks that carry it out */
    fl_box_kind kind;
    fl_dtype dtype;
    fl_reduce reduce;           /* of regions that add */
    fl_group *group;            /* NULL: nobody else is concerned, the only peer is this rank */
    int64_t in_numel, out_numel;    /* of this rank's parts */
    fl_sbp filled;              /* what the pulls leave out gets the identity of this partial first; 0: they leave nothing out */
    fl_region_list pulls, pushes;   /* an all-reduce has none */
    fl_doing doing;             /* what the meeting says, and its fingerprint */
    uint64_t tag, fingerprint;
} fl_move;

/* The move of plan->steps[i] of x (from: meta of the whole plan's source). *out is NULL when this rank has no part in it. */
fl_status fl_move_compile(fl_move **out, const fl_box_plan *plan, int i, const fl_meta *from);

/* The move between parts that lie at windows[i] (position i of whole's placement; nothing else agrees with whole's SBP) and
** whole's balanced split: into the split, or `back`. This rank is in the placement. */
fl_status fl_move_compile_parts(fl_move **out, const fl_meta *whole, const fl_window *windows, bool back);

/* Waits until no task carries it out any more. NULL is fine. */
void fl_move_free(fl_move *m);

/* Puts the move into the engine: in (contiguous, this rank's part before) is read, out (uninitialised, this rank's part
** after) written. Errors: of a move that ran at once. */
fl_status fl_move_push(fl_move *m, fl_tensor *out, fl_tensor *in);

#endif
