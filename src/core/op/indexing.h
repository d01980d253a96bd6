/*
** indexing.h -- operands and attributes of the ops that read, add or write where an index names: shared by the kernels
** of the CPU and of devices.
*/
#ifndef FL_OP_INDEXING_H
#define FL_OP_INDEXING_H

/* Operands: of embedding; of index_select, of gather and of all gradients; of those that write. */
enum { EMBEDDING_INDICES, EMBEDDING_WEIGHT };
enum { TAKEN_X, TAKEN_INDEX, TAKEN_DY = TAKEN_X };
enum { WRITE_X, WRITE_INDEX, WRITE_VALUE };

/* Attributes: the axis of all but embedding; then those of index_add and of gather_backward. */
enum { INDEXED_AXIS, INDEX_ADD_SIZE, INDEX_ADD_LIKE, GATHER_BACKWARD_SIZES = 1, GATHER_BACKWARD_LIKE };
enum { EMBEDDING_ROWS, EMBEDDING_LIKE }; /* embedding_backward */

#endif
