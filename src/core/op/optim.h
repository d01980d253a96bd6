/*
** optim.h -- groups of operands and attributes of the optimizers' steps: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_OPTIM_H
#define FL_OPTIM_H

/* Groups of operands: the first two of all steps, then those of one. */
enum {
    STEP_PARAMETERS,
    STEP_GRADIENTS,
    PLAIN_GROUPS,
    SGD_BUFFERS = PLAIN_GROUPS,
    SGD_GROUPS,
    ADAM_FIRST_MOMENTS = PLAIN_GROUPS,
    ADAM_SECOND_MOMENTS,
    ADAM_GROUPS
};

/* Attributes. */
enum { ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_EPS, ADAM_DECAY, ADAM_STEP, ADAM_DECOUPLED, ADAM_MAXIMIZE };
enum { PLAIN_LR, PLAIN_DECAY, PLAIN_MAXIMIZE };
enum { SGD_LR, SGD_MOMENTUM, SGD_DAMPENING, SGD_DECAY, SGD_NESTEROV, SGD_FIRST, SGD_MAXIMIZE };
enum { CLIP_MAX_NORM };

/* clip_scale_: the gradients, and the norm once for each. */
enum { CLIP_GRADIENTS, CLIP_NORMS, CLIP_GROUPS };

#endif
