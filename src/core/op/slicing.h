/*
** slicing.h -- attributes of the ops that take intervals and diagonals: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_SLICING_H
#define FL_SLICING_H

/* narrow, narrow_every; slice has a stop for the length, narrow_backward the size of the axis, select one position */
enum { SLICE_AXIS, SLICE_START, SLICE_LENGTH, SLICE_STEP };
enum { SLICE_POSITION = SLICE_START, SLICE_STOP = SLICE_LENGTH, SLICE_SIZE = SLICE_LENGTH };

/* diagonal, diagonal_backward */
enum { DIAGONAL_OFFSET, DIAGONAL_AXIS0, DIAGONAL_AXIS1, DIAGONAL_SIZES };

#endif
