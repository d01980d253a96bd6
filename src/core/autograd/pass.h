/*
** pass.h -- one backward pass: the nodes and leaves that it reaches, and which of them lead to what is asked for.
*/
#ifndef FL_PASS_H
#define FL_PASS_H

#include "tape.h"

/* A leaf of this pass, and what a pass around this one (which called a hook) had left in its record. */
typedef struct tape_reached {
    fl_tensor *leaf; /* owned */
    fl_tensor *outer_pending;
    int outer_expected;
    void *outer_run;
} tape_reached;

/* Final gradients that wait to be boxed together. */
enum { FL_PASS_WAITING = 64 };
typedef struct tape_waiting {
    int count;
    int64_t bytes;
    fl_tensor *leaves[FL_PASS_WAITING], *gradients[FL_PASS_WAITING]; /* owned */
} tape_waiting;

/* One backward pass. */
typedef struct tape_pass {
    fl_node **nodes; /* reached, to be sorted newest first; owned refs */
    int64_t count, capacity;
    tape_reached *leaves;
    int64_t leaf_count, leaf_capacity;
    bool retain, create_graph;
    bool accumulate; /* backward: add to .grad; else: deliver to xs */
    tape_waiting waiting;
    fl_tensor *const *xs; /* the tensors whose gradients flow.grad returns */
    fl_tensor **found;    /* their gradients */
    int xcount;
} tape_pass;

fl_status fl_pass_out_of_memory(void);

/* Takes in a node (NULL: none), or a leaf for one more contribution to its gradient. */
fl_status fl_pass_reach(tape_pass *pass, fl_node *node);
fl_status fl_pass_reach_leaf(tape_pass *pass, fl_tensor *leaf);

/* All nodes and leaves below the roots (nodes[0..count) hold the roots on entry), the newest node first. */
fl_status fl_pass_reach_all(tape_pass *pass);

/* Marks nodes that lead to something asked for. */
fl_status fl_pass_mark_wanted(tape_pass *pass);

/* True if the leaf is asked for by name; if a gradient is to go along the edge. */
bool fl_pass_asks(const tape_pass *pass, const fl_tensor *leaf);
static inline bool fl_pass_wants(const tape_pass *pass, const tape_edge *edge)
{
    if (edge->node) return edge->node->wanted;
    return edge->leaf && (pass->accumulate || fl_pass_asks(pass, edge->leaf));
}

#endif
