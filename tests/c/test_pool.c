/*
** test_pool.c -- the pool of the data layer: every item once, seats of one thread each, the first error, several jobs
** at a time, a stop, a fork; and the source of files.
*/
#define _GNU_SOURCE
#include "lanes.h"
#include "core/data/pool.h"
#include "core/data/source.h"
#include "core/data/testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { ITEMS = 1000 };

struct work {
    int done[ITEMS], seats[8];
    int64_t bad, worse; /* items that fail; -1: none */
    bool busy_twice;
};

static fl_status work_item(void *context, int64_t item, int seat)
{
    struct work *w = context;
    if (__atomic_add_fetch(&w->seats[seat], 1, __ATOMIC_SEQ_CST) != 1) w->busy_twice = true;
    __atomic_add_fetch(&w->done[item], 1, __ATOMIC_SEQ_CST);
    if (item == w->bad) sleep_ms(5); /* the later one fails first */
    __atomic_sub_fetch(&w->seats[seat], 1, __ATOMIC_SEQ_CST);
    if (item == w->bad || item == w->worse) return fl_fail(FL_ERR_IO, "item %d is bad", (int)item);
    return FL_OK;
}

static void every_item_once(void)
{
    for (int workers = 0; workers <= 8; workers++) {
        struct work w = {.bad = -1, .worse = -1};
        CHECK(fl_pool_run(ITEMS, workers, work_item, &w) == FL_OK);
        int wrong = 0;
        for (int i = 0; i < ITEMS; i++) wrong += w.done[i] != 1;
        CHECK(wrong == 0);
        CHECK(!w.busy_twice);
    }
    CHECK(fl_pool_threads() == 7);
    CHECK(fl_pool_run(0, 4, work_item, NULL) == FL_OK);
}

static void the_first_error_is_the_result(void)
{
    for (int round = 0; round < 20; round++) {
        struct work w = {.bad = 100, .worse = 101};
        CHECK(fl_pool_run(ITEMS, 4, work_item, &w) == FL_ERR_IO);
        CHECK_TEXT(fl_message(), "item 100 is bad");
        int before = 0;
        for (int i = 0; i <= 100; i++) before += w.done[i];
        CHECK(before == 101);
    }
}

static void nothing_is_begun_after_an_error(void)
{
    struct work w = {.bad = 100, .worse = -1};
    CHECK(fl_pool_run(ITEMS, 1, work_item, &w) == FL_ERR_IO);
    int done = 0;
    for (int i = 0; i < ITEMS; i++) done += w.done[i];
    CHECK(done == 101);
}

static void *run_job(void *context) { return fl_pool_run(ITEMS, 3, work_item, context) == FL_OK ? NULL : context; }

static void jobs_at_the_same_time(void)
{
    struct work w[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (struct work){.bad = -1, .worse = -1};
        pthread_create(&threads[i], NULL, run_job, &w[i]);
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        CHECK(!failed);
        CHECK(!w[i].busy_twice);
    }
}

static fl_status slow_item(void *context, int64_t item, int seat)
{
    sleep_ms(10);
    __atomic_add_fetch((int *)context, 1, __ATOMIC_SEQ_CST);
    return FL_OK;
}

static fl_status op_batch(void *payload) { return fl_pool_run(ITEMS, 2, slow_item, *(int **)payload); }

static void a_stop_cancels(void)
{
    static int done;
    int *place = &done;
    fl_var v = {0};
    fl_pool_task task = {"batch", op_batch, &place, sizeof place, NULL, (fl_var *[]){&v}, 0, 1};
    CHECK(fl_pool_push(&task) == FL_OK);
    while (get(&done) == 0) sleep_ms(1);
    CHECK(fl_engine_stop());
    CHECK(done < ITEMS);
    CHECK(fl_engine_wait_var(&v) == FL_ERR_STATE);
    CHECK_TEXT(fl_message(), "batch: cancelled");
    fl_var_clear(&v);
}

static void a_child_has_a_pool_of_its_own(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer lets no child of a process with threads start one");
#endif
    pid_t child = fork();
    if (child == 0) {
        struct work w = {.bad = -1, .worse = -1};
        _exit(fl_pool_threads() == 0 && fl_pool_run(ITEMS, 3, work_item, &w) == FL_OK && !w.busy_twice ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void threads_end(void)
{
    for (int turn = 0; turn < 3; turn++) {
        struct work w = {.bad = -1, .worse = -1};
        fl_pool_stop();
        CHECK(fl_pool_threads() == 0);
        CHECK(fl_pool_run(ITEMS, 4, work_item, &w) == FL_OK && fl_pool_threads() == 3 && !w.busy_twice);
    }
}

static void files_are_a_source(void)
{
    char folder[] = "/tmp/flowlua-source-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/a", folder);
    FILE *file = fopen(path, "wb");
    fputs("hello", file);
    fclose(file);
    const char *names[] = {"a", "missing"};
    int64_t labels[] = {3, 4};
    fl_item_source *source;
    fl_item item = {0};
    CHECK(fl_files_source_new(&source, "images", folder, names, labels, 2) == FL_OK);
    CHECK(source->count == 2);
    CHECK(fl_item_source_read(source, &item, 0) == FL_OK);
    CHECK(item.size == 5 && !memcmp(item.bytes, "hello", 5) && item.has_label && item.label == 3);
    CHECK_TEXT(item.name, path);
    CHECK(fl_item_source_read(source, &item, 1) == FL_ERR_IO);
    char wanted[128];
    snprintf(wanted, sizeof wanted, "images: %s/missing: No such file or directory", folder);
    CHECK_TEXT(fl_message(), wanted);
    fl_item_close(&item);
    fl_item_source_free(source);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    RUN(every_item_once);
    RUN(the_first_error_is_the_result);
    RUN(nothing_is_begun_after_an_error);
    RUN(jobs_at_the_same_time);
    RUN(a_stop_cancels);
    RUN(a_child_has_a_pool_of_its_own);
    RUN(threads_end);
    RUN(files_are_a_source);
    return finish();
}
