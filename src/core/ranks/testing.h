/*
** testing.h -- functions of this layer that only tests call from outside.
*/
#ifndef FL_RANKS_TESTING_H
#define FL_RANKS_TESTING_H

/* Part `index` of `count` parts of a host's cores: [*first, *first + *many) of a list of `cores`. All of them for
** everyone when there are more parts than cores. */
void fl_launch_share(int *first, int *many, int cores, int count, int index);

#endif
