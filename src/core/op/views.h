/*
** views.h -- attributes of the ops that give a tensor other sizes, another order of axes or another dtype: shared by
** all that call them.
*/
#ifndef FL_OP_VIEWS_H
#define FL_OP_VIEWS_H

enum { FL_VIEW_SIZE };    /* reshape, view, expand */
enum { FL_SQUEEZE_AXIS }; /* squeeze, unsqueeze */
enum { FL_PERMUTE_AXES };
enum { FL_CAST_DTYPE };

#endif
