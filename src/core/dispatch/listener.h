/*
** listener.h -- the functions that dispatch calls with what it runs, while a program is recorded (program/record.c).
**
** While they are set, ops run as they do without, but none directly and none later: each is reported here. A body is
** reported as its ops, with operands as they are after boxing.
*/
#ifndef FL_LISTENER_H
#define FL_LISTENER_H

#include "answer.h"
#include "call.h"

typedef struct fl_listener {
    /* A kernel is about to run on these views; each has its data. */
    fl_status (*kernel)(const fl_call *call, const fl_kernel *kernel);
    /* An op without a kernel: a view, or one of which this rank has no part. */
    fl_status (*passed)(const fl_call *call);
    /* A random number was drawn for tensors of this meta; the last draw was for nothing. */
    void (*drew)(const fl_meta *meta, const fl_generator *drawn);
    void (*undrew)(void);
    /* `out` was made from x, another tensor, by boxing of this priority. */
    fl_status (*boxed)(fl_tensor *out, fl_tensor *x, int priority);
    /* A tensor got memory of its own. */
    void (*made)(fl_tensor *tensor);
    /* For what cannot be recorded ("this reads a tensor's value"): the error with that text. */
    fl_status (*refuse)(const char *what);
} fl_listener;

/* NULL: nothing is recorded. */
FL_OWN extern const fl_listener *fl_listener_now;

/* Sets it, and the hooks of boxing, memory and engine that report to it. */
void fl_listen(const fl_listener *listener);

/* FL_OK while there is no listener, and where the answerer has values read. */
static inline fl_status fl_listener_refuse(const char *what)
{
    if (FL_UNLIKELY(fl_answerer_now != NULL)) return fl_answerer_now->read();
    return FL_UNLIKELY(fl_listener_now != NULL) ? fl_listener_now->refuse(what) : FL_OK;
}

#endif
