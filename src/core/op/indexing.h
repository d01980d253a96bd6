/*
** indexing.h -- operands and attributes of the ops that read, add or write where an index names: shared by the kernels
** of the CPU and of devices.
*/
#ifndef FL_OP_INDEXING_H
#define FL_OP_INDEXING_H

/* Operands: of embedding; of index_select, of gather and of all gradients; of those that write. */
enum { FL_EMBEDDING_INDICES, FL_EMBEDDING_WEIGHT };
enum { FL_TAKEN_X, FL_TAKEN_INDEX, FL_TAKEN_DY = FL_TAKEN_X };
enum { FL_WRITE_X, FL_WRITE_INDEX, FL_WRITE_VALUE };

/* Attributes: the axis of all but embedding; then those of index_select_backward and of gather_backward. */
enum { FL_INDEXED_AXIS, FL_INDEX_ADD_SIZE, FL_INDEX_ADD_LIKE, FL_GATHER_BACKWARD_SIZES = 1, FL_GATHER_BACKWARD_LIKE };
enum { FL_FOLD_REDUCE = 1 }; /* scatter_fold: one of these words */
enum { FL_FOLD_PROD, FL_FOLD_AMAX, FL_FOLD_AMIN };
enum { FL_WRAP_SIZE };                         /* wrap_index */
enum { FL_EMBEDDING_ROWS, FL_EMBEDDING_LIKE }; /* embedding_backward */

#endif
