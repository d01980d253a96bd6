/*
** test_storage.c -- the caching allocator: classes, reuse, bounds, limbo, errors, scratch.
*/
#define _GNU_SOURCE
#include "check.h"
#include "core/engine/control.h"
#include "core/engine/engine.h"
#include "core/memory/device.h"
#include "core/memory/scratch.h"
#include "core/memory/storage.h"
#include "core/memory/testing.h"
#include "resident.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static fl_storage *take(size_t bytes)
{
    fl_storage *s = NULL;
    CHECK(fl_storage_new(&s, bytes, FL_CPU, -1) == FL_OK);
    return s;
}

static fl_memory_stats stats_now(void)
{
    fl_memory_stats m;
    fl_storage_stats(&m);
    return m;
}

static unsigned random_state = 1;
static size_t random_below(size_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 4) % n;
}

/* ---- blocks ---- */

static void sizes_are_aligned_and_writable(void)
{
    size_t sizes[] = {1,   64,   127,  128,   129,     192, 193,     512,        513,
                      576, 1000, 4096, 65537, MIB - 1, MIB, MIB + 1, 3 * MIB + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fl_storage *s = take(sizes[i]);
        CHECK((uintptr_t)s->data % 64 == 0 && s->bytes == sizes[i] && s->refs == 1);
        CHECK(sizes[i] < 2 * MIB || (uintptr_t)s->data % (2 * MIB) == 0);
        CHECK((s->data == s->small) == (sizes[i] <= FL_STORAGE_INLINE));
        memset(s->data, 1, sizes[i]);
        fl_storage_unref(s);
    }
    fl_storage *empty = take(0);
    CHECK(empty->data == NULL);
    fl_storage_unref(empty);
    fl_storage_unref(NULL);
}

static void rounding_wastes_an_eighth(void)
{
    fl_storage_trim();
    for (int i = 0; i < 300; i++) {
        size_t bytes = 129 + random_below((size_t)1 << (8 + i % 18));
        fl_storage_unref(take(bytes));
        size_t rounded = (size_t)stats_now().cached_bytes;
        CHECK(rounded >= bytes && rounded <= bytes + bytes / 8 + 64);
        fl_storage_trim();
        CHECK(stats_now().cached_bytes == 0);
    }
}

static void blocks_of_a_class_are_reused(void)
{
    size_t pairs[][2] = {{200, 250}, {4000, 4096}, {1000000, 1040000}, {16 * MIB - 7, 16 * MIB}};
    for (size_t i = 0; i < 4; i++) {
        fl_storage *s = take(pairs[i][0]);
        void *data = s->data;
        fl_storage_unref(s);
        int64_t before = stats_now().system_allocations;
        s = take(pairs[i][1]);
        CHECK(s->data == data && stats_now().system_allocations == before);
        fl_storage_unref(s);
    }
}

static void counts_add_up(void)
{
    fl_memory_stats before = stats_now();
    int64_t unaccounted = fl_storage_unaccounted, live = fl_storage_live;
    fl_storage *a = take(1000), *b = take(100), *c = fl_storage_ref(a);
    CHECK(fl_storage_live - live == 1100 && fl_storage_unaccounted - unaccounted >= 1100);
    fl_storage_unref(c);
    fl_memory_stats m = stats_now();
    CHECK(m.live_blocks - before.live_blocks == 2 && m.allocations - before.allocations == 2);
    CHECK(m.live_bytes - before.live_bytes == 1100 && m.peak_bytes >= m.live_bytes);
    fl_storage_unref(a);
    fl_storage_unref(b);
    CHECK(stats_now().live_bytes == before.live_bytes && stats_now().live_blocks == before.live_blocks);
    fl_storage_reset_peak();
    CHECK(stats_now().peak_bytes == stats_now().live_bytes);
}

/* On FL_META the number of bytes is all there is. */
static void meta_storages_have_no_bytes(void)
{
    fl_memory_stats host = stats_now(), before, after;
    int64_t live = fl_storage_live;
    fl_storage *s[3];
    size_t sizes[] = {0, 64, 4096 * GIB};
    fl_storage_meta_stats(&before, false);
    for (int i = 0; i < 3; i++) {
        CHECK(fl_storage_new(&s[i], sizes[i], FL_META, -1) == FL_OK);
        CHECK(!s[i]->data && s[i]->bytes == sizes[i] && s[i]->device == FL_META && !fl_storage_is_deferred(s[i]));
        CHECK(fl_storage_computed_data(s[i]) == NULL && fl_var_readable(&s[i]->var) && fl_var_writable(&s[i]->var));
    }
    fl_storage_meta_stats(&after, false);
    CHECK(after.live_blocks - before.live_blocks == 3
          && after.live_bytes - before.live_bytes == 4096 * (int64_t)GIB + 64);
    CHECK(fl_storage_live == live && stats_now().live_blocks == host.live_blocks);
    fl_var_poison(&s[1]->var, "test");
    for (int i = 0; i < 3; i++) fl_storage_unref(s[i]);
    fl_storage_meta_stats(&after, true);
    CHECK(after.live_blocks == before.live_blocks && after.live_bytes == before.live_bytes);
    CHECK(after.peak_bytes >= 4096 * (int64_t)GIB);
    fl_storage_meta_stats(&after, false);
    CHECK(after.peak_bytes == after.live_bytes && fl_storage_live == live);
    CHECK(stats_now().live_blocks == host.live_blocks && stats_now().allocations == host.allocations);
}

static void a_loop_takes_no_page_faults(void)
{
    if (SANITIZED) SKIP("a sanitizer's shadow memory takes faults of its own");
    struct rusage before, after;
    for (int i = 0; i < 20; i++) {
        if (i == 3) getrusage(RUSAGE_SELF, &before);
        fl_storage *a = take(8 * MIB), *b = take(20 * MIB), *c = take(100000);
        memset(a->data, i, a->bytes), memset(b->data, i, b->bytes), memset(c->data, i, c->bytes);
        fl_storage_unref(a), fl_storage_unref(b), fl_storage_unref(c);
    }
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_minflt - before.ru_minflt < 20);
}

static void temporaries_stay_small(void)
{
    fl_storage *alive[4] = {NULL};
    fl_storage_trim();
    long before = resident_bytes(), most = 0;
    for (int i = 0; i < 1000; i++) {
        fl_storage *s = take(16 * MIB);
        memset(s->data, i, i % 10 ? 4096 : s->bytes);
        fl_storage_unref(alive[i % 4]);
        alive[i % 4] = s;
        long now = resident_bytes();
        if (now > most) most = now;
    }
    for (int i = 0; i < 4; i++) fl_storage_unref(alive[i]);
    CHECK(SANITIZED || most - before < 100 * (long)MIB);
    CHECK(stats_now().cached_bytes <= 100 * (int64_t)MIB);
}

/* The memory held never exceeds the peak by more than an eighth (and another for rounding, and a floor). */
static void changing_sizes_stay_bounded(void)
{
    enum { ALIVE = 8 };
    fl_storage *alive[ALIVE] = {NULL};
    fl_storage_trim();
    fl_storage_reset_peak();
    for (int i = 0; i < 3000; i++) {
        fl_storage **s = &alive[random_below(ALIVE)];
        fl_storage_unref(*s);
        *s = take(1 + random_below(random_below(3) ? 32 * MIB : 100000));
        fl_memory_stats m = stats_now();
        CHECK(m.live_bytes + m.cached_bytes < m.peak_bytes * 81 / 64 + 64 * (int64_t)MIB);
    }
    for (int i = 0; i < ALIVE; i++) fl_storage_unref(alive[i]);
}

static void the_peak_is_forgotten(void)
{
    fl_storage_trim();
    fl_storage *big = take(512 * MIB), *kept = take(64 * MIB);
    fl_storage_unref(big);
    CHECK(stats_now().cached_bytes >= 512 * (int64_t)MIB);
    for (int i = 0; i < 5000; i++) fl_storage_unref(take(16 * MIB));
    CHECK(stats_now().cached_bytes <= 80 * (int64_t)MIB);
    fl_storage_unref(kept);
}

/* ---- limbo ---- */

static int get(int *place) { return __atomic_load_n(place, __ATOMIC_SEQ_CST); }

typedef struct job {
    int *gate;
    unsigned char *data;
    size_t bytes;
    int value, ms;
} job;
static fl_status op_fill(void *payload)
{
    job *j = payload;
    for (int i = 0; j->gate && i < 5000 && !get(j->gate); i++) usleep(1000);
    if (j->ms) usleep((useconds_t)j->ms * 1000);
    for (size_t i = 0; i < j->bytes; i++) {
        if (i && j->data[i - 1] != j->value) return fl_fail(FL_ERR_STATE, "fill: somebody else wrote here");
        j->data[i] = (unsigned char)j->value;
    }
    return FL_OK;
}

static void push_fill(const job *j, fl_storage *s)
{
    fl_var *writes[] = {&s->var};
    fl_task t = {.name = "fill",
                 .run = op_fill,
                 .payload = j,
                 .payload_size = sizeof *j,
                 .writes = writes,
                 .write_count = 1,
                 .lane = FL_LANE_IO};
    CHECK(fl_engine_push(&t) == FL_OK);
}

static void dropped_while_queued_waits_in_limbo(void)
{
    int gate = 0;
    fl_storage *queued[2] = {take(5000), take(100)};
    void *data[2] = {queued[0]->data, queued[1]->data};
    for (int i = 0; i < 2; i++) {
        job j = {&gate, queued[i]->data, queued[i]->bytes, 7 + i, 0};
        push_fill(&j, queued[i]);
        fl_storage_unref(queued[i]);
    }
    CHECK(stats_now().limbo_bytes == 5100);
    fl_storage *others[200];
    for (int i = 0; i < 200; i++) {
        others[i] = take(i % 2 ? 5000 : 100);
        CHECK(others[i]->data != data[0] && others[i]->data != data[1]);
        memset(others[i]->data, 1, others[i]->bytes);
    }
    __atomic_store_n(&gate, 1, __ATOMIC_SEQ_CST);
    CHECK(fl_engine_wait_all() == FL_OK);
    CHECK(stats_now().limbo_bytes == 0);
    fl_storage *again = take(5000);
    CHECK(again->data == data[0] && fl_var_writable(&again->var) && again->var.version == 0);
    fl_storage_unref(again);
    for (int i = 0; i < 200; i++) fl_storage_unref(others[i]);
}

static void limbo_is_bounded(void)
{
    for (int i = 0; i < 60; i++) {
        fl_storage *s = take(16 * MIB);
        job j = {NULL, s->data, 100, i, 2};
        push_fill(&j, s);
        fl_storage_unref(s);
        CHECK(stats_now().limbo_bytes <= 80 * (int64_t)MIB);
    }
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void random_drops_while_queued(void)
{
    for (int i = 0; i < 3000; i++) {
        fl_storage *s = take(1 + random_below(3000));
        job j = {NULL, s->data, s->bytes, i % 250 + 1, 0};
        push_fill(&j, s);
        if (i % 3 == 0) {
            CHECK(fl_engine_wait_var(&s->var) == FL_OK);
            CHECK(*(unsigned char *)s->data == i % 250 + 1);
        }
        fl_storage_unref(s);
    }
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void poison_goes_with_its_storage(void)
{
    fl_storage *s = take(10), *t = take(1000);
    fl_fail(FL_ERR_VALUE, "bad");
    fl_var_poison(&s->var, "add");
    fl_var_poison(&t->var, "add");
    fl_storage_unref(s), fl_storage_unref(t);
    s = take(10), t = take(1000);
    CHECK(fl_engine_wait_var(&s->var) == FL_OK && fl_engine_wait_var(&t->var) == FL_OK);
    fl_storage_unref(s), fl_storage_unref(t);
}

/* ---- errors ---- */

static const char *script_line = "train.lua:41";
static void here(char *buffer, size_t size) { snprintf(buffer, size, "%s", script_line); }

static void impossible_sizes_are_errors(void)
{
    fl_storage *s = NULL;
    fl_storage_trim();
    int64_t live = fl_storage_live;
    CHECK(live == 0);
    CHECK(fl_storage_new(&s, SIZE_MAX, FL_CPU, -1) == FL_ERR_MEMORY);
    CHECK_TEXT(fl_message(), "out of memory: 16.0 EiB asked for, 0 bytes live in 0 blocks");
    CHECK(fl_storage_new(&s, (size_t)1 << 62, FL_CPU, -1) == FL_ERR_MEMORY);
    CHECK_TEXT(fl_message(), "out of memory: 4.0 EiB asked for, 0 bytes live in 0 blocks");
    CHECK(fl_storage_new(&s, (size_t)1 << 45, FL_CPU, -1) == FL_ERR_MEMORY);
    CHECK_TEXT(fl_message(), "out of memory: 32.0 TiB asked for, 0 bytes live in 0 blocks");
    CHECK(s == NULL && fl_storage_live == live);
}

static void errors_name_who_holds_the_most(void)
{
    fl_storage *held[5], *s = NULL;
    const char *lines[] = {"a.lua:1", "b.lua:2", "a.lua:1", "some/very/long/folder/name/of/model.lua:305", NULL};
    size_t sizes[] = {3 * MIB, 4 * MIB, 3 * MIB, 2 * MIB, 1000};
    for (int i = 0; i < 5; i++) {
        script_line = lines[i];
        fl_engine_where = lines[i] ? here : NULL;
        held[i] = take(sizes[i]);
    }
    fl_engine_where = NULL;
    CHECK(fl_storage_new(&s, (size_t)1 << 50, FL_CPU, -1) == FL_ERR_MEMORY);
    CHECK_TEXT(fl_message(),
               "out of memory: 1.0 PiB asked for, 12.0 MiB live in 5 blocks; most by a.lua:1 (6.0 MiB), "
               "b.lua:2 (4.0 MiB), ng/folder/name/of/model.lua:305 (2.0 MiB)");
    for (int i = 0; i < 5; i++) fl_storage_unref(held[i]);
}

static fl_storage *garbage[4];
static int collections;
static void collect_garbage(void)
{
    collections++;
    for (int i = 0; i < 4; i++) {
        fl_storage_unref(garbage[i]);
        garbage[i] = NULL;
    }
}

/* Under a limit of the address space: cached and garbage blocks make room, then it is an error. */
static int limited_child(void)
{
    fl_storage *s = NULL;
    struct rlimit limit;
    fl_storage_trim();
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = GIB + 300 * MIB;
    if (setrlimit(RLIMIT_AS, &limit)) return 1;
    fl_storage_unref(take(500 * MIB)); /* cached, must go */
    for (int i = 0; i < 4; i++) garbage[i] = take(150 * MIB);
    if (fl_storage_new(&s, 900 * MIB, FL_CPU, -1) != FL_ERR_MEMORY) return 2;
    if (!strstr(fl_message(), "900.0 MiB asked for, 600.0 MiB live in 4 blocks")) return 3;
    fl_storage_collect = collect_garbage;
    if (fl_storage_new(&s, 900 * MIB, FL_CPU, -1) != FL_OK || collections != 1) return 4;
    fl_storage_unref(s);
    if (fl_storage_new(&s, 2 * GIB, FL_CPU, -1) != FL_ERR_MEMORY || collections != 2) return 5;
    fl_storage *small[64];
    for (int i = 0; i < 64; i++) /* and the program goes on */
        if (fl_storage_new(&small[i], 1000 * (size_t)i, FL_CPU, -1) != FL_OK) return 6;
    return 0;
}

static void a_memory_limit_is_an_error(void)
{
    if (SANITIZED) SKIP("sanitizers need an unlimited address space");
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(limited_child());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0 || !printf("the child says %d\n", WEXITSTATUS(status)));
}

/* ---- devices ---- */

static int device_blocks, device_trims, device_lane;
static fl_status fake_allocate(void **data, size_t bytes, int index, fl_queue queue)
{
    if (index != 1) return fl_fail(FL_ERR_MISSING, "fake: there is no device %d", index);
    if (bytes > 4 * MIB) return fl_fail(FL_ERR_MEMORY, "fake: out of memory");
    device_blocks++;
    *data = malloc(bytes + 1);
    return FL_OK;
}
static void fake_release(void *data, size_t bytes, int index, fl_queue queue)
{
    device_blocks -= index == 1;
    free(data);
}
static void fake_trim(int index) { device_trims += index == 1; }
static int fake_lane(int index, fl_queue queue) { return device_lane; }

/* A stream on which everything is complete at once. */
static fl_status stream_record(void *stream, int event) { return FL_OK; }
static bool stream_reached(void *stream, int event) { return true; }
static fl_status stream_errors(void *stream) { return FL_OK; }
static fl_status stream_follow(void *stream, void *other, int event) { return FL_OK; }

static void devices_give_and_take_memory(void)
{
    static const fl_stream_ops stream = {stream_record, stream_reached, stream_errors, stream_follow, NULL, NULL};
    static const fl_device fake = {.name = "fake",
                                   .count = 2,
                                   .own = 1,
                                   .allocate = fake_allocate,
                                   .release = fake_release,
                                   .trim = fake_trim,
                                   .lane = fake_lane};
    fl_storage *s = NULL;
    CHECK(fl_engine_stream_new(&device_lane, "fake", NULL, &stream) == FL_OK);
    fl_device_register(&fake);
    CHECK(fl_storage_new(&s, 64, FL_CUDA, 7) == FL_ERR_MISSING && s == NULL);
    CHECK_TEXT(fl_message(), "fake: there is no device 7");
    CHECK(fl_storage_new(&s, 5 * MIB, FL_CUDA, -1) == FL_ERR_MEMORY && s == NULL && device_trims == 1);
    CHECK(fl_storage_new(&s, 3 * MIB, FL_CUDA, -1) == FL_OK && device_blocks == 1);
    CHECK(s->device == FL_CUDA && s->device_index == 1);
    fl_storage_unref(s);
    CHECK(device_blocks == 0);
    fl_device_register(NULL);
}

/* ---- scratch ---- */

static void *use_scratch(void *mine)
{
    unsigned char *a = fl_scratch(0, 100000), *b = fl_scratch(1, 3 * MIB);
    CHECK(a && b && a != b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    memset(a, *(int *)mine, 100000);
    memset(b, 99, 3 * MIB);
    usleep(1000);
    for (int i = 0; i < 100000; i++)
        if (a[i] != *(int *)mine) return NULL;
    return fl_scratch(0, 50) == a ? mine : NULL;
}

static void scratch_belongs_to_a_thread(void)
{
    pthread_t threads[4];
    int ids[] = {1, 2, 3, 4}, own = 9;
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, use_scratch, &ids[i]) == 0);
    CHECK(use_scratch(&own) == &own);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result == &ids[i]);
    }
    CHECK(fl_scratch(3, 0) != NULL && fl_scratch(2, SIZE_MAX) == NULL);
}

static void sanitizer_sees_the_ends(void)
{
#if defined(__SANITIZE_ADDRESS__)
    size_t sizes[] = {8, 100, 128, 136, 1024, 5 * MIB, 16 * MIB};
    for (int i = 0; i < 7; i++) {
        fl_storage *s = take(sizes[i]);
        char *data = s->data;
        CHECK(!__asan_address_is_poisoned(data + sizes[i] - 1));
        CHECK(sizes[i] == FL_STORAGE_INLINE || __asan_address_is_poisoned(data + sizes[i] + 8));
        fl_storage_unref(s);
        CHECK(sizes[i] <= FL_STORAGE_INLINE || __asan_address_is_poisoned(data + 100));
    }
#else
    SKIP("no AddressSanitizer in this build");
#endif
}

static void everything_is_returned(void)
{
    fl_engine_stop();
    CHECK(stats_now().live_blocks == 0 && stats_now().live_bytes == 0 && stats_now().limbo_bytes == 0);
    fl_storage_shutdown();
    CHECK(stats_now().cached_bytes == 0);
    fl_storage_unref(take(5000)); /* and it starts again */
    fl_storage_shutdown();
}

int main(void)
{
    alarm(300);
    RUN(sizes_are_aligned_and_writable);
    RUN(rounding_wastes_an_eighth);
    RUN(blocks_of_a_class_are_reused);
    RUN(counts_add_up);
    RUN(meta_storages_have_no_bytes);
    RUN(a_loop_takes_no_page_faults);
    RUN(temporaries_stay_small);
    RUN(changing_sizes_stay_bounded);
    RUN(the_peak_is_forgotten);
    RUN(dropped_while_queued_waits_in_limbo);
    RUN(limbo_is_bounded);
    RUN(random_drops_while_queued);
    RUN(poison_goes_with_its_storage);
    RUN(impossible_sizes_are_errors);
    RUN(errors_name_who_holds_the_most);
    RUN(a_memory_limit_is_an_error);
    RUN(devices_give_and_take_memory);
    RUN(scratch_belongs_to_a_thread);
    RUN(sanitizer_sees_the_ends);
    RUN(everything_is_returned);
    return finish();
}
