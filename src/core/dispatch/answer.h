/*
** answer.h -- who answers what a script asks for, in the place of dispatch and autograd (program/pieces.c).
**
** While there is one, it gets each op as a script calls it, each backward and each detach. It may run them, or give
** tensors whose values come later. listener.h is about what dispatch makes of an op.
*/
#ifndef FL_ANSWER_H
#define FL_ANSWER_H

#include "dispatch.h"

typedef struct fl_answerer {
    fl_status (*call)(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                      bool in_place);
    fl_status (*backward)(fl_tensor *y, fl_tensor *gradient, bool retain);
    fl_status (*detach)(fl_tensor **out, fl_tensor *x);
    /* Values are about to be read, or what they depend on is about to be changed. */
    fl_status (*read)(void);
    /* Something is about to be done that is not answered; from now on nothing is. */
    fl_status (*stop)(void);
} fl_answerer;

/* NULL: none, also while the answerer itself runs ops. */
extern const fl_answerer *fl_answerer_now;

/* Set by who calls a script's function in the middle of a backward. */
extern bool fl_answer_hooked;

static inline fl_status fl_answer_read(void)
{
    return FL_UNLIKELY(fl_answerer_now != NULL) ? fl_answerer_now->read() : FL_OK;
}
static inline fl_status fl_answer_stop(void)
{
    return FL_UNLIKELY(fl_answerer_now != NULL) ? fl_answerer_now->stop() : FL_OK;
}

#endif
