/*
** ops.h -- what op families share: inference and SBP rules that many ops have in common.
*/
#ifndef FL_OPS_H
#define FL_OPS_H

#include "op/op.h"
#include "op/operand.h"
#include "cpu/cpu.h"
#include "dispatch/dispatch.h"

/* Fields of a descriptor: expressions for the generic tests, and one gradient per operand. */
#define FL_SAMPLES(...) \
    .samples = (const char *const[]) { __VA_ARGS__, NULL }
#define FL_VJP(...) \
    .vjp = (const char *const[]) { __VA_ARGS__ }

/* ---- inference ---- */

/* out[0] gets the shape all operands broadcast to. */
FL_EXPORT fl_status fl_infer_broadcast_shape(fl_infer *infer);

/* out[0] = in[0]. */
FL_EXPORT fl_status fl_infer_same(fl_infer *infer);
/* "softmax: takes a float tensor, x is int64[3]" */
FL_EXPORT fl_status fl_require_float(const fl_infer *infer, int operand);

/* The same in a body: `tensor`, which messages call `name`, holds floats. */
fl_status fl_require_float_tensor(const char *who, const char *name, const fl_tensor *tensor);

/* Operand `operand`, which messages call `what`, has this shape or is not given. */
fl_status fl_require_shape(const fl_infer *infer, int operand, const char *what, const fl_shape *want);
/* A failure whose text starts with the op's name: fl_infer_fail(c, FL_ERR_SHAPE, "axis %d ...") */
FL_EXPORT fl_status fl_infer_fail(const fl_infer *infer, fl_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads an attribute of one number for all of `count` axes (1 to 3), or one each; an error names the op, the attribute
** and what it holds. Values lie between `least` and 2^31 - 1, so that products of two cannot overflow. */
fl_status fl_window_geometry_sizes(int64_t *sizes, const fl_infer *infer, int slot, const char *name, int64_t least,
                                   int count);

/* Axes of an `axes` attribute as a bit mask (absent or empty: all axes); errors name axis and shape; duplicates are
** errors. */
FL_EXPORT fl_status fl_reduce_axes(uint32_t *mask, const char *who, const fl_attr *axes, const fl_shape *shape);
/* Axes of an attribute in the order it names them, counted from the front; one that is named twice is an error. */
fl_status fl_axes_in_order(int *axes, const char *who, const char *name, const fl_attr *attr, const fl_shape *shape);
/* Shape after reducing the axes of mask. */
FL_EXPORT void fl_reduce_shape(fl_shape *out, const fl_shape *in, uint32_t mask, bool keepdim);
/* Axis of an already validated attribute. */
static inline int fl_axis_of(const fl_attr *attr, int ndim)
{
    return (int)(attr->integer < 0 ? attr->integer + (ndim ? ndim : 1) : attr->integer);
}

/* ---- SBP of one hierarchy axis ---- */

/* Operands broadcast against out[0]: for every out axis (S(i) where the operand has that axis with that size, else B)
** -> S(i). Numbers and absent operands take B. */
FL_EXPORT void fl_sbp_elementwise(fl_sigs *sigs);
/* As above, and P(sum) -> P(sum) of in[0] (linear functions of it), P(max), P(min) not. */
FL_EXPORT void fl_sbp_linear(fl_sigs *sigs);
/* The tensors of the mask partial, the other operands B -> partial; nothing when one of the mask is a number, or when
** the partial would not survive the op's change of dtype. */
FL_EXPORT void fl_sbp_partial(fl_sigs *sigs, uint32_t operands, fl_sbp partial);
/* True if sums commute with the conversion: same dtype, or to a wider float; never bool. */
bool fl_sbp_sum_exact(fl_dtype from, fl_dtype to);
/* Of an op without operands: each rank makes or draws its part, along any axis. */
void fl_sbp_source(fl_sigs *sigs);
/* S(i) -> S(i) for every axis of in[0] except those of mask; all operands alike. */
FL_EXPORT void fl_sbp_except(fl_sigs *sigs, uint32_t mask);

/* A gradient may be split although all its inputs are whole, if the value it belongs to is split. Such an op has an
** attribute `like`, the nd-SBP of the value: set it when dispatching the gradient, test it in the signatures (true also
** if it is absent). */
void fl_attr_set_like(fl_attrs *attrs, int slot, const fl_meta *value);
bool fl_sbp_is_like(const fl_sigs *sigs, int slot, fl_sbp sbp);

/* S(i) -> S(map[i]) for every axis i of in[0] with map[i] >= 0. */
FL_EXPORT void fl_sbp_map(fl_sigs *sigs, const int *map);
/* All tensors P(sum), P(max) or P(min) -> the same: ops that only move values (and may add zeros: `zeros` leaves out
** max and min). */
FL_EXPORT void fl_sbp_moves(fl_sigs *sigs, bool zeros);

/* Gradient of values that were taken from x along an axis: dy goes back to `positions`, where several meet as a sum. */
fl_status fl_gather_gradient(fl_tensor **out, fl_tensor *dy, fl_operand positions, int64_t axis, const fl_meta *x);

/* ---- copies through kernels ---- */

/* Fails where an integer dtype cannot hold the number: "full: value 300 does not fit into uint8". */
fl_status fl_require_fits(const char *who, fl_dtype dtype, const fl_operand *value);
/* The same of a scalar attribute. */
fl_status fl_require_attr_fits(const char *who, fl_dtype dtype, const fl_attr *value);

/* The value of a scalar attribute in a dtype's own bytes. */
void fl_attr_bytes(int64_t bytes[1], fl_dtype dtype, const fl_attr *scalar);

/* x with other sizes of the same number of elements. */
fl_status fl_reshaped(fl_tensor **out, fl_tensor *x, const int64_t *sizes, int ndim);

/* The copy and the fill of a device. Kernels that only move values are written once, for any of them. */
typedef struct fl_mover {
    fl_status (*copy)(const fl_view *out, const fl_view *in); /* as fl_cpu_copy */
    fl_status (*fill)(const fl_view *out, const void *value); /* as fl_cpu_fill */
} fl_mover;
FL_OWN extern const fl_mover fl_cpu_mover;

/* in[0] rearranged (contiguous, fallback of views). */
FL_EXPORT fl_status fl_mover_copy(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_rep(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_cat(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_stack(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_flip(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_roll(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_pad(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_unfold(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_as_strided(fl_kernel *kernel, const fl_mover *mover);
FL_EXPORT fl_status fl_move_copy_(fl_kernel *kernel, const fl_mover *mover);
/* out[0] filled with an attribute or an integer. */
FL_EXPORT fl_status fl_move_fill(fl_kernel *kernel, const fl_mover *mover, int slot);
FL_EXPORT fl_status fl_move_fill_integer(fl_kernel *kernel, const fl_mover *mover, int64_t value);

/* `view` from position `begin` on, `sizes` long, which stays the caller's. */
fl_view fl_view_part(const fl_view *view, const int64_t *begin, const int64_t *sizes);

/* fl_mover_copy on the CPU. */
fl_status fl_kernel_copy(fl_kernel *kernel);

#endif
