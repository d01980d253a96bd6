/*
** tape.h -- private to autograd: nodes, edges and the tape's record of a tensor.
**
** Ownership: a tensor owns its fl_autograd; that holds the node which computed it; a node holds its
** edges (producer nodes, or leaves) and what it saved. A saved output is kept as a detached tensor, so
** nothing points back from a node to the tensors that hold it.
*/
#ifndef FL_TAPE_H
#define FL_TAPE_H

#include "anomaly.h"
#include "autograd.h"
#include "function.h"
#include "recompute.h"

/* A hook on a leaf or on one output of a node. */
typedef struct tape_hook {
    struct tape_hook *next;
    fl_hook call;
    void *context;
    void (*release)(void *);
    int slot;
} tape_hook;

/* The ops that made a view from its base: the last one, then the ones before it. */
typedef struct tape_link {
    int refs;
    struct tape_link *before; /* owned; NULL: made from the base itself */
    const fl_op *op;
    fl_attrs *attrs; /* lies behind the link */
} tape_link;

struct fl_autograd {
    int refs;
    fl_node *node;       /* owned; NULL for a leaf */
    int slot;            /* index among the outputs of node */
    fl_tensor *grad;     /* owned; leaves, and outputs with retain */
    fl_tensor *unsynced; /* owned; a leaf's gradient of passes under no_sync, in the SBP it came in */
    bool retain;
    tape_hook *hooks; /* of a leaf: see its gradient */
    tape_hook *after; /* of a leaf: see the leaf, whose .grad has it */
    /* views */
    fl_tensor *base;       /* owned; the tensor this one is a view of */
    tape_link *link;       /* owned */
    uint32_t base_history; /* history of the base when `node` was made */
    uint32_t history;      /* of a base: bumped when an in-place op rewrites it */
    /* during a backward */
    fl_tensor *pending; /* gradient summed so far (leaf) */
    int expected;       /* contributions still to come (leaf) */
    void *run;          /* the backward that uses the two */
};

typedef struct tape_edge {
    fl_node *node;   /* owned; NULL for leaves and for inputs that need no gradient */
    fl_tensor *leaf; /* owned; the leaf itself */
    int slot;
    const fl_meta *meta; /* owned; of the input; NULL for numbers */
} tape_edge;

typedef struct tape_saved {
    fl_operand value; /* tensors owned */
    uint32_t version;
    bool omitted; /* a function that runs again gives it (recompute.h) */
} tape_saved;

/* A node recorded while flow.checkpoint watches. */
typedef struct tape_member {
    const fl_recompute *outermost; /* borrowed, to be compared: the function at whose `place` this node, or the one that
                                   ** it repeats, was recorded */
    int64_t place;
    fl_recompute *home; /* owned; gives the values that are omitted; NULL: of a node that repeats another */
    fl_recompute *via;  /* owned; gives them until they are dropped again, or NULL */
    int64_t via_entry;
} tape_member;

/* The region of the base that an in-place op on a view wrote. */
typedef struct tape_region {
    tape_link *link; /* owned */
} tape_region;

/* The values that a node saves: a bit for each operand (31: all from there on) and each result. */
typedef struct tape_saves {
    uint32_t in, out;
} tape_saves;

/* The function of a node of fl_autograd_function. */
typedef struct fl_tape_function {
    fl_function calls;
    int inputs; /* operands of the node; those behind them are saved values that are no results */
    int saved_count;
    int saved[]; /* operand i, or result i as -1 - i */
} fl_tape_function;

struct fl_node {
    int refs;
    const fl_op *op;
    uint64_t seq;    /* order of creation */
    fl_attrs *attrs; /* lies behind the lists */
    int nin, nout;
    tape_edge *edges;         /* nin */
    tape_saved *in;           /* nin */
    tape_saved *out;          /* nout */
    const fl_meta **out_meta; /* nout, owned */
    fl_tensor **pending;      /* nout: gradients of the outputs, during a backward */
    fl_autograd **retain;     /* nout, borrowed: records of outputs that keep their gradient, or NULL */
    tape_hook *hooks;
    tape_region *region;        /* owned; in place on a view: edge 0 is the base */
    tape_member *member;        /* owned; or NULL */
    fl_tape_function *function; /* owned; instead of the op's gradient, or NULL */
    char *line;                 /* owned; of the script, while flow.detect_anomaly watches; or NULL */
    bool freed;                 /* saved values are gone */
    bool wanted;                /* during a backward: on a path to a requested tensor */
    void *run;                  /* the backward that uses pending now */
    fl_node *next_dead;         /* while a chain is freed without recursion */
};

void fl_node_unref(fl_node *node);
static inline fl_node *fl_node_ref(fl_node *node)
{
    node->refs++;
    return node;
}

/* The autograd record of the tensor, made when missing; NULL when out of memory. */
fl_autograd *fl_tape_record_of(fl_tensor *tensor);

/* The node that computed the tensor and its slot, after catching up with in-place writes to its base; NULL for a
** leaf. */
fl_status fl_tape_node_of(fl_node **node, int *slot, fl_tensor *tensor);

/* Makes the tensor output `slot` of the node. */
fl_status fl_tape_attach(fl_tensor *tensor, fl_node *node, int slot);

/* ---- shared by tape.c, tape_inplace.c and tape_tensor.c ---- */

/* The target of an in-place op, whose version has been bumped already. */
typedef struct tape_write {
    fl_tensor *target;
    fl_tensor *before; /* a copy of its old value; NULL when no gradient needs that */
} tape_write;

fl_status fl_tape_out_of_memory(void);

/* A node without edges and saved values; NULL when out of memory. */
fl_node *fl_tape_node_new(const fl_op *op, int nin, int nout, const fl_attrs *attrs);

/* A node for a call that has run; place: NULL unless it was in place. */
fl_status fl_tape_node_for(fl_node **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                           fl_tensor *const *results, int nout, const tape_write *place);

/* The inputs and outputs that the gradients of the inputs need, of those inputs that require one. target: in[0] is
** written in place. */
tape_saves fl_tape_what_to_save(const fl_op *op, const fl_operand *in, int nin, bool target);

/* A target takes the gradient of its base, also as a view made under no_grad. */
bool fl_tape_target_wants_grad(const fl_tensor *tensor);

/* Of an in-place op on a view: edge 0 leads to the base as it was, not to the view, and a saved result is kept as the
** whole base: the gradient takes its region, connected to the tape where that records. */
fl_status fl_tape_lead_to(fl_node *node, fl_tensor *base);

/* A view whose base was rewritten since gets the node of a view taken from the base as it is now. */
fl_status fl_tape_catch_up(fl_tensor *view);

/* Functions of fl_recorder (dispatch/record.h). */
bool fl_tape_view_wants(const fl_tensor *tensor);
void fl_tape_release_record(fl_autograd *record);
fl_status fl_tape_check_inplace(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin);
fl_status fl_tape_rewrite(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin,
                          const fl_attrs *attrs);

/* ---- for all ---- */

/* Number of the next node. */
uint64_t fl_tape_next_seq(void);

/* Drops a saved value. */
void fl_tape_release_saved(tape_saved *saved);

/* Records a call that has run as one of the function, which is taken over, also when this fails. */
fl_status fl_tape_record_function(const fl_op *op, fl_tape_function *function, const fl_operand *in, int nin,
                                  fl_tensor *const *out, int nout, tape_saves saves);
void fl_tape_function_free(fl_tape_function *function);
/* Its gradient (function.c). */
fl_status fl_tape_function_gradient(fl_grad *g, const fl_tape_function *function);

/* The name of a node in messages. */
const char *fl_tape_node_name(const fl_node *node);

/* ---- functions that run again (recompute.c) ---- */

/* True while one runs, for the first time or again: the functions below then apply. */
FL_OWN extern bool fl_recompute_active;

/* An operand (tensor; edge: where it comes from), or a result (NULL), is not to be saved. */
bool fl_recompute_omits(const tape_edge *edge, const fl_tensor *tensor);

/* A node was recorded. An error also when a second run has done its work. */
fl_status fl_recompute_note(fl_node *node);

/* The op that comes is the last that a second run needs, and no more of it than its operands. */
bool fl_recompute_needs_operands(const fl_op *op);

/* Nodes recorded until the function is resumed are none of its own. */
struct run *fl_recompute_pause(void);
void fl_recompute_resume(struct run *paused);

/* Of a node with a `member`: its values are there afterwards; they are dropped again; it needs them no longer. */
fl_status fl_recompute_fill(fl_node *node);
void fl_recompute_drop(fl_node *node);
void fl_recompute_leave(fl_node *node);

/* Applies the steps of a view to another base. */
fl_status fl_tape_replay(fl_tensor **out, fl_tensor *base, const tape_link *link);

/* Drops what a node saved for its gradient: a second backward over it is an error. */
void fl_tape_forget(fl_node *node);

/* Unpacks the saved values of a node after a check of their versions. Outputs are connected to the tape again when it
** records. Fills g; fl_tape_release_grad drops what it took. */
fl_status fl_tape_unpack(fl_grad *g, fl_node *node);
void fl_tape_release_grad(fl_grad *g);

#endif
