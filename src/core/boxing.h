/*
** boxing.h -- moving a tensor from one (placement, nd-SBP) to another: the plan and its execution.
**
** The plan is a list of steps; its cost (the most bytes any one rank moves) is what inference compares.
** Steps that need no peer (B->S slice, B->P, S->P, relabelling, groups of one rank) are executed here;
** the others are carried out by the transport (comm.h) and are errors in the dry world.
*/
#ifndef FL_BOXING_H
#define FL_BOXING_H

#include "meta.h"
#include "tensor.h"

typedef enum fl_box_kind {
    FL_BOX_SLICE,           /* B -> S, local */
    FL_BOX_ZERO_FILL,       /* B -> P(sum), S -> P: local */
    FL_BOX_RELABEL,         /* nothing moves: groups of one rank, B -> P(max|min) */
    FL_BOX_ALL_REDUCE,      /* P -> B */
    FL_BOX_REDUCE_SCATTER,  /* P -> S */
    FL_BOX_ALL_GATHER,      /* S -> B */
    FL_BOX_ALL_TO_ALL,      /* S(i) -> S(j) */
    FL_BOX_EXCHANGE         /* other placements, nested splits: intersections of windows, point to point */
} fl_box_kind;

typedef struct fl_box_step {
    fl_box_kind kind;
    int axis;               /* hierarchy axis; -1 for FL_BOX_EXCHANGE */
    fl_sbp from, to;        /* of that axis */
    const fl_placement *placement;
    fl_nd_sbp after;        /* nd-SBP of the whole tensor after the step */
    int64_t bytes;          /* the most any one rank receives and sends in this step */
} fl_box_step;

enum { FL_MAX_BOX_STEPS = 4 * FL_MAX_HIERARCHY };
typedef struct fl_box_plan {
    int count;
    int64_t bytes;          /* sum over the steps: the cost */
    bool local;             /* no step needs a peer */
    fl_box_step steps[FL_MAX_BOX_STEPS];
} fl_box_plan;

/* Every pair works. Deterministic: the same on every rank. */
fl_status fl_boxing_plan(fl_box_plan *out, fl_dtype dtype, const fl_shape *shape, const fl_placement *from, fl_nd_sbp from_sbp, const fl_placement *to, fl_nd_sbp to_sbp);

/* x as `to` (same dtype and shape); without recording. Returns x itself (one more reference) when the metas
** are equal. Error FL_ERR_COMM in the dry world when a peer is needed: names the step. */
fl_status fl_boxing_apply(fl_tensor **out, fl_tensor *x, const fl_meta *to);

/* "all-reduce" etc. */
const char *fl_box_kind_name(fl_box_kind kind);

#endif
