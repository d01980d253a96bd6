/*
** attention.h -- operands, results and attributes of the ops of attention: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_OP_ATTENTION_H
#define FL_OP_ATTENTION_H

/* attention_rows */
enum { FL_ATTENTION_Q, FL_ATTENTION_K, FL_ATTENTION_V, FL_ATTENTION_MASK };
enum { FL_ATTENTION_OUT, FL_ATTENTION_LSE, FL_ATTENTION_KEY };

/* attention_backward */
enum {
    FL_ATTENTION_BACK_DY,
    FL_ATTENTION_BACK_Q,
    FL_ATTENTION_BACK_K,
    FL_ATTENTION_BACK_V,
    FL_ATTENTION_BACK_MASK,
    FL_ATTENTION_BACK_OUT,
    FL_ATTENTION_BACK_LSE,
    FL_ATTENTION_BACK_KEY,
    FL_ATTENTION_BACK_DLSE,
    FL_ATTENTION_BACK_OPERANDS
};
enum { FL_ATTENTION_BACK_DQ, FL_ATTENTION_BACK_DK, FL_ATTENTION_BACK_DV };

/* attention_mask, attention_dropout */
enum { FL_ATTENTION_MASK_SCORES, FL_ATTENTION_MASK_MASK };
enum { FL_ATTENTION_DROPOUT_SCORES, FL_ATTENTION_DROPOUT_KEY };

enum { FL_ATTENTION_CAUSAL, FL_ATTENTION_DROPOUT, FL_ATTENTION_SCALE }; /* in the same order everywhere */

#endif
