/*
** views.h -- attributes of the ops that give a tensor other sizes, another order of axes or elements, or another dtype,
** or that join tensors: shared by all that call them.
*/
#ifndef FL_OP_VIEWS_H
#define FL_OP_VIEWS_H

enum { FL_VIEW_SIZE };    /* reshape, view, expand */
enum { FL_SQUEEZE_AXIS }; /* squeeze, unsqueeze */
enum { FL_PERMUTE_AXES };
enum { FL_TRANSPOSE_AXIS0, FL_TRANSPOSE_AXIS1 };
enum { FL_FLIP_AXES };
enum { FL_ROLL_SHIFTS, FL_ROLL_AXES }; /* roll, roll_axes */
enum { FL_JOINED_AXIS };               /* cat, stack */
enum { FL_CAST_DTYPE };

#endif
