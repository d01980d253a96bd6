/*
** blocks.c -- blocks of memory from the system: small ones from the C library, large ones mapped in huge pages.
*/
#include "blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

/* ---- blocks ---- */

/* Bytes mapped for a large block: whole pages. */
static size_t mapped_bytes(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + FL_BLOCK_GUARD + page - 1) / page * page;
}

/* An aligned mapping is cut out of a larger one. */
static void *map_aligned(size_t bytes, size_t alignment)
{
    size_t whole = bytes + alignment;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *block_start = (char *)(((uintptr_t)start + alignment - 1) / alignment * alignment);
    size_t before = (size_t)(block_start - start), after = whole - before - bytes;
    if (before) munmap(start, before);
    if (after) munmap(block_start + bytes, after);
    return block_start;
}

static void *map_block(size_t bytes)
{
    bytes = mapped_bytes(bytes);
    if (bytes < HUGE_PAGE) {
        void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return start == MAP_FAILED ? NULL : start;
    }
    void *start = map_aligned(bytes, HUGE_PAGE);
    if (start) madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

void *fl_block_new(int c)
{
    size_t bytes = fl_block_bytes(c);
    return bytes < FL_BLOCK_LARGE ? aligned_alloc(FL_BLOCK_UNIT, bytes + FL_BLOCK_GUARD) : map_block(bytes);
}

void fl_block_release(void *data, int c)
{
    size_t bytes = fl_block_bytes(c);
    FL_SHOW(data, bytes + FL_BLOCK_GUARD);
    if (bytes < FL_BLOCK_LARGE) free(data);
    else munmap(data, mapped_bytes(bytes));
}

/* ---- limit ---- */

int64_t fl_memory_limit(void)
{
    static int64_t limit;
    if (limit) return limit;
    struct sysinfo info;
    limit = sysinfo(&info) == 0 ? (int64_t)(info.totalram + info.totalswap) * info.mem_unit : INT64_MAX;
    const char *paths[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(paths[i], "r");
        long long bytes;
        if (f && fscanf(f, "%lld", &bytes) == 1 && bytes > 0 && bytes < limit) limit = bytes;
        if (f) fclose(f);
    }
    return limit;
}
