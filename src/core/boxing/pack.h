/*
** pack.h -- a part without gaps.
*/
#ifndef FL_PACK_H
#define FL_PACK_H

#include "memory/tensor.h"

/* x itself when its part is contiguous, else a copy that is: a task of the engine, no op. */
fl_status fl_pack_part(fl_tensor **out, fl_tensor *x);

#endif
