/*
** size_class.h -- size classes of memory: 8 per doubling, so that a block is at most an eighth larger than its use.
**
** Counted in units, the smallest blocks; classes 1 to 8 are that many units.
*/
#ifndef FL_SIZE_CLASS_H
#define FL_SIZE_CLASS_H

#include <stddef.h>

/* The class whose blocks hold so many units (at least 1). */
static inline int fl_size_class(size_t units)
{
    if (units <= 8) return (int)units;
    int shift = 60 - __builtin_clzll((unsigned long long)(units - 1));
    return shift * 8 + (int)((units - 1) >> shift) + 1;
}

/* Units a block of a class holds. */
static inline size_t fl_size_class_units(int index)
{
    if (index <= 8) return (size_t)index;
    int shift = (index - 9) / 8;
    return (size_t)(index - 8 * shift) << shift;
}

#endif
