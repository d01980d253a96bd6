/*
** arena.c -- the arena: a sparse memfd, its free ranges, its pages.
**
**     reserved   for those who share the arena (ranks/)      1 GiB
**     small      blocks below 2 MiB, in units of 512 bytes   as large as the machine's memory
**     large      blocks from 2 MiB on, in units of 2 MiB     three times that, so that rounding up costs no memory
**
** The file is sparse: only what was touched takes memory. It has no name, so it goes away with the last process that
** maps it, however that ends.
*/
#define _GNU_SOURCE
#include "arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* since Linux 6.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* since Linux 6.3 */
#endif

enum { SMALL_UNIT = 512, HUGE_PAGE = 2 << 20 };
static const size_t MAX_SMALL = (size_t)1 << 40;  /* of the small zone: units are counted in 32 bits */
static const size_t MAX_MAPPED = (size_t)1 << 45; /* all arenas of a world together: address space */

static fl_arena own = {.file = -1};
static bool left; /* this is a forked child: the arena is its parent's */

const fl_arena *fl_arena_own(void) { return &own; }

bool fl_arena_owns(const void *data) { return (uintptr_t)data - (uintptr_t)own.start < own.size; }

/* ---- free ranges ---- */

/* A zone is a row of equal units. Free ranges are kept by length, 8 bins per doubling; the tags of a range's
** first and last unit have its length, so that neighbours are found and joined without a search. */
enum { BINS = 240 };

struct tag {
    uint32_t free;       /* at both ends of a free range: its length; 0 elsewhere */
    uint32_t prev, next; /* at its first unit: the others in its bin; 0: none */
};

struct zone {
    size_t unit, offset; /* bytes; of the zone in the arena */
    uint32_t units;
    struct tag *tags; /* owned (a mapping); unit i is tags[i + 1], taken tags stand at both ends */
    uint32_t bins[BINS];
    uint64_t filled[BINS / 64 + 1];
};

static struct zone small_zone, large_zone;
static unsigned char *backed; /* owned: 1 for each 2 MiB of the small zone that has its pages */

static int bin_of(uint64_t length)
{
    if (length < 8) return (int)length;
    int shift = 60 - __builtin_clzll(length);
    return 8 * shift + (int)(length >> shift);
}

/* The first bin all of whose ranges have that length. */
static int bin_above(uint64_t length)
{
    if (length < 8) return (int)length;
    return bin_of(length + ((uint64_t)1 << (60 - __builtin_clzll(length))) - 1);
}

static void range_insert(struct zone *zone, uint32_t at, uint32_t length)
{
    int b = bin_of(length);
    zone->tags[at] = (struct tag){length, 0, zone->bins[b]};
    zone->tags[at + length - 1].free = length;
    if (zone->bins[b]) zone->tags[zone->bins[b]].prev = at;
    zone->bins[b] = at;
    zone->filled[b / 64] |= (uint64_t)1 << b % 64;
}

static void range_remove(struct zone *zone, uint32_t at)
{
    struct tag t = zone->tags[at];
    int b = bin_of(t.free);
    zone->tags[at].free = zone->tags[at + t.free - 1].free = 0;
    if (t.next) zone->tags[t.next].prev = t.prev;
    if (t.prev) zone->tags[t.prev].next = t.next;
    else if (!(zone->bins[b] = t.next)) zone->filled[b / 64] &= ~((uint64_t)1 << b % 64);
}

/* A free range from the first bin that is filled from b on; 0: none. */
static uint32_t range_find(const struct zone *zone, int b)
{
    for (int word = b / 64; word <= BINS / 64; word++) {
        uint64_t bits = zone->filled[word];
        if (word == b / 64) bits &= ~(uint64_t)0 << b % 64;
        if (bits) return zone->bins[64 * word + __builtin_ctzll(bits)];
    }
    return 0;
}

/* Position (from 1) of `length` units; 0: no room. */
static uint32_t zone_take(struct zone *zone, uint32_t length)
{
    uint32_t at = range_find(zone, bin_above(length));
    if (!at) return 0;
    uint32_t whole = zone->tags[at].free;
    range_remove(zone, at);
    if (whole > length) range_insert(zone, at + length, whole - length);
    return at;
}

/* Joins what is given with its free neighbours: at and length of the range it lies in. */
static void zone_give(struct zone *zone, uint32_t *at, uint32_t *length)
{
    uint32_t before = zone->tags[*at - 1].free, after = zone->tags[*at + *length].free;
    if (after) range_remove(zone, *at + *length);
    if (before) range_remove(zone, *at - before);
    *at -= before;
    *length += before + after;
    range_insert(zone, *at, *length);
}

static bool zone_start(struct zone *zone, size_t unit, size_t offset, size_t bytes)
{
    *zone = (struct zone){.unit = unit, .offset = offset, .units = (uint32_t)(bytes / unit)};
    zone->tags = mmap(NULL, (zone->units + (size_t)2) * sizeof(struct tag), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zone->tags == MAP_FAILED) return false;
    range_insert(zone, 1, zone->units);
    return true;
}

static void zone_stop(struct zone *zone)
{
    if (zone->units && zone->tags != MAP_FAILED) munmap(zone->tags, (zone->units + (size_t)2) * sizeof(struct tag));
    *zone = (struct zone){0};
}

/* ---- blocks ---- */

static struct zone *zone_of(size_t bytes) { return bytes < HUGE_PAGE ? &small_zone : &large_zone; }

/* Gives fresh memory its pages now, as huge ones. Shared memory has those only where the system's administrator asked
** for them, but on request the kernel merges pages into one wherever there is one (measured: 64 MiB in 3 ms; touched
** page by page 19 ms, and again 15 ms in each peer). It does not begin with nothing, hence the first page. */
static void back_with_huge_pages(char *start, size_t bytes)
{
    static bool unknown; /* to this kernel */
    madvise(start, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes && !unknown; at += HUGE_PAGE)
        unknown = madvise(start + at, FL_ARENA_PAGE, MADV_POPULATE_READ) && errno == EINVAL;
    if (bytes && !unknown) unknown = madvise(start, bytes, MADV_COLLAPSE) && errno == EINVAL;
}

/* A small block shares its huge pages with others. */
static void back_small(size_t start, size_t end)
{
    for (size_t i = start / HUGE_PAGE; i * HUGE_PAGE < end; i++) {
        if (backed[i]) continue;
        back_with_huge_pages(own.start + small_zone.offset + i * HUGE_PAGE, HUGE_PAGE);
        backed[i] = 1;
    }
}

void *fl_arena_take(size_t bytes)
{
    if (!own.start || left || bytes == 0 || bytes > own.size) return NULL;
    struct zone *z = zone_of(bytes);
    uint32_t at = zone_take(z, (uint32_t)((bytes + z->unit - 1) / z->unit));
    if (!at) return NULL;
    size_t start = (at - 1) * z->unit;
    char *data = own.start + z->offset + start;
    if (z == &small_zone) back_small(start, start + bytes);
    else back_with_huge_pages(data, bytes / HUGE_PAGE * HUGE_PAGE); /* the rest does not fill one */
    return data;
}

/* Small blocks lie in huge pages that go back when all of one is free; large blocks go back at once. */
void fl_arena_give(void *data, size_t bytes)
{
    struct zone *z = zone_of(bytes);
    size_t start = (size_t)((char *)data - own.start) - z->offset, end = start + bytes;
    uint32_t at = (uint32_t)(start / z->unit) + 1, length = (uint32_t)((bytes + z->unit - 1) / z->unit);
    zone_give(z, &at, &length);
    size_t free_start = (at - 1) * z->unit, free_end = free_start + length * z->unit;
    start = start / HUGE_PAGE * HUGE_PAGE;
    if (start < free_start) start += HUGE_PAGE;
    end = (end + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (end > free_end) end -= HUGE_PAGE;
    if (start >= end) return;
    madvise(own.start + z->offset + start, end - start, MADV_REMOVE);
    if (z == &small_zone) memset(backed + start / HUGE_PAGE, 0, (end - start) / HUGE_PAGE);
}

/* ---- starting and ending ---- */

/* Bytes of the small zone: the machine's memory, unless the address space or a limit on files allows only less. */
static size_t machine_bytes(int world_size)
{
    struct rlimit limit;
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE),
           most = MAX_MAPPED / (size_t)world_size;
    if (bytes > MAX_SMALL) bytes = MAX_SMALL;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < most) most = limit.rlim_cur;
    if (most < FL_ARENA_RESERVED) return 0;
    most = (most - FL_ARENA_RESERVED) / 4;
    return (bytes < most ? bytes : most) / HUGE_PAGE * HUGE_PAGE;
}

/* Maps an arena's file at an address where its huge pages can be mapped as such. Not dumped: a core file would fill
** it. */
static char *map_file(int fd, size_t size)
{
    char *room = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return NULL;
    char *start = (char *)(((uintptr_t)room + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    char *mapped = mmap(start, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (start > room) munmap(room, (size_t)(start - room));
    munmap(start + size, (size_t)(room + HUGE_PAGE - start));
    if (mapped == MAP_FAILED) {
        munmap(start, size);
        return NULL;
    }
    madvise(start, size, MADV_DONTDUMP);
    return start;
}

char *fl_arena_map(int file)
{
    char *start = map_file(file, own.size);
    if (start) madvise(start + FL_ARENA_RESERVED, own.size - FL_ARENA_RESERVED, MADV_HUGEPAGE);
    return start;
}

void fl_arena_unmap(char *start) { munmap(start, own.size); }

int fl_arena_memfd(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) fd = memfd_create(name, MFD_CLOEXEC); /* an older kernel */
    if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) != 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static bool arena_make(size_t machine)
{
    own.size = FL_ARENA_RESERVED + 4 * machine;
    own.file = fl_arena_memfd("flowlua");
    if (own.file < 0 || ftruncate(own.file, (off_t)own.size)) return false;
    own.start = map_file(own.file, own.size);
    if (!own.start) return false;
    if (!zone_start(&small_zone, SMALL_UNIT, FL_ARENA_RESERVED, machine)) return false;
    if (!zone_start(&large_zone, HUGE_PAGE, FL_ARENA_RESERVED + machine, 3 * machine)) return false;
    return (backed = calloc(machine / HUGE_PAGE, 1)) != NULL;
}

bool fl_arena_create(int world_size)
{
    size_t machine = machine_bytes(world_size);
    if (own.start || machine == 0) return false;
    if (arena_make(machine)) return true;
    fl_arena_stop();
    return false;
}

void fl_arena_stop(void)
{
    if (own.start) munmap(own.start, own.size);
    if (own.file >= 0) close(own.file);
    zone_stop(&small_zone);
    zone_stop(&large_zone);
    free(backed);
    backed = NULL;
    left = false;
    own = (fl_arena){.file = -1};
}

void fl_arena_leave(void)
{
    if (!own.start || left) return;
    left = true;
    void *copy = mmap(own.start, own.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, own.file,
                      0);
    if (copy == MAP_FAILED) mprotect(own.start, own.size, PROT_READ);
    else madvise(own.start, own.size, MADV_DONTDUMP);
    close(own.file);
    own.file = -1;
}
