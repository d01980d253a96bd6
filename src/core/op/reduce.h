/*
** reduce.h -- operands, results and attributes of the ops over axes and along lines: shared by the kernels of the CPU
** and of devices.
*/
#ifndef FL_OP_REDUCE_H
#define FL_OP_REDUCE_H

/* Attributes: of sums, products, extremes and their positions; largest: of arg_find alone. */
enum { FL_REDUCE_AXIS, FL_REDUCE_KEEPDIM, FL_ARG_FIND_LARGEST };
/* Attributes: of var and std, of norm. */
enum { FL_VAR_AXIS, FL_VAR_CORRECTION, FL_VAR_KEEPDIM };
enum { FL_NORM_P, FL_NORM_AXIS, FL_NORM_KEEPDIM };

/* Operands and attributes of axis_gather and axis_scatter; sizes: of axis_scatter alone. */
enum { FL_PICK_VALUES, FL_PICK_INDEX };
enum { FL_PICK_AXIS, FL_PICK_KEEPDIM, FL_PICK_SIZES };

/* Results and attributes of sort and topk. */
enum { FL_SORTED_VALUES, FL_SORTED_POSITIONS };
enum { FL_SORT_AXIS, FL_SORT_DESCENDING };
enum { FL_TOPK_K, FL_TOPK_AXIS, FL_TOPK_LARGEST };

#endif
