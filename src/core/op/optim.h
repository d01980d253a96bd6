/*
** optim.h -- groups of operands and attributes of the optimizers' steps: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_OPTIM_H
#define FL_OPTIM_H

/* Groups of operands: the first two of all steps, then those of one. */
enum {
    FL_STEP_PARAMETERS,
    FL_STEP_GRADIENTS,
    FL_PLAIN_GROUPS,
    FL_SGD_BUFFERS = FL_PLAIN_GROUPS,
    FL_SGD_GROUPS,
    FL_ADAM_FIRST_MOMENTS = FL_PLAIN_GROUPS,
    FL_ADAM_SECOND_MOMENTS,
    FL_ADAM_GROUPS
};

/* Attributes. */
enum {
    FL_ADAM_LR,
    FL_ADAM_BETA1,
    FL_ADAM_BETA2,
    FL_ADAM_EPS,
    FL_ADAM_DECAY,
    FL_ADAM_STEP,
    FL_ADAM_DECOUPLED,
    FL_ADAM_MAXIMIZE
};
enum { FL_PLAIN_LR, FL_PLAIN_DECAY, FL_PLAIN_MAXIMIZE };
enum { FL_SGD_LR, FL_SGD_MOMENTUM, FL_SGD_DAMPENING, FL_SGD_DECAY, FL_SGD_NESTEROV, FL_SGD_FIRST, FL_SGD_MAXIMIZE };
enum { FL_CLIP_MAX_NORM };

/* clip_scale_: the gradients, and the norm once for each. */
enum { FL_CLIP_GRADIENTS, FL_CLIP_NORMS, FL_CLIP_GROUPS };

#endif
