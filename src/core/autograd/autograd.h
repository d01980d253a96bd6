/*
** autograd.h -- reverse mode over a tape of nodes.
**
** A node records op, attributes and only what the op's gradient needs. Gradients are written as ops, so
** they run on every device, box themselves and can be differentiated again. In place as in PyTorch: on a
** non-leaf or a view of one it rewrites the base's history; on a leaf that requires grad, or its view,
** it is an error outside no_grad. Saved tensors are checked by version: exact, since versions are bumped
** when an op is pushed.
*/
#ifndef FL_AUTOGRAD_H
#define FL_AUTOGRAD_H

#include "dispatch/dispatch.h"
#include "dispatch/record.h"

typedef struct fl_node fl_node;

/* Called with the gradient of a tensor; may replace it (out: NULL keeps it). */
typedef fl_status (*fl_hook)(fl_tensor **out, fl_tensor *grad, void *context);

/* True: backward boxes the gradients of leaves to the leaves' SBP, which may communicate. no_sync clears it: gradients
** are then kept as they are and added to those of the next pass with it set. */
FL_OWN extern bool fl_grad_sync;
FL_OWN extern int64_t fl_grad_unsynced; /* number of leaves with gradients that wait for such a pass */

/* Set while a program is recorded: called before the gradient of a tensor is read, set or cleared. */
typedef enum fl_grad_access { FL_GRAD_READ, FL_GRAD_SET, FL_GRAD_CLEARED } fl_grad_access;
FL_OWN extern void (*fl_autograd_grad_watch)(const fl_tensor *tensor, fl_grad_access access);

/* Number of changes of requires_grad of leaves. */
FL_OWN extern uint64_t fl_autograd_flag_changes;

/* Leaf tensors. */
fl_status fl_autograd_set_requires_grad(fl_tensor *tensor, bool value);
bool fl_autograd_is_leaf(const fl_tensor *tensor);
fl_tensor *fl_autograd_grad_of(const fl_tensor *tensor);            /* borrowed; NULL when there is none */
fl_status fl_autograd_set_grad(fl_tensor *tensor, fl_tensor *grad); /* NULL clears; else same meta */
fl_status fl_autograd_retain(fl_tensor *tensor);                    /* keep .grad of a non-leaf */
fl_status fl_autograd_forget(fl_tensor *tensor); /* becomes a leaf that requires no grad; no view can */
fl_status fl_autograd_add_hook(fl_tensor *tensor, fl_hook hook, void *context, void (*release)(void *));

/* The hook is called with the leaf itself, whenever backward has added to its .grad; it leaves *out NULL. */
fl_status fl_autograd_add_after(fl_tensor *leaf, fl_hook hook, void *context, void (*release)(void *));

const char *fl_autograd_node_name(
    const fl_tensor *tensor); /* op that made it, of a view of what was rewritten since its own; or NULL */

/* True if backward finds a graph below the tensor that has not been freed. */
bool fl_autograd_has_graph(const fl_tensor *tensor);

/* The tensor requires grad and has a graph that was freed: computed from leaves, by a replay. */
fl_status fl_autograd_set_spent(fl_tensor *tensor);

/* The base of a view, and the link that made the view; NULL: no view, or not of floats. The link is borrowed. */
typedef struct tape_link fl_view_link;
fl_tensor *fl_autograd_base_of(fl_view_link **link, const fl_tensor *tensor);

/* `view` is one of `base`, made by link. */
fl_status fl_autograd_set_view(fl_tensor *view, fl_tensor *base, fl_view_link *link);
fl_view_link *fl_view_link_ref(fl_view_link *link);
void fl_view_link_unref(fl_view_link *link); /* NULL is fine */

/* Moves the state of `from` on the tape to `to`. */
void fl_autograd_move(fl_tensor *to, fl_tensor *from);

/* Gradients of the leaves below `y` are added to their .grad. grad: NULL for a 0-d y. retain: keep the
** graph for another backward. create_graph: the gradients are recorded too. On the CPU, products may be added to a
** leaf's sum by their kernel, term by term: its last bits may differ from those of a sum of whole gradients. */
fl_status fl_autograd_backward(fl_tensor *const *ys, fl_tensor *const *grads, int count, bool retain,
                               bool create_graph);

/* Gradients of ys with respect to xs, returned and not accumulated. allow_unused: NULL instead of an error. */
fl_status fl_autograd_grad(fl_tensor **out, fl_tensor *const *ys, fl_tensor *const *grads, int ycount,
                           fl_tensor *const *xs, int xcount, bool retain, bool create_graph, bool allow_unused);

/* *out: ys depend on a leaf that requires grad and is none of xs. */
fl_status fl_autograd_reaches_others(bool *out, fl_tensor *const *ys, int count, fl_tensor *const *xs, int xcount);

/* ---- gradient expressions (vjp.c) ---- */

/* Evaluates an op's vjp strings: identifiers are the signature's names (x, y2, axis), `g` (or g0, g1) the
** gradients of the outputs, `out` (out0, out1) the outputs; calls are ops; numbers; + - * / ^ unary -. */
fl_status fl_vjp_eval(fl_grad *g);

/* An error that names the place, where an op's strings cannot be read. */
fl_status fl_vjp_check(const fl_op *op);

/* Gradient of an output that nothing used. */
fl_status fl_vjp_zeros(fl_tensor **out, const fl_meta *meta);

/* The body of an op as such a text over its operands and attributes (see vjp.c): read at its first call. */
typedef struct fl_body_text {
    const fl_op *op;
    const char *text;
    struct fl_vjp_code *code; /* NULL before */
} fl_body_text;
fl_status fl_text_body(fl_tensor **out, fl_body_text *body, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Reads the strings of the wanted inputs (a bit each) and gives the inputs and outputs to save (a bit each). */
void fl_vjp_saves(const fl_op *op, uint32_t wanted, uint32_t *saves_in, uint32_t *saves_out);

#endif
