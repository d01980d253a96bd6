/*
** arena.h -- memory of this process that other processes can map: one large file, from which host storage comes.
**
** The first FL_ARENA_RESERVED bytes are never given out and zero at first: ranks/shared.h, which shares the
** arena among ranks, lays out its own data there. The script's thread.
*/
#ifndef FL_ARENA_H
#define FL_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_ARENA_PAGE = 4096 };
static const size_t FL_ARENA_RESERVED = (size_t)1 << 30;

typedef struct fl_arena {
    char *start; /* NULL: there is none */
    size_t size;
    int file; /* a descriptor that stays open; -1: none */
} fl_arena;

/* Makes this process's arena, whose size depends on the machine and on how many share it. false: not possible, or
** there is one. */
bool fl_arena_create(int world_size);

/* Gives it up again, before any block was taken. */
void fl_arena_stop(void);

/* In a forked child: blocks keep their data, in a copy of its own, and no more are given. */
void fl_arena_leave(void);

/* This process's; never NULL. */
const fl_arena *fl_arena_own(void);

/* Another arena of the same size, by its file; NULL: not possible. */
char *fl_arena_map(int file);
void fl_arena_unmap(char *start);

/* 64-byte aligned (2 MiB from 2 MiB on); NULL when there is no arena or no room. Zero-filled only when fresh. Has its
** pages already where the kernel can make huge ones. */
void *fl_arena_take(size_t bytes);

/* Back to the arena, with the bytes asked for; huge pages that are free as a whole go back to the system. */
void fl_arena_give(void *data, size_t bytes);

/* True if data lies in this process's arena. */
bool fl_arena_owns(const void *data);

/* An anonymous file that only this user can open and that cannot be executed, closed on exec; -1 and errno. */
int fl_arena_memfd(const char *name);

#endif
