/*
** infer.h -- plans: shape, dtype and SBP of a result, inferred once and remembered.
**
** A plan is keyed by (op, in place or not, shape attributes, interned metas of the inputs), so a hit
** compares pointers and touches no tensor. The cache is bounded; the least recently used plan goes.
*/
#ifndef FL_INFER_H
#define FL_INFER_H

#include "boxing/boxing.h"
#include "memory/device.h"
#include "ranks/history.h"
#include "op/op.h"

/* One candidate, kept for explain. */
typedef struct fl_candidate {
    fl_nd_sbp *in_out; /* nin + nout entries */
    int64_t bytes;     /* the most any one rank moves */
    int empty_parts, kept;
    bool chosen;
} fl_candidate;

enum { FL_PLAN_NO_NUMBER = -1, FL_PLAN_NUMBERS = 64 };

typedef struct fl_plan {
    const fl_op *op;
    int64_t place; /* of the op, for the journal */
    int nin, nout;
    fl_kernel_fn kernel;     /* NULL when body, or when a device has none */
    const fl_device *device; /* NULL: the CPU */
    int device_index, lane;  /* of a device: which one, and the lane of its compute queue */
    fl_flat_fn flat;  /* small, all operands of one meta, nothing boxed: serves where they are contiguous; or NULL */
    bool flat_number; /* but one of them is a number */
    fl_body body;
    bool boxes;                     /* some input must be boxed */
    bool defers;                    /* its result may be computed later, with others (dispatch/chain.h) */
    bool folds;                     /* its kernel takes its operand while that is not computed yet */
    bool on_host;                   /* a device's operands, of an op that only the CPU has a kernel for */
    bool runs;                      /* there is something to compute here: this rank holds a part, not on FL_META */
    const fl_meta **in;             /* owned: metas the inputs must have (NULL for numbers and absent ones) */
    fl_box_plan **boxings;          /* owned: the plan to it from each input, as it was priced; NULL: none is needed */
    const fl_meta *out[FL_MAX_OUT]; /* owned */
    fl_history *history;            /* NULL: no other rank takes part in the op */
    uint64_t content;               /* names the key on all ranks alike */
    uint64_t number_operands;       /* those that are Lua numbers, a bit each */
    uint32_t numbers;               /* value attributes, a bit each */
    int8_t number;                  /* the operand that is the only one of both; or one of: */
    fl_dtype number_dtype;          /* dtype in which Lua numbers are handed to the kernel */
} fl_plan;

/* Results from so many local elements on may be computed later: FLOW_FUSE_FROM; none where FLOW_FUSE is 0. */
int64_t fl_infer_defers_from(bool on_device);

/* True for an elementwise op of enough elements that cannot fail (an error would be reported late). */
bool fl_plan_may_fuse(const fl_plan *plan);

/* The plan of this call; borrowed. It is the last to be evicted, so it outlives the few calls that an op makes while
** it runs (not fl_infer_clear). Errors: everything that can be said about shapes, dtypes, SBPs and placements. */
fl_status fl_infer_plan(const fl_plan **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place);

/* The meta of the first result that the call would have, borrowed as long as its plan; no observer is called. NULL:
** the call is an error. */
const fl_meta *fl_infer_result(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Set while flow.explain watches: called with every plan as it is about to be carried out. */
FL_OWN extern void (*fl_infer_observer)(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs,
                                        bool in_place);

/* Kind, dtype and shape of one operand; a Lua number has the dtype of its kind. */
void fl_spec_of(fl_spec *out, const fl_operand *in);

typedef struct fl_infer_stats {
    int64_t hits, misses, size;
} fl_infer_stats;
void fl_infer_stats_get(fl_infer_stats *out);
void fl_infer_clear(void);

/* Sets fl_dtype_default; plans that were made with another one are forgotten. */
void fl_infer_set_default_dtype(fl_dtype dtype);
enum { FL_INFER_CAPACITY = 16384 };

/* The result of a choice: the caller provides the arrays. */
typedef struct fl_choice {
    fl_nd_sbp *in_sbp, *out_sbp; /* of the inputs and results */
    /* the plan from each input to its SBP, as it was priced; the plans are the caller's, NULL: none is needed. NULL:
    ** not asked */
    fl_box_plan **boxings;
    fl_body body; /* NULL: the kernel */
} fl_choice;

/* The n-D choice itself, for tests and explain: chooses among the product tree of op's signatures. report may be NULL;
** else it is called per candidate. */
typedef void (*fl_candidate_fn)(void *context, const fl_candidate *candidate, int nin, int nout);
fl_status fl_infer_choose(fl_choice *choice, const fl_infer *shapes, const fl_meta *const *in,
                          const fl_placement *placement, bool in_place, fl_candidate_fn report, void *context);

/* Reports every signature over a hierarchy that some inputs of these shapes and dtypes could be given for: the tests
** prove each. SBPs of the tensor operands, then of the results. */
typedef void (*fl_signature_fn)(void *context, const fl_nd_sbp *in_out, int nin, int nout, bool has_body);
fl_status fl_infer_signatures(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                              const int *hierarchy, int ndim, fl_signature_fn report, void *context);

#endif
