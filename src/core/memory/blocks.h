/*
** blocks.h -- blocks of memory from the system, by size class. Any thread.
*/
#ifndef FL_BLOCKS_H
#define FL_BLOCKS_H

#include "base/size_class.h"

#include <stddef.h>
#include <stdint.h>

/* AddressSanitizer: marks bytes as inaccessible, and as accessible. FL_BLOCK_GUARD: hidden bytes behind each block. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FL_HIDE(start, size) __asan_poison_memory_region((start), (size))
#define FL_SHOW(start, size) __asan_unpoison_memory_region((start), (size))
enum { FL_BLOCK_GUARD = 64 };
#else
#define FL_HIDE(start, size) ((void)(start), (void)(size))
#define FL_SHOW(start, size) ((void)(start), (void)(size))
enum { FL_BLOCK_GUARD = 0 };
#endif

enum { FL_BLOCK_UNIT = 64, FL_BLOCK_CLASSES = 320, FL_BLOCK_LARGE = 1 << 20 }; /* from LARGE on a block is mapped */
static const size_t FL_BLOCK_MAX = (size_t)1 << 46;

/* The class whose blocks hold so many bytes (1 to FL_BLOCK_MAX). */
static inline int fl_block_class(size_t bytes) { return fl_size_class((bytes + FL_BLOCK_UNIT - 1) / FL_BLOCK_UNIT); }

/* Bytes a block of a class holds. */
static inline size_t fl_block_bytes(int c) { return fl_size_class_units(c) * FL_BLOCK_UNIT; }

/* A block of class c, aligned to FL_BLOCK_UNIT; NULL when there is no memory. */
void *fl_block_new(int c);
void fl_block_release(void *data, int c);

/* Memory this process can ever have: the container's limit or the machine's memory with its swap. */
int64_t fl_memory_limit(void);

#endif
