/*
** boxing.h -- moving a tensor from one (placement, nd-SBP) to another: the plan and its execution.
**
** The plan is a list of steps; its cost (the most bytes any one rank moves) is what inference compares. Steps that need
** no peer are B->S, B->P, S->P, relabelling and groups of one rank; the others meet the peers (comm.h) and are errors
** in the dry world.
*/
#ifndef FL_BOXING_H
#define FL_BOXING_H

#include "value/meta.h"
#include "memory/tensor.h"

typedef enum fl_box_kind {
    FL_BOX_SLICE,          /* B -> S, local */
    FL_BOX_ZERO_FILL,      /* B -> P(sum), S -> P: local */
    FL_BOX_COPY,           /* to another device of the same rank: nothing else changes */
    FL_BOX_RELABEL,        /* nothing moves: groups of one rank, B -> P(max|min) */
    FL_BOX_ALL_REDUCE,     /* P -> B */
    FL_BOX_REDUCE_SCATTER, /* P -> S */
    FL_BOX_ALL_GATHER,     /* S -> B */
    FL_BOX_ALL_TO_ALL,     /* S(i) -> S(j) */
    FL_BOX_EXCHANGE        /* other placements, nested splits: intersections of windows, point to point */
} fl_box_kind;

typedef struct fl_box_step {
    fl_box_kind kind;
    int axis;        /* hierarchy axis; -1 for FL_BOX_EXCHANGE */
    fl_sbp from, to; /* of that axis */
    const fl_placement *placement;
    fl_nd_sbp after; /* nd-SBP of the whole tensor after the step */
    int64_t bytes;   /* the most any one rank receives and sends in this step */
} fl_box_step;

enum { FL_MAX_BOX_STEPS = 4 * FL_MAX_HIERARCHY };
typedef struct fl_box_plan {
    int count;
    int64_t bytes;                       /* sum over the steps: the cost */
    bool local;                          /* no step needs a peer */
    fl_box_step steps[FL_MAX_BOX_STEPS]; /* a plan that was copied ends with the last of `count` */
} fl_box_plan;

/* Every pair works. Deterministic: the same on every rank. */
fl_status fl_boxing_plan(fl_box_plan *out, fl_dtype dtype, const fl_shape *shape, const fl_placement *from,
                         fl_nd_sbp from_sbp, const fl_placement *to, fl_nd_sbp to_sbp);

/* A copy in memory of its own, as small as its steps allow; free() it. NULL: out of memory. */
fl_box_plan *fl_box_plan_copy(const fl_box_plan *plan);

/* The partial whose identity position `index` holds after an exchange that made sbp: the last P axis on which it is not
** the first (later axes are put together first: the lowest of a maximum must not be added up). 0: it holds the value
** itself. */
fl_sbp fl_box_identity(const fl_placement *placement, fl_nd_sbp sbp, int index);

/* True if position `target` of `to` takes elements from position `source` of `from`, which has this SBP. A rank takes
** elements from itself if it has them, else from one of the ranks with a copy, in turn. */
bool fl_box_is_source(const fl_placement *from, fl_nd_sbp sbp, int source, const fl_placement *to, int target);

/* x as `to` (same dtype and shape); without recording. Returns x itself (one more reference) when the metas
** are equal. Error FL_ERR_COMM in the dry world when a peer is needed: names the step. */
fl_status fl_boxing_apply(fl_tensor **out, fl_tensor *x, const fl_meta *to);

/* The same by a plan that is there already, for these metas. */
fl_status fl_boxing_apply_planned(fl_tensor **out, fl_tensor *x, const fl_meta *to, const fl_box_plan *plan);

/* The same with a priority (base/priority.h), which the listener gets: it changes nothing in how that is done. */
fl_status fl_boxing_apply_with(fl_tensor **out, fl_tensor *x, const fl_meta *to, int priority);

/* An all-reduce among several ranks: tensors with equal routes can travel together. */
typedef struct fl_box_route {
    const struct fl_group *group;  /* NULL where nothing is moved: the world is planned */
    const fl_placement *placement; /* NULL: the plan is something else */
    fl_dtype dtype;
    int axis;
    fl_sbp partial;
} fl_box_route;
fl_status fl_boxing_route(fl_box_route *out, const fl_meta *from, const fl_meta *to);

/* Drops the compiled plans, which hold for the old rank only (fl_world_set_dry). */
void fl_boxing_forget(void);

/* Set while flow.explain watches: called with every plan that is about to be carried out. */
FL_OWN extern void (*fl_boxing_observer)(const fl_box_plan *plan, const fl_meta *from, const fl_meta *to);

/* Calls it, where it is set, for a boxing that is carried out as part of another one. */
fl_status fl_boxing_report(const fl_meta *from, const fl_meta *to);

/* Set while a program is recorded: called when `out` was made from x, and shares no memory with it. */
FL_OWN extern fl_status (*fl_boxing_listener)(fl_tensor *out, fl_tensor *x, int priority);

/* In a dry world: steps that need a peer give a part of the right meta, of zeros (positions are then within any range),
** instead of an error. Forget the compiled plans when it changes. */
FL_OWN extern bool fl_boxing_pretend;

/* "all-reduce" etc. */
const char *fl_box_kind_name(fl_box_kind kind);

#endif
