/*
** moves.cu -- the ops that only move values or fill: their kernels are the core's, over copies and fills of the device.
*/
#include "core/op/create.h"
#include "cuda/kernels/copies.h"

extern "C" {
#include "core/ops/ops.h"
}

static const fl_mover mover = {fl_cuda_copy_view, fl_cuda_fill_view};

static fl_status copy_first(fl_kernel *kernel) { return fl_mover_copy(kernel, &mover); }
static fl_status rep(fl_kernel *kernel) { return fl_move_rep(kernel, &mover); }
static fl_status cat(fl_kernel *kernel) { return fl_move_cat(kernel, &mover); }
static fl_status stack(fl_kernel *kernel) { return fl_move_stack(kernel, &mover); }
static fl_status flip(fl_kernel *kernel) { return fl_move_flip(kernel, &mover); }
static fl_status roll(fl_kernel *kernel) { return fl_move_roll(kernel, &mover); }
static fl_status pad(fl_kernel *kernel) { return fl_move_pad(kernel, &mover); }
static fl_status unfold(fl_kernel *kernel) { return fl_move_unfold(kernel, &mover); }
static fl_status as_strided(fl_kernel *kernel) { return fl_move_as_strided(kernel, &mover); }
static fl_status copy_into(fl_kernel *kernel) { return fl_move_copy_(kernel, &mover); }
static fl_status fill(fl_kernel *kernel) { return fl_move_fill(kernel, &mover, FL_FILL_VALUE); }
static fl_status full(fl_kernel *kernel) { return fl_move_fill(kernel, &mover, FL_FULL_VALUE); }
static fl_status zeros(fl_kernel *kernel) { return fl_move_fill_integer(kernel, &mover, 0); }
static fl_status ones(fl_kernel *kernel) { return fl_move_fill_integer(kernel, &mover, 1); }

FL_CUDA_OP(clone, copy_first);
FL_CUDA_OP(cast, copy_first);
FL_CUDA_OP(reshape, copy_first);
FL_CUDA_OP(view, copy_first);
FL_CUDA_OP(flatten, copy_first);
FL_CUDA_OP(squeeze, copy_first);
FL_CUDA_OP(unsqueeze, copy_first);
FL_CUDA_OP(permute, copy_first);
FL_CUDA_OP(transpose, copy_first);
FL_CUDA_OP(t, copy_first);
FL_CUDA_OP(expand, copy_first);
FL_CUDA_OP(narrow, copy_first);
FL_CUDA_OP(narrow_every, copy_first);
FL_CUDA_OP(select, copy_first);
FL_CUDA_OP(diagonal, copy_first);

FL_CUDA_OP(rep, rep);
FL_CUDA_OP(cat, cat);
FL_CUDA_OP(stack, stack);
FL_CUDA_OP(flip, flip);
FL_CUDA_OP(roll_axes, roll);
FL_CUDA_OP(pad_constant, pad);
FL_CUDA_OP(unfold, unfold);
FL_CUDA_OP(view_strided, as_strided);
FL_CUDA_OP(copy_, copy_into);

FL_CUDA_OP(fill_, fill);
FL_CUDA_OP(zero_, zeros);
FL_CUDA_OP(zeros, zeros);
FL_CUDA_OP(ones, ones);
FL_CUDA_OP(full, full);
FL_CUDA_OP(zeros_like, zeros);
FL_CUDA_OP(ones_like, ones);
FL_CUDA_OP(full_like, fill);
