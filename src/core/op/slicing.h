/*
** slicing.h -- attributes of the ops that take intervals and diagonals: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_SLICING_H
#define FL_SLICING_H

/* narrow, narrow_every; slice has a stop for the length, narrow_backward the size of the axis, select one position */
enum { FL_SLICE_AXIS, FL_SLICE_START, FL_SLICE_LENGTH, FL_SLICE_STEP };
enum { FL_SLICE_POSITION = FL_SLICE_START, FL_SLICE_STOP = FL_SLICE_LENGTH, FL_SLICE_SIZE = FL_SLICE_LENGTH };

/* diagonal, diagonal_backward */
enum { FL_DIAGONAL_OFFSET, FL_DIAGONAL_AXIS0, FL_DIAGONAL_AXIS1, FL_DIAGONAL_SIZES };

#endif
