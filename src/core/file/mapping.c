/*
** mapping.c -- files as memory (see mapping.h).
**
** The handler walks a list of ranges that is only ever added to: a range whose file is closed is taken again by the
** next one, so nothing the handler may be looking at is freed.
*/
#include "mapping.h"
#include "open.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct fl_mapped_range { /* all but `next` is atomic */
    uintptr_t start;     /* 0: free */
    size_t size;         /* whole pages */
    bool broken, writable;
    fl_var *var;       /* borrowed: is lost with the file; NULL: none */
    fl_poison *poison; /* borrowed; set before var */
    struct fl_mapped_range *next;
};

static struct fl_mapped_range *ranges; /* atomic */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static uintptr_t page_size;

static struct fl_mapped_range *range_of(uintptr_t at)
{
    for (struct fl_mapped_range *r = __atomic_load_n(&ranges, __ATOMIC_ACQUIRE); r; r = r->next) {
        uintptr_t start = __atomic_load_n(&r->start, __ATOMIC_ACQUIRE);
        if (start && at >= start && at - start < __atomic_load_n(&r->size, __ATOMIC_RELAXED)) return r;
    }
    return NULL;
}

/* Zeros from the page of `at` to the end of the range. */
static bool put_zeros(struct fl_mapped_range *range, uintptr_t at)
{
    uintptr_t page = at & ~(page_size - 1), end = range->start + range->size;
    fl_var *var = __atomic_load_n(&range->var, __ATOMIC_ACQUIRE);
    int access = PROT_READ | (__atomic_load_n(&range->writable, __ATOMIC_RELAXED) ? PROT_WRITE : 0);
    __atomic_store_n(&range->broken, true, __ATOMIC_RELEASE);
    if (var) fl_var_lose(var, __atomic_load_n(&range->poison, __ATOMIC_RELAXED));
    return mmap((void *)page, end - page, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int error = errno;
    uintptr_t at = (uintptr_t)info->si_addr;
    struct fl_mapped_range *range = info->si_code == BUS_ADRERR ? range_of(at) : NULL;
    if (range && put_zeros(range, at)) {
        errno = error;
        return;
    }
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else sigaction(number, &before, NULL); /* the instruction runs again, and now ends the process */
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, NULL, &before);
    sigaction(SIGBUS, &action, NULL);
}

static struct fl_mapped_range *range_new(uintptr_t start, size_t size, bool writable)
{
    struct fl_mapped_range *r;
    pthread_mutex_lock(&lock);
    for (r = ranges; r && r->start; r = r->next) {}
    if (!r && (r = calloc(1, sizeof *r))) {
        r->next = ranges;
        __atomic_store_n(&ranges, r, __ATOMIC_RELEASE);
    }
    if (r) {
        __atomic_store_n(&r->broken, false, __ATOMIC_RELAXED);
        __atomic_store_n(&r->writable, writable, __ATOMIC_RELAXED);
        __atomic_store_n(&r->size, size, __ATOMIC_RELAXED);
        __atomic_store_n(&r->start, start, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return r;
}

static fl_status map_file(fl_mapping *out, int fd, int64_t size, bool writable, const char *who, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    size_t pages = ((size_t)size + page_size - 1) & ~(page_size - 1);
    int access = PROT_READ | (writable ? PROT_WRITE : 0);
    void *data = mmap(NULL, pages, access, writable ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return fl_fail(FL_ERR_IO, "%s: %s: %s", who, path, strerror(errno));
    struct fl_mapped_range *range = range_new((uintptr_t)data, pages, writable);
    if (!range) {
        munmap(data, pages);
        return fl_fail(FL_ERR_MEMORY, "%s: out of memory", who);
    }
    *out = (fl_mapping){data, size, range};
    return FL_OK;
}

fl_status fl_mapping_open(fl_mapping *out, const char *who, const char *path)
{
    static const unsigned char nothing[1];
    int fd;
    int64_t size;
    fl_status status = FL_OK;
    FL_TRY(fl_file_open(&fd, &size, who, path));
    if (size == 0) *out = (fl_mapping){nothing, 0, NULL};
    else status = map_file(out, fd, size, false, who, path);
    close(fd); /* the mapping keeps the file */
    return status;
}

fl_status fl_mapping_open_copy(fl_mapping *out, int fd, int64_t size, const char *who, const char *path)
{
    return map_file(out, fd, size, true, who, path);
}

void fl_mapping_watch(fl_mapping *mapping, fl_var *var, fl_poison *poison)
{
    __atomic_store_n(&mapping->range->poison, poison, __ATOMIC_RELAXED);
    __atomic_store_n(&mapping->range->var, var, __ATOMIC_RELEASE);
}

bool fl_mapping_is_watched(const void *data)
{
    const struct fl_mapped_range *range = range_of((uintptr_t)data);
    return range && __atomic_load_n(&range->var, __ATOMIC_ACQUIRE);
}

bool fl_mapping_broken(const fl_mapping *mapping)
{
    return mapping->range && __atomic_load_n(&mapping->range->broken, __ATOMIC_ACQUIRE);
}

void fl_mapping_close(fl_mapping *mapping)
{
    if (mapping->range) {
        size_t size = mapping->range->size;
        __atomic_store_n(&mapping->range->var, NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&mapping->range->start, 0, __ATOMIC_RELEASE);
        munmap((void *)(uintptr_t)mapping->data, size);
    }
    *mapping = (fl_mapping){0};
}
