/*
** owner.h -- the one thread that may call: it pushes ops, counts references and waits.
**
** Nothing in the core is locked against a second one, so what hosts call asks first.
*/
#ifndef FL_OWNER_H
#define FL_OWNER_H

#include "status.h"

#include <stdbool.h>
#include <stdint.h>

/* A thread's number while it is the owner, and the owner's; 0: there is none. */
FL_OWN extern _Thread_local uint32_t fl_owner_mine;
FL_OWN extern uint32_t fl_owner_now;

/* The calling thread, one of the core's own, is never the owner. */
enum { FL_OWNER_NEVER = -1 };
static inline void fl_owner_never(void) { fl_owner_mine = (uint32_t)FL_OWNER_NEVER; }
static inline bool fl_owner_is_never(void) { return fl_owner_mine == (uint32_t)FL_OWNER_NEVER; }

/* The calling thread is the owner from now on. */
void fl_owner_take(void);

/* No thread is. */
void fl_owner_drop(void);

static inline bool fl_owner_is_known(void) { return __atomic_load_n(&fl_owner_now, __ATOMIC_RELAXED) != 0; }

static inline bool fl_owner_is_here(void)
{
    return fl_owner_mine && fl_owner_mine == __atomic_load_n(&fl_owner_now, __ATOMIC_RELAXED);
}

#endif
