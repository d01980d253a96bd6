/*
** reduce.h -- operands, results and attributes of the ops over axes and along lines: shared by the kernels of the CPU
** and of devices.
*/
#ifndef FL_OP_REDUCE_H
#define FL_OP_REDUCE_H

/* Attributes: of sums, products, extremes and their positions; largest: of arg_find alone. */
enum { REDUCE_AXIS, REDUCE_KEEPDIM, ARG_FIND_LARGEST };
/* Attributes: of var and std, of norm. */
enum { VAR_AXIS, VAR_CORRECTION, VAR_KEEPDIM };
enum { NORM_P, NORM_AXIS, NORM_KEEPDIM };

/* Operands and attributes of axis_gather and axis_scatter; sizes: of axis_scatter alone. */
enum { PICK_VALUES, PICK_INDEX };
enum { PICK_AXIS, PICK_KEEPDIM, PICK_SIZES };

/* Results and attributes of sort and topk. */
enum { SORTED_VALUES, SORTED_POSITIONS };
enum { SORT_AXIS, SORT_DESCENDING };
enum { TOPK_K, TOPK_AXIS, TOPK_LARGEST };

#endif
