/*
** anomaly.h -- finding the op whose gradient made the first NaN or infinity.
*/
#ifndef FL_ANOMALY_H
#define FL_ANOMALY_H

#include "autograd.h"

/* True: nodes note the line of the script that records them, and backward reads every gradient that an op gives. */
extern bool fl_anomaly_watched;

/* A node was recorded. */
void fl_anomaly_note(fl_node *node);

/* An error where a gradient in g->gin is not finite. On several ranks each comes to it alike. */
fl_status fl_anomaly_check(const fl_node *node, const fl_grad *g);

#endif
