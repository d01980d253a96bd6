/*
** data_stack.h -- items of a batch put together field by field, on any thread.
*/
#ifndef FL_DATA_STACK_H
#define FL_DATA_STACK_H

#include "data_row.h"

typedef struct fl_stack fl_stack;

/* Arrays of equal dtype and shape are stacked; numbers become int64 if all are integers, else float32; booleans bool.
** Strings stay in the rows, which are borrowed. device: the memory is such that its copies reach it without the
** processor; NULL: any memory. NULL: the items differ, or out of memory. */
fl_stack *fl_stack_rows(fl_row *const *rows, int64_t count, const fl_device *device);

/* True when rows but for the first are no longer needed. */
bool fl_stack_is_whole(const fl_stack *stack);

/* Pushes the batch; the memory of the tensors is given to them. Raises the script's errors. */
void fl_stack_push(lua_State *L, fl_stack *stack);

void fl_stack_free(fl_stack *stack); /* NULL is fine */

#endif
