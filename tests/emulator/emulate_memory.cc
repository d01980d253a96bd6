/*
** emulate_memory.cc -- the memory of emulated GPUs: an access from the wrong side ends the process with a message.
**
** Each block ends where its last page ends, as far as its alignment allows, between two pages without access rights;
** what its pages hold besides has a pattern that is looked at when the block is freed (with AddressSanitizer it is
** poisoned). Freed pages stay untouchable for a while. Device memory has a protection key (pkeys(7)), where the CPU has
** them: a thread may touch it only while it runs a kernel or a copy.
*/
#include "emulate_parts.h"

#include <deque>
#include <map>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { PAGE = 4096, ALIGNMENT = 512, PATTERN = 0xa5, FREED = 256 };

/* The pages of a block, without the two around them. */
struct pages {
    char *start, *end;
};

struct freed_block {
    const char *start;
    fl_emulated_memory memory;
    pages where;
};

static std::map<const char *, fl_emulated_memory> &blocks = *new std::map<const char *, fl_emulated_memory>();
static std::map<int, int64_t> &used = *new std::map<int, int64_t>();
static std::deque<freed_block> &freed = *new std::deque<freed_block>(); /* the last FREED ones */
static int key = -1; /* of device memory; -1: there are no keys here */

static size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static pages pages_of(const char *start, size_t bytes)
{
    pages p = {(char *)((uintptr_t)start / PAGE * PAGE), (char *)start + round_up(bytes ? bytes : 1, ALIGNMENT)};
    return p;
}

const fl_emulated_memory *fl_emulated_memory_find(const void *address, size_t *left)
{
    std::map<const char *, fl_emulated_memory>::iterator i = blocks.upper_bound((const char *)address);
    if (i == blocks.begin()) return NULL;
    --i;
    size_t offset = (size_t)((const char *)address - i->first);
    if (offset >= i->second.bytes && offset > 0) return NULL;
    *left = i->second.bytes - offset;
    return &i->second;
}

int64_t fl_emulated_memory_used(int device) { return used[device]; }

/* ---- rights ---- */

fl_emulated_rights::fl_emulated_rights(bool open)
{
    before = key < 0 ? 0 : pkey_get(key);
    if (key >= 0) pkey_set(key, open ? 0 : PKEY_DISABLE_ACCESS);
}

fl_emulated_rights::~fl_emulated_rights()
{
    if (key >= 0) pkey_set(key, (unsigned)before);
}

/* ---- faults ---- */

static struct sigaction otherwise;

static void describe_memory(const fl_emulated_memory &m, char *text, size_t size)
{
    if (m.device < 0) snprintf(text, size, "pinned memory, %zu bytes", m.bytes);
    else snprintf(text, size, "a block of %zu bytes of GPU %d", m.bytes, m.device);
}

void fl_emulated_memory_explain(const void *at)
{
    const char *address = (const char *)at;
    char what[96], place[160];
    fl_emulated_place(place, sizeof place);
    for (const freed_block &f : freed)
        if (address >= f.where.start - PAGE && address < f.where.end + PAGE) {
            describe_memory(f.memory, what, sizeof what);
            fl_emulated_broken("%s: touches byte %td of what was %s and is freed", place, address - f.start, what);
        }
    for (const std::pair<const char *const, fl_emulated_memory> &b : blocks) {
        pages p = pages_of(b.first, b.second.bytes);
        if (address < p.start - PAGE || address >= p.end + PAGE) continue;
        describe_memory(b.second, what, sizeof what);
        bool inside = address >= b.first && address < b.first + b.second.bytes;
        if (inside)
            fl_emulated_broken("%s: host code touches device memory: byte %td of %s", place, address - b.first, what);
        fl_emulated_broken("%s: touches byte %td of %s", place, address - b.first, what);
    }
}

/* Explains a fault of device memory; then the access faults again, with the handler that was there before. */
static void on_fault(int number, siginfo_t *info, void *)
{
    fl_emulated_memory_explain(info->si_addr);
    sigaction(number, &otherwise, NULL);
}

static void begin_once(void)
{
    static bool begun;
    if (begun) return;
    begun = true;
    key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &otherwise);
}

/* ---- blocks ---- */

#ifdef __SANITIZE_ADDRESS__
static void close_rest(const pages &p, const char *start, size_t bytes)
{
    __asan_poison_memory_region(p.start, (size_t)(start - p.start));
    __asan_poison_memory_region(start + bytes, (size_t)(p.end - start) - bytes);
}
static void check_rest(const pages &p, const char *, size_t)
{
    __asan_unpoison_memory_region(p.start, (size_t)(p.end - p.start));
}
#else
static void close_rest(const pages &p, char *start, size_t bytes)
{
    memset(p.start, PATTERN, (size_t)(start - p.start));
    memset(start + bytes, PATTERN, (size_t)(p.end - start) - bytes);
}

static void check_rest(const pages &p, const char *start, size_t bytes)
{
    for (const char *at = p.start; at < p.end; at++) {
        if (at == start) at += bytes;
        if (at < p.end && (unsigned char)*at != PATTERN)
            fl_emulated_broken("a block of %zu bytes is freed, and byte %td of it was written", bytes, at - start);
    }
}
#endif

void *fl_emulated_memory_new(size_t bytes, int device)
{
    begin_once();
    fl_emulated_rights open(true);
    size_t room = round_up(bytes ? bytes : 1, ALIGNMENT), whole = round_up(room, PAGE);
    char *map = (char *)mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == (char *)MAP_FAILED) return NULL;
    if (pkey_mprotect(map + PAGE, whole, PROT_READ | PROT_WRITE, device < 0 ? -1 : key)) {
        munmap(map, whole + 2 * PAGE);
        return NULL;
    }
    char *start = map + PAGE + whole - room;
    close_rest(pages_of(start, bytes), start, bytes);
    blocks[start] = {bytes, device};
    used[device] += (int64_t)bytes;
    return start;
}

static void let_go(const freed_block &f)
{
    munmap(f.where.start - PAGE, (size_t)(f.where.end - f.where.start) + 2 * PAGE);
}

void fl_emulated_memory_free(void *data)
{
    fl_emulated_rights open(true);
    std::map<const char *, fl_emulated_memory>::iterator i = blocks.find((const char *)data);
    if (i == blocks.end()) fl_emulated_broken("%p is freed, but it is not the start of a block", data);
    freed_block f = {i->first, i->second, pages_of(i->first, i->second.bytes)};
    check_rest(f.where, f.start, f.memory.bytes);
    used[f.memory.device] -= (int64_t)f.memory.bytes;
    blocks.erase(i);
    fl_emulated_forget_blocks();
    madvise(f.where.start, (size_t)(f.where.end - f.where.start), MADV_DONTNEED);
    mprotect(f.where.start, (size_t)(f.where.end - f.where.start), PROT_NONE);
    freed.push_back(f);
    if (freed.size() <= FREED) return;
    let_go(freed.front());
    freed.pop_front();
}
