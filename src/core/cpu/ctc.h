/*
** ctc.h -- the loss of connectionist temporal classification: the negative logarithm of the probability of all paths
** that give a target, and its gradient (Graves et al., 2006).
*/
#ifndef FL_CPU_CTC_H
#define FL_CPU_CTC_H

#include "cpu.h"

/* One batch. log_probs [time, batch, classes]; the labels of sequence i are targets[starts[i]] and on. The numbers of a
** sequence fit: 0 <= lengths <= time, labels are classes. zero_infinity: where no path gives the target, loss and
** gradient are 0, not inf and NaN. */
typedef struct fl_ctc {
    int64_t time, batch, classes, blank;
    const int64_t *targets, *starts, *input_lengths, *target_lengths;
    bool zero_infinity;
} fl_ctc;

/* losses [batch], gradient of each loss [time, batch, classes]: minus the probability that the path is in that class at
** that time. With a direction [time, batch, classes] the gradient is differentiated along it instead, and losses is not
** used. float32 or float64. */
fl_status fl_cpu_ctc(fl_dtype dtype, void *losses, void *gradient, const void *log_probs, const void *direction,
                     const fl_ctc *ctc);

#endif
