/*
** ranked.h -- operands and attributes of ranked, whose results are those of sort: shared by the kernels of the CPU and
** of devices.
*/
#ifndef FL_OP_RANKED_H
#define FL_OP_RANKED_H

enum { FL_RANKED_X, FL_RANKED_RANKS };
enum { FL_RANKED_AXIS, FL_RANKED_RANK };

#endif
