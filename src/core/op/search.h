/*
** search.h -- operands and attributes of searchsorted_of: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_SEARCH_H
#define FL_OP_SEARCH_H

enum { FL_SEARCH_SORTED, FL_SEARCH_VALUES };
enum { FL_SEARCH_RIGHT };

#endif
