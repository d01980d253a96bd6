/*
** scan.h -- the attribute of cumsum and its gradient: shared by the kernels of the CPU and of devices.
*/
#ifndef FL_OP_SCAN_H
#define FL_OP_SCAN_H

enum { FL_SCAN_AXIS };

#endif
