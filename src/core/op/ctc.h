/*
** ctc.h -- operands, results and attributes of the ops behind ctc_loss, and their words: shared by the kernels of the
** CPU and of devices.
*/
#ifndef FL_OP_CTC_H
#define FL_OP_CTC_H

/* The last one: of ctc_curvature. */
enum { FL_CTC_LOG_PROBS, FL_CTC_TARGETS, FL_CTC_INPUT_LENGTHS, FL_CTC_TARGET_LENGTHS, FL_CTC_DIRECTION };

/* Results of ctc_rows. */
enum { FL_CTC_LOSSES, FL_CTC_GRADIENT };

enum { FL_CTC_BLANK, FL_CTC_ZERO_INFINITY };

/* Of sequence i: (i, time, times of log_probs), (i, length, labels that there are), (k, i, label, classes). */
#define FL_CTC_BAD_TIME "ctc_loss: input_lengths[%lld] is %lld, but log_probs has %lld times"
#define FL_CTC_BAD_LENGTH "ctc_loss: target_lengths[%lld] is %lld, but targets has %lld labels for it"
#define FL_CTC_BAD_LABEL "ctc_loss: label %lld of sequence %lld is %lld, but there are %lld classes"

#endif
