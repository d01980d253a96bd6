/*
** testing.h -- functions of this layer that only tests call.
*/
#ifndef FL_DATA_TESTING_H
#define FL_DATA_TESTING_H

/* Threads that the pool has started. */
int fl_pool_threads(void);

#endif
