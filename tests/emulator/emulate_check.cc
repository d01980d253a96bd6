/*
** emulate_check.cc -- each access of a kernel is looked at before it is made, as compute-sanitizer does it on a GPU.
**
** With CONFIG=checked the plug-in's sources are compiled with -fsanitize=thread, which calls a function before each
** access to memory, and -fsanitize=alignment,bounds, which calls one for an address that does not suit its type and for
** an index that its array does not have: they are here. A kernel may touch its stack, its arguments, the plug-in's
** static data (that is shared memory), the dynamic shared memory of its launch, device memory of its GPU and pinned
** memory, each within its bounds and with the alignment of what is moved. In shared memory, two threads that touch a
** byte with no barrier between, one of them writing, are a race.
*/
#include "emulate_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum what { READ, WRITE, ATOMIC };
static const char *const verbs[] = {"reads", "writes", "changes"};

static void __attribute__((noreturn, noinline, format(printf, 1, 2))) wrong(const char *format, ...)
{
    char place[160], text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fl_emulated_place(place, sizeof place);
    fl_emulated_broken("%s %s", place, text);
}

/* ---- device and pinned memory ---- */

enum { RECENT = 8 };
static struct {
    const char *start, *end;
} recent[RECENT]; /* blocks that were found last */
static int next_recent;

void fl_emulated_forget_blocks(void) { memset(recent, 0, sizeof recent); }

static void __attribute__((noinline)) find_block(const char *p, size_t size, enum what what)
{
    size_t left;
    const fl_emulated_memory *m = fl_emulated_memory_find(p, &left);
    if (!m) {
        fl_emulated_memory_explain(p);
        wrong("%s %zu bytes at %p: that is neither memory of the GPU nor pinned", verbs[what], size, (const void *)p);
    }
    if (left < size)
        wrong("%s %zu bytes of a block of %zu bytes, from byte %zu on", verbs[what], size, m->bytes, m->bytes - left);
    if (m->device >= 0 && m->device != fl_emulated_running.device)
        wrong("runs on GPU %d and %s memory of GPU %d", fl_emulated_running.device, verbs[what], m->device);
    recent[next_recent].start = p + left - m->bytes;
    recent[next_recent].end = p + left;
    next_recent = (next_recent + 1) % RECENT;
}

static void look_at_block(const char *p, size_t size, enum what what)
{
    for (int i = 0; i < RECENT; i++)
        if (p >= recent[i].start && p + size <= recent[i].end) return;
    find_block(p, size, what);
}

/* ---- races in shared memory ---- */

/* An access: by a thread, after so many barriers of its block and meetings of its warp. */
struct access {
    uint32_t barriers;
    uint16_t meetings;
    uint16_t thread : 10;
    uint16_t atomic : 1;
    uint16_t lanes : 1; /* of reads: other lanes of the warp have read since the same meeting */
    uint16_t warps : 1; /* of reads: other warps have read since the same barrier */
};
struct cell {
    access write, read;
}; /* the last ones of a byte */

static cell *cells; /* of the library's bytes */

extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _end[] __attribute__((visibility("hidden")));

static bool is_since_barrier(const access &a) { return a.barriers == fl_emulated_running.barriers; }
static bool is_of_warp(const access &a) { return a.thread / 32 == fl_emulated_running.thread / 32; }

static uint16_t meetings(void) { return fl_emulated_running.meetings[fl_emulated_running.thread / 32]; }

/* True if it could be at the same time as what the running thread does now. */
static bool is_unordered(const access &a)
{
    if (!is_since_barrier(a) || a.thread == fl_emulated_running.thread) return false;
    return !is_of_warp(a) || a.meetings == meetings();
}

static bool is_read_unordered(const access &a)
{
    return is_unordered(a) || (is_since_barrier(a) && (a.warps || (a.lanes && a.meetings == meetings())));
}

static void __attribute__((noreturn)) race(enum what what, const char *done, const access &other, const char *p)
{
    wrong("%s a byte of shared memory (%p) that thread %d has %s with no barrier between", verbs[what], (const void *)p,
          other.thread, done);
}

static access this_access(enum what what)
{
    access a = {fl_emulated_running.barriers, meetings(), 0, what == ATOMIC, 0, 0};
    a.thread = (uint16_t)fl_emulated_running.thread & 1023;
    return a;
}

static void note_read(access *read)
{
    access now = this_access(READ);
    if (is_since_barrier(*read)) {
        bool other = read->thread != now.thread;
        now.warps = read->warps || (other && !is_of_warp(*read));
        now.lanes = is_of_warp(*read) && read->meetings == now.meetings && (read->lanes || other);
    }
    *read = now;
}

static void look_at_shared(const char *p, size_t size, enum what what)
{
    for (size_t i = 0; i < size; i++) {
        cell *c = &cells[p + i - __ehdr_start];
        if (is_unordered(c->write) && !(what == ATOMIC && c->write.atomic)) race(what, "written", c->write, p + i);
        if (what == READ) {
            note_read(&c->read);
            continue;
        }
        if (is_read_unordered(c->read)) race(what, "read", c->read, p + i);
        c->write = this_access(what);
    }
}

static void look_at_static(const char *p, size_t size, enum what what)
{
    const char *dynamic = (const char *)fl_emulated_shared();
    size_t offset = (size_t)(p - dynamic);
    if (offset < FL_EMULATED_SHARED && offset + size > fl_emulated_running.shared_bytes)
        wrong("%s %zu bytes of dynamic shared memory from byte %zu on: the launch asked for %zu", verbs[what], size,
              offset, fl_emulated_running.shared_bytes);
    if (p < __start_fl_emulated_place || p >= __stop_fl_emulated_place) look_at_shared(p, size, what);
}

/* ---- all accesses ---- */

static bool is_in(const void *p, size_t size, const void *start, size_t bytes)
{
    return (const char *)p >= (const char *)start && (const char *)p + size <= (const char *)start + bytes;
}

static inline void look_at(const void *at, size_t size, enum what what)
{
    const char *p = (const char *)at;
    if (!fl_emulated_in_kernel) return;
    if (is_in(p, size, fl_emulated_running.stack, fl_emulated_running.stack_bytes)) return;
    if (p >= __ehdr_start && p < _end) look_at_static(p, size, what);
    else if (!is_in(p, size, fl_emulated_running.arguments, fl_emulated_running.argument_bytes))
        look_at_block(p, size, what);
}

void fl_emulated_access(const void *p, size_t size, bool writes)
{
    if (cells) look_at(p, size, writes ? WRITE : READ);
}

void fl_emulated_atomic_access(const void *p, size_t size) { look_at(p, size, ATOMIC); }

/* The sanitizers' own builds have the functions of their libraries. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HOOK extern "C" __attribute__((visibility("hidden")))
#define ACCESSES(size)                                                               \
    HOOK void __tsan_read##size(const void *p) { look_at(p, size, READ); }           \
    HOOK void __tsan_write##size(const void *p) { look_at(p, size, WRITE); }         \
    HOOK void __tsan_unaligned_read##size(const void *p) { look_at(p, size, READ); } \
    HOOK void __tsan_unaligned_write##size(const void *p) { look_at(p, size, WRITE); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
HOOK void __tsan_read_range(const void *p, size_t size) { look_at(p, size, READ); }
HOOK void __tsan_write_range(const void *p, size_t size) { look_at(p, size, WRITE); }

static void begin(void)
{
    size_t bytes = (size_t)(_end - __ehdr_start) * sizeof *cells;
    cells = (cell *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == (cell *)MAP_FAILED) fl_emulated_broken("no memory to find races with");
}

HOOK void __tsan_init(void)
{
    if (!cells) begin();
}

/* As libubsan has them. */
struct place_of_source {
    const char *file;
    uint32_t line, column;
};
struct mismatch {
    place_of_source place;
    const void *type;
    unsigned char alignment_bits, kind;
};

HOOK void __ubsan_handle_type_mismatch_v1(const mismatch *m, uintptr_t address)
{
    if (fl_emulated_in_kernel && address % ((uintptr_t)1 << m->alignment_bits))
        wrong("uses %p at %s:%u, which must be a multiple of %d", (const void *)address, m->place.file, m->place.line,
              1 << m->alignment_bits);
}

struct out_of_bounds {
    place_of_source place;
    const void *array, *index;
};

HOOK void __ubsan_handle_out_of_bounds(const out_of_bounds *m, uintptr_t index)
{
    wrong("uses index %td of a shorter array at %s:%u", (ptrdiff_t)index, m->place.file, m->place.line);
}

/* Atomic accesses are the host's. */
#define ATOMICS(bits)                                                                        \
    HOOK uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int)    \
    {                                                                                        \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                         \
    }                                                                                        \
    HOOK void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t x, int) \
    {                                                                                        \
        __atomic_store_n(p, x, __ATOMIC_SEQ_CST);                                            \
    }
ATOMICS(8)
ATOMICS(32)
ATOMICS(64)
#endif
