/*
** comm.c -- the transport of this process: registered once by a plug-in, absent otherwise.
*/
#include "comm.h"

static const fl_comm *transport;

const fl_comm *fl_comm_get(void)
{
    return transport;
}

void fl_comm_register(const fl_comm *comm)
{
    transport = comm;
}
