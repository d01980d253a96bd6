/*
** composite.h -- ops written as text in other ops, one row each:
**
**     FL_COMPOSITE(softsign2, "softsign2(x)", "x / (abs(x) + 1)", SAMPLES("flow.randn(3)"), "x / (1 + |x|).")
**
** The language of the text is described in autograd/vjp.c.
*/
#ifndef FL_OPS_COMPOSITE_H
#define FL_OPS_COMPOSITE_H

#include "autograd/autograd.h"
#include "ops.h"

#define SAMPLES(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

#define FL_COMPOSITE(id, signature, expression, samples_, doc_)                                       \
    extern const fl_op fl_op_##id;                                                                    \
    static fl_status text_##id(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                 \
        static fl_body_text body = {.op = &fl_op_##id, .text = expression};                           \
        return fl_text_body(out, &body, in, nin, attrs);                                              \
    }                                                                                                 \
    FL_OP(id) = {.name = #id, .sig = signature, .nout = 1, .doc = doc_, .body = text_##id, .samples = samples_}

#endif
