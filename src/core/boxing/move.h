/*
** move.h -- one step of a boxing plan as this rank carries it out: which regions of whose parts make up its own.
**
** Compiled once per pair of metas and kept (carry.c), so a task only points to it. In shared memory every rank pulls
** its regions out of the others' parts, and nothing is packed; across hosts and between devices what the others pull
** from here is packed, sent and unpacked.
*/
#ifndef FL_MOVE_H
#define FL_MOVE_H

#include "boxing.h"
#include "ranks/comm.h"
#include "ranks/device_comm.h"
#include "region.h"

typedef struct fl_move {
    fl_var busy; /* read by the tasks that carry it out */
    fl_box_kind kind;
    fl_dtype dtype;
    fl_reduce reduce;            /* of regions that add */
    fl_mark *mark;               /* of the group, in the history of its ranks or of a placement that has them all */
    fl_group *group;             /* NULL: the only peer is this rank */
    int64_t in_numel, out_numel; /* of this rank's parts */
    fl_sbp filled; /* the identity of this partial fills elements that no pull writes; 0: pulls write all */
    fl_region_list pulls, pushes; /* an all-reduce has none */
    fl_collective collective;     /* the collective as messages name it, and its fingerprint */
    uint64_t tag, fingerprint;
} fl_move;

/* The move of plan->steps[i] of x (from: meta of the whole plan's source). *out is NULL when this rank has no part in
** it. */
fl_status fl_move_compile(fl_move **out, const fl_box_plan *plan, int i, const fl_meta *from);

/* The move between parts that lie at windows[i] (position i of whole's placement; they need not follow whole's SBP) and
** whole's balanced split: into the split, or `back`. This rank is in the placement. */
fl_status fl_move_compile_parts(fl_move **out, const fl_meta *whole, const fl_window *windows, bool back);

/* Waits until no task carries it out any more. NULL is fine. */
void fl_move_free(fl_move *move);

/* The state of this rank when it issues a move, to be compared with the others'. */
typedef struct fl_progress {
    uint64_t drawn; /* fl_random_drawn */
    fl_trail trail;
} fl_progress;

/* Of m, which has a group; its members meet now. */
fl_progress fl_move_progress(const fl_move *move);

/* This rank's entry for the meeting of a move; `where`: FL_WHERE_TEXT bytes, in: of its part. */
void fl_move_entry(fl_entry *entry, const fl_move *move, const char *where, const fl_progress *progress,
                   const fl_var *in);

/* Puts the move into the engine: in (contiguous, this rank's part before) is read, out (uninitialised, this rank's part
** after) written; both lie on the CPU, or both on a device that moves them itself. Errors: of a move that ran at
** once. */
fl_status fl_move_push(fl_move *move, fl_tensor *out, fl_tensor *in);

/* *direct: the devices can carry out m; else its parts go through host memory. All members of m's group get the same
** answer; the first call is a meeting. */
fl_status fl_move_is_direct(bool *direct, const fl_move *move, const fl_device *device);

/* fl_move_push of parts that lie on a device (move_device.c): the meeting takes place at once, the data move in the
** order of the device's queue. */
fl_status fl_move_push_device(fl_move *move, fl_tensor *out, fl_tensor *in);

/* Collectives of parts on a device so far: between the devices, and through host memory. */
typedef struct fl_move_counts {
    int64_t direct, staged;
} fl_move_counts;
FL_OWN extern fl_move_counts fl_move_counted;

#endif
