/*
** attention.h -- operands, results and attributes of the ops of attention: shared by the kernels of the CPU and of
** devices.
*/
#ifndef FL_OP_ATTENTION_H
#define FL_OP_ATTENTION_H

/* attention_rows */
enum { IN_Q, IN_K, IN_V, IN_MASK };
enum { ROWS_OUT, ROWS_LSE, ROWS_KEY };

/* attention_backward */
enum { BACK_DY, BACK_Q, BACK_K, BACK_V, BACK_MASK, BACK_OUT, BACK_LSE, BACK_KEY, BACK_DLSE, BACK_OPERANDS };
enum { BACK_DQ, BACK_DK, BACK_DV };

/* attention_mask, attention_dropout */
enum { MASK_SCORES, MASK_MASK };
enum { DROPOUT_SCORES, DROPOUT_KEY };

enum { ATTR_CAUSAL, ATTR_DROPOUT, ATTR_SCALE }; /* in the same order everywhere */

#endif
