/*
** listener.h -- who is told what dispatch runs, while a program is recorded (program/record.c).
**
** While there is one, ops run as they do without, but none directly and none later: each passes through here. A body is
** heard as its ops, and operands as they are after boxing.
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
    /* `out` was made from x, another tensor, by boxing. */
    fl_status (*boxed)(fl_tensor *out, fl_tensor *x);
    /* A tensor got memory of its own. */
    void (*made)(fl_tensor *tensor);
    /* What cannot be recorded, "this reads a tensor's value": an error that says so. */
    fl_status (*refuse)(const char *what);
} fl_listener;

/* NULL: nobody listens. */
FL_OWN extern const fl_listener *fl_listener_now;

/* Sets it, and what it needs to be told. */
void fl_listen(const fl_listener *listener);

/* FL_OK while nobody listens, and where the answerer has values read. */
static inline fl_status fl_listener_refuse(const char *what)
{
    if (FL_UNLIKELY(fl_answerer_now != NULL)) return fl_answerer_now->read();
    return FL_UNLIKELY(fl_listener_now != NULL) ? fl_listener_now->refuse(what) : FL_OK;
}

#endif
