/*
** alone.c -- this rank runs what the others do not.
*/
#include "alone.h"
#include "record.h"
#include "ranks/comm.h"

void fl_alone_begin(fl_alone *alone, const char *who)
{
    *alone = (fl_alone){fl_comm_refusal, *fl_generator_current()};
    fl_comm_refusal = who;
    fl_dispatch_watch(FL_WATCH_ALONE, true);
}

void fl_alone_end(const fl_alone *alone)
{
    fl_comm_refusal = alone->outside;
    fl_dispatch_watch(FL_WATCH_ALONE, alone->outside != NULL);
    *fl_generator_current() = alone->before;
}
