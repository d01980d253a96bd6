/*
** loss.h -- memory that is lost while functions read it (fl_var_lose), as that of a mapped file which was cut: what was
** computed of it meanwhile has no value.
**
** A function that has run asks fl_loss_any and, if so, which of the variables that it read are poisoned now: they were
** not when it began. The handler ran on the thread that read, so the function sees it.
*/
#ifndef FL_LOSS_H
#define FL_LOSS_H

#include "var.h"

FL_OWN extern bool fl_losses; /* atomic */

/* True if memory of a variable was ever lost in this process. */
static inline bool fl_loss_any(void) { return FL_UNLIKELY(__atomic_load_n(&fl_losses, __ATOMIC_ACQUIRE)); }

/* The poison of a variable that was read as an error. */
fl_status fl_loss_check(const fl_var *read);

/* Poisons a variable that was computed of `read`, if that is poisoned. */
void fl_loss_pass(fl_var *computed, const fl_var *read);

#endif
