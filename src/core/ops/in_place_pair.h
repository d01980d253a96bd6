/*
** in_place_pair.h -- two ops from one function that writes into x: x:name_(...), and name(x, ...), which works on a
** copy.
**
**     FL_IN_PLACE_PAIR(index_add, "x, axis: axis, index, source", "x with ... added.", add_slices, samples)
*/
#ifndef FL_IN_PLACE_PAIR_H
#define FL_IN_PLACE_PAIR_H

#include "expr.h"

/* Writes into x, which is operand 0 or a copy of it; the other operands are those of the call. Messages begin with
** `who`. One reference to x for the caller. */
typedef fl_status (*fl_worker)(fl_tensor **out, const char *who, fl_tensor *x, const fl_operand *in,
                               const fl_attrs *attrs);

/* A partial sum is added up before the copy, which replaces whole values. */
static inline fl_status fl_work_on_copy(fl_tensor **out, const char *who, fl_worker work, const fl_operand *in,
                                        const fl_attrs *attrs)
{
    fl_expr c = {0};
    fl_tensor *copy = EXPR_CALL(&c, NULL, clone, fl_of(expr_whole(&c, in[0].tensor)));
    if (copy) c.status = work(out, who, copy, in, attrs);
    return fl_expr_end(&c);
}

/* parameters, text: of the signature and the documentation; examples: the list of samples. */
#define FL_IN_PLACE_PAIR(ident, parameters, text, work, examples)                                           \
    static fl_status body_##ident(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs)    \
    {                                                                                                       \
        return fl_work_on_copy(out, #ident, work, in, attrs);                                               \
    }                                                                                                       \
    static fl_status body_##ident##_(fl_tensor **out, const fl_operand *in, int nin, const fl_attrs *attrs) \
    {                                                                                                       \
        return work(out, #ident "_", in[0].tensor, in, attrs);                                              \
    }                                                                                                       \
    FL_OP(ident) = {                                                                                        \
        .name = #ident,                                                                                     \
        .sig = #ident "(" parameters ")",                                                                   \
        .nout = 1,                                                                                          \
        .doc = text,                                                                                        \
        .body = body_##ident,                                                                               \
        .samples = examples,                                                                                \
    };                                                                                                      \
    FL_OP(ident##_) = {                                                                                     \
        .name = #ident "_",                                                                                 \
        .sig = #ident "_(" parameters ")",                                                                  \
        .nout = 1,                                                                                          \
        .flags = FL_OP_METHOD_ONLY,                                                                         \
        .mutates = 1,                                                                                       \
        .doc = #ident ", in place.",                                                                        \
        .body = body_##ident##_,                                                                            \
        .samples = examples,                                                                                \
    }

#endif
