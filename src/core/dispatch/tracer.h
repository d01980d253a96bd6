/*
** tracer.h -- the functions called with the ops that a script calls, while a program is traced (flow.trace).
**
** An op is reported as it was called, with its operands, attributes and results, without what it does inside: no body,
** no boxing, no kernel. Every op then runs on FL_META: operands that have values are replaced, and nothing is
** computed. listener.h is about what dispatch makes of the ops.
*/
#ifndef FL_TRACER_H
#define FL_TRACER_H

#include "dispatch.h"

/* The draws of one op, in order. */
enum { FL_DRAWS_NOTED = 32 };
typedef struct fl_draw_note {
    fl_generator at[FL_DRAWS_NOTED];
    int count; /* may be larger: draws past the end were not kept */
} fl_draw_note;

/* Receives the draws of fl_dispatch_draw; NULL: they are not noted. */
FL_OWN extern fl_draw_note *fl_draws_noted;

/* The seed of the numbers that a traced op would draw; the counter says which, from 1. */
enum { FL_TRACED_SEED = 0x7ace0ace };

/* An op that has run. Tensors among the operands are those that it ran on; the attributes are those of the call. */
typedef struct fl_traced {
    const fl_op *op;
    bool in_place;
    const fl_operand *in;
    int nin;
    const fl_attrs *attrs;
    fl_tensor *const *out;
    int nout;
    const fl_draw_note *draws;
} fl_traced;

typedef struct fl_tracer {
    /* The tensor on FL_META that stands for one with values; borrowed. */
    fl_status (*stand_in)(fl_tensor **out, fl_tensor *tensor);
    fl_status (*called)(const fl_traced *call);
    /* The last op's draw was for nothing. */
    void (*undrew)(void);
    /* x:detach() gave `out`. */
    fl_status (*detached)(fl_tensor *out, fl_tensor *x);
} fl_tracer;

/* NULL: nothing is traced. */
FL_OWN extern const fl_tracer *fl_tracer_now;

/* NULL: no more. flat: where backward is traced too. Of an op whose gradient is that of the ops in its body, these are
** reported instead: backward reads what they computed. */
void fl_trace(const fl_tracer *tracer, bool flat);

/* False, and remembered: a gradient was asked for in a trace that is not flat. */
bool fl_trace_may_differentiate(void);
FL_OWN extern bool fl_trace_lacked_flat;

/* True while the op that is dispatched next is one that the script called. */
bool fl_trace_is_active(void);

/* The call of such an op. */
fl_status fl_trace_call(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place);

/* Around the body of an op. True: its ops are reported, and the op is not. */
bool fl_trace_open(const fl_op *op, bool own_gradient);
void fl_trace_close(bool opened);

/* The generator of an op on FL_META. */
fl_generator fl_trace_draw(void);

#endif
