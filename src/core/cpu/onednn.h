/*
** onednn.h -- the library oneDNN, opened on demand: matrix products (gemm.c) and convolutions (conv_plan.c).
*/
#ifndef FL_ONEDNN_H
#define FL_ONEDNN_H

/* The open library, NULL where there is none; it stays open. From the thread that runs kernels. */
void *fl_onednn_library(void);

/* Before anything of the library is created or run, on each thread that does: a second pool of threads would fight with
** our team. */
void fl_onednn_serial(void);

#endif
