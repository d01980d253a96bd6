/*
** reduce.h -- how values of several ranks become one.
*/
#ifndef FL_BASE_REDUCE_H
#define FL_BASE_REDUCE_H

typedef enum fl_reduce { FL_REDUCE_SUM, FL_REDUCE_MAX, FL_REDUCE_MIN, FL_REDUCE_PROD } fl_reduce;

#endif
