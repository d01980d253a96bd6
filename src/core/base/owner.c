/*
** owner.c -- which thread may call: numbers are given out in turn, so a thread that was the owner once is not for ever.
*/
#include "owner.h"

_Thread_local uint32_t fl_owner_mine;
uint32_t fl_owner_now;

static uint32_t given;

void fl_owner_take(void)
{
    uint32_t number = __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
    fl_owner_mine = number;
    __atomic_store_n(&fl_owner_now, number, __ATOMIC_RELEASE);
}

void fl_owner_drop(void) { __atomic_store_n(&fl_owner_now, 0, __ATOMIC_RELEASE); }
