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

typedef struct fl_node fl_node;

/* Called with the gradient of a tensor; may replace it (out: NULL keeps it). */
typedef fl_status (*fl_hook)(fl_tensor **out, fl_tensor *grad, void *context);

/* Is the tape recording? (no_grad clears it) */
extern bool fl_grad_enabled;

/* May backward communicate to bring the gradients of leaves to the leaves' SBP? (no_sync clears it: they are kept as they come and
** added to those of the next pass that may) */
extern bool fl_grad_sync;

/* t (which has a record) is a view of a tensor whose history was rewritten since, and that requires grad by now. */
bool fl_autograd_view_wants(const fl_tensor *t);

/* Does what is computed from t have a gradient? */
static inline bool fl_autograd_requires_grad(const fl_tensor *t)
{
    return t->requires_grad || (t->autograd && fl_autograd_view_wants(t));
}

/* dispatch calls these around an op. */
static inline bool fl_autograd_wanted(const fl_op *op, const fl_operand *in, int nin)
{
    if (!fl_grad_enabled || (op->flags & FL_OP_NO_GRAD)) return false;
    for (int i = 0; i < nin; i++)
        if (in[i].kind == FL_TENSOR && fl_autograd_requires_grad(in[i].tensor)) return true;
    return false;
}
fl_status fl_autograd_record(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs, fl_tensor **out, int nout);

/* Makes `view` (just made from `base` by op) a view in the tape's sense: in-place writes reach the base. */
fl_status fl_autograd_note_view(fl_tensor *view, fl_tensor *base, const fl_op *op, const fl_attrs *attrs);

/* Before an in-place op on target (in[0]): may it be written? *before: a copy of the target as it is, owned by the caller,
** when a gradient will need it; else NULL. After the op: rewrites histories. */
fl_status fl_autograd_check_inplace(fl_tensor **before, const fl_op *op, fl_tensor *target, const fl_operand *in, int nin);
fl_status fl_autograd_rewrite(const fl_op *op, fl_tensor *target, fl_tensor *before, const fl_operand *in, int nin, const fl_attrs *attrs);

/* Leaf tensors. */
fl_status fl_autograd_set_requires_grad(fl_tensor *t, bool value);
bool fl_autograd_is_leaf(const fl_tensor *t);
fl_tensor *fl_autograd_grad_of(const fl_tensor *t);                 /* borrowed; NULL when there is none */
fl_status fl_autograd_set_grad(fl_tensor *t, fl_tensor *grad);      /* NULL clears; else same meta */
fl_status fl_autograd_retain(fl_tensor *t);                         /* keep .grad of a non-leaf */
fl_status fl_autograd_add_hook(fl_tensor *t, fl_hook hook, void *context, void (*release)(void *));
const char *fl_autograd_node_name(const fl_tensor *t);              /* op that made it, of a view of what was rewritten since its own; or NULL */

/* Gradients of the leaves below `y` are added to their .grad. grad: NULL for a 0-d y. retain: keep the
** graph for another backward. create_graph: the gradients are recorded too. */
fl_status fl_autograd_backward(fl_tensor *const *ys, fl_tensor *const *grads, int count, bool retain, bool create_graph);

/* Gradients of ys with respect to xs, returned and not accumulated. allow_unused: NULL instead of an error. */
fl_status fl_autograd_grad(fl_tensor **out, fl_tensor *const *ys, fl_tensor *const *grads, int ycount, fl_tensor *const *xs, int xcount, bool retain, bool create_graph, bool allow_unused);

/* Used by fl_tensor_free. */
void fl_autograd_free(fl_autograd *a);

/* ---- gradient expressions (vjp.c) ---- */

/* Evaluates an op's vjp strings: identifiers are the signature's names (x, y2, axis), `g` (or g0, g1) the
** gradients of the outputs, `out` (out0, out1) the outputs; calls are ops; numbers; + - * / ^ unary -. */
fl_status fl_vjp_eval(fl_grad *g);

/* What the strings of the wanted inputs (a bit each) mention: bits of inputs and outputs to save. */
void fl_vjp_saves(const fl_op *op, uint32_t wanted, uint32_t *saves_in, uint32_t *saves_out);

#endif
