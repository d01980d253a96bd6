/*
** test_engine.c -- the engine: its order, its bounds, its profile and its end.
**
** `test_engine --exit` is the program that one test starts: it ends with ops queued.
*/
#define _GNU_SOURCE
#include "lanes.h"
#include "resident.h"
#include "threads.h"
#include "core/engine/team.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
enum { UNDER_TSAN = 1, MANY = 100000 };
#else
enum { UNDER_TSAN = 0, MANY = 1000000 };
#endif

static const char *program;

/* ---- order ---- */

static fl_status op_meet(void *payload)
{
    int *arrived = *(int **)payload;
    __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 5000 && get(arrived) < 2; i++) sleep_ms(1);
    return get(arrived) == 2 ? FL_OK : fl_fail(FL_ERR_STATE, "meet: alone");
}

static void readers_overlap(void)
{
    fl_var v = {0};
    int arrived = 0, *place = &arrived;
    push_nothing(threaded[0], 0, NO_VARS, VARS(&v));
    push("meet", threaded[0], 0, op_meet, &place, sizeof place, VARS(&v), NO_VARS);
    push("meet", threaded[1], 0, op_meet, &place, sizeof place, VARS(&v), NO_VARS);
    CHECK(fl_engine_wait_all() == FL_OK);
}

typedef struct append {
    int *list, *length, value;
} append;
static fl_status op_append(void *payload)
{
    append *a = payload;
    if (a->value % 7 == 0) sleep_ms(1);
    a->list[(*a->length)++] = a->value;
    return FL_OK;
}

static void writers_keep_order(void)
{
    enum { N = 100 };
    int list[N], length = 0;
    fl_var v = {0};
    for (int i = 0; i < N; i++) {
        append a = {list, &length, i};
        push("append", i % 5 == 4 ? driven[0] : threaded[i * 7 % THREADED], i % 3 ? FL_TASK_CHEAP : 0, op_append, &a,
             sizeof a, NO_VARS, VARS(&v));
    }
    CHECK(fl_engine_wait_var(&v) == FL_OK);
    CHECK(length == N);
    for (int i = 0; i < length; i++) CHECK(list[i] == i);
}

static void push_append(int lane, int *list, int *length, int value, vars reads, vars writes)
{
    append a = {list, length, value};
    CHECK(push("append", lane, 0, op_append, &a, sizeof a, reads, writes) == FL_OK);
}

/* A gate keeps the thread of the lanes busy while tasks are queued, the last of them first. */
static void first_tasks_that_can_run_go_by_priority(void)
{
    enum { FIRST, MIDDLE, LAST };
    static const int want[] = {10, 11, 20, 21, 30, 12, 31, 13, 22};
    int list[16], length = 0, gate = 0, other_gate = 0;
    fl_var last = {0}, seventh = {0}, other = {0}, end = {0};
    push_gate(threaded[0], &other_gate, NO_VARS, VARS(&other));
    push_gate(shared[MIDDLE], &gate, NO_VARS, NO_VARS);
    sleep_ms(20);
    push_append(shared[LAST], list, &length, 30, NO_VARS, VARS(&last));
    push_append(shared[LAST], list, &length, 31, NO_VARS, VARS(&seventh));
    push_append(shared[MIDDLE], list, &length, 20, NO_VARS, NO_VARS);
    push_append(shared[MIDDLE], list, &length, 21, NO_VARS, NO_VARS);
    push_append(shared[FIRST], list, &length, 10, NO_VARS, NO_VARS);
    push_append(shared[FIRST], list, &length, 11, NO_VARS, NO_VARS);
    push_append(shared[FIRST], list, &length, 12, VARS(&last), NO_VARS); /* after what it reads, though that is last */
    push_append(shared[FIRST], list, &length, 13, VARS(&other), VARS(&end)); /* waits, and keeps nobody waiting */
    set(&gate, 1);
    CHECK(fl_engine_wait_var(&seventh) == FL_OK && length == 7);
    push_append(shared[MIDDLE], list, &length, 22, VARS(&end), NO_VARS);
    set(&other_gate, 1);
    CHECK(fl_engine_wait_all() == FL_OK);
    CHECK(length == (int)(sizeof want / sizeof *want) && !memcmp(list, want, sizeof want));
}

static void write_waits_for_readers(void)
{
    fl_var v = {0}, other = {0};
    int gate = 0, value = 1, *place = &value;
    push_nothing(threaded[0], 0, NO_VARS, VARS(&v));
    push_gate(threaded[1], &gate, VARS(&v), VARS(&other));
    push("count", threaded[2], FL_TASK_CHEAP, op_count, &place, sizeof place, NO_VARS, VARS(&v));
    sleep_ms(20);
    CHECK(get(&value) == 1);
    set(&gate, 1);
    CHECK(fl_engine_wait_var(&v) == FL_OK);
    CHECK(get(&value) == 2);
}

static void diamond_across_lanes(void)
{
    for (int round = 0; round < 50; round++) {
        int list[8], length = 0;
        fl_var top = {0}, left = {0}, right = {0};
        append a = {list, &length, 0}, b = {list, &length, 3};
        int ms = round % 3;
        push("append", threaded[0], 0, op_append, &a, sizeof a, NO_VARS, VARS(&top));
        push("sleep", driven[0], 0, op_sleep, &ms, sizeof ms, VARS(&top), VARS(&left));
        push("sleep", threaded[2], 0, op_sleep, &ms, sizeof ms, VARS(&top), VARS(&right));
        push("append", threaded[3], 0, op_append, &b, sizeof b, VARS(&left, &right), VARS(&top));
        CHECK(fl_engine_wait_var(&top) == FL_OK);
        CHECK(length == 2 && list[0] == 0 && list[1] == 3);
    }
}

static void wait_var_waits_for_its_writer_only(void)
{
    fl_var v = {0}, other = {0};
    int gate = 0, done = 0, *place = &done, ms = 30;
    push("sleep", threaded[0], 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&v));
    push("count", threaded[0], 0, op_count, &place, sizeof place, NO_VARS, VARS(&v));
    push_gate(threaded[1], &gate, VARS(&v), VARS(&other));
    CHECK(fl_engine_wait_var(&v) == FL_OK);
    CHECK(get(&done) == 1);
    CHECK(!fl_var_settle(&v));
    CHECK(fl_var_readable(&v) && !fl_var_writable(&v));
    set(&gate, 1);
    fl_engine_wait_idle(&v);
    CHECK(fl_var_settle(&v) && fl_var_writable(&v));
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void fresh_variable_is_ready(void)
{
    fl_var v = {0};
    CHECK(fl_engine_wait_var(&v) == FL_OK && fl_var_writable(&v) && fl_var_settle(&v));
}

static void short_rings_wrap(void)
{
    int count = 0, *place = &count;
    fl_var v = {0}, w = {0};
    for (int i = 0; i < 1000; i++) push("count", short_threaded, 0, op_count, &place, sizeof place, NO_VARS, VARS(&v));
    CHECK(fl_engine_wait_var(&v) == FL_OK && count == 1000);
    push("sleep", threaded[0], 0, op_sleep, &(int){20}, sizeof(int), NO_VARS, VARS(&w));
    for (int i = 0; i < 1000; i++) push("count", short_driven, 0, op_count, &place, sizeof place, VARS(&w), VARS(&v));
    CHECK(fl_engine_wait_var(&v) == FL_OK && count == 2000);
}

static void readers_beyond_the_slots(void)
{
    int lanes[] = {threaded[0], threaded[1], threaded[2], threaded[3], FL_LANE_IO, FL_LANE_COMM, driven[0]};
    fl_var v = {0}, out[7] = {{0}};
    int count = 0, *place = &count, ms = 5;
    push("sleep", threaded[0], 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&v));
    for (int i = 0; i < 7; i++) {
        push("sleep", lanes[i], 0, op_sleep, &ms, sizeof ms, VARS(&v), VARS(&out[i]));
        push("count", lanes[i], 0, op_count, &place, sizeof place, VARS(&v), VARS(&out[i]));
    }
    CHECK(v.reader_count <= FL_VAR_READERS);
    int seen = 0;
    append a = {&seen, &(int){0}, 1};
    push("append", threaded[1], 0, op_append, &a, sizeof a, NO_VARS, VARS(&v));
    fl_engine_wait_idle(&v);
    CHECK(count == 7 && seen == 1);
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void version_counts_at_push(void)
{
    fl_var v = {0}, w = {0};
    int gate = 0;
    push_gate(threaded[0], &gate, NO_VARS, VARS(&v));
    for (int i = 0; i < 9; i++) push_nothing(threaded[i % 2], i % 2 ? FL_TASK_CHEAP : 0, VARS(&w), VARS(&v));
    CHECK(v.version == 10 && w.version == 0);
    set(&gate, 1);
    CHECK(fl_engine_wait_all() == FL_OK);
    push_nothing(FL_LANE_CPU, FL_TASK_CHEAP, NO_VARS, VARS(&v));
    fl_var_bump(&v);
    CHECK(v.version == 12 && w.version == 0);
}

static void cheap_runs_here_when_ready(void)
{
    fl_var v = {0}, w = {0};
    int gate = 0, count = 0, *place = &count;
    push_gate(threaded[0], &gate, NO_VARS, VARS(&v));
    push("count", threaded[0], FL_TASK_CHEAP, op_count, &place, sizeof place, NO_VARS, VARS(&w));
    CHECK(count == 1);
    push("count", driven[0], FL_TASK_CHEAP, op_count, &place, sizeof place, VARS(&v), VARS(&w));
    push("count", driven[0], 0, op_count, &place, sizeof place, NO_VARS, NO_VARS);
    CHECK(count == 1); /* the lane keeps the order of what is not cheap */
    push("count", driven[0], FL_TASK_CHEAP, op_count, &place, sizeof place, NO_VARS, NO_VARS);
    CHECK(count == 2);
    set(&gate, 1);
    CHECK(fl_engine_wait_all() == FL_OK && count == 4);
}

/* A driven op waits for a thread, another thread for the driven op: the wait must run what lies between. */
static void waits_drive_what_others_need(void)
{
    fl_var a = {0}, b = {0}, c = {0}, d = {0};
    int ms = 20, count = 0, *place = &count;
    push("sleep", threaded[0], 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&a));
    push("count", driven[0], 0, op_count, &place, sizeof place, VARS(&a), VARS(&b));
    push("sleep", threaded[1], 0, op_sleep, &ms, sizeof ms, VARS(&b), VARS(&c));
    push("count", driven[1], 0, op_count, &place, sizeof place, VARS(&c), VARS(&d));
    push("count", threaded[2], 0, op_count, &place, sizeof place, VARS(&d), VARS(&a));
    CHECK(fl_engine_wait_var(&a) == FL_OK);
    CHECK(get(&count) == 3);
}

/* Large payloads are copied, too. */
typedef struct bulk {
    char bytes[5000];
    int *sum;
} bulk;
static fl_status op_bulk(void *payload)
{
    bulk *b = payload;
    for (size_t i = 0; i < sizeof b->bytes; i++) *b->sum += b->bytes[i];
    return FL_OK;
}

static void large_payloads_are_copied(void)
{
    fl_var v = {0};
    bulk *b = malloc(sizeof *b);
    int sum = 0;
    b->sum = &sum;
    for (int i = 1; i <= 10; i++) {
        memset(b->bytes, i, sizeof b->bytes);
        push("bulk", threaded[0], 0, op_bulk, b, sizeof *b, NO_VARS, VARS(&v));
    }
    memset(b, 0, sizeof *b);
    CHECK(fl_engine_wait_var(&v) == FL_OK && sum == 5000 * 55);
    free(b);
}

/* ---- bounds ---- */

/* Few variables, and more than are looked through: each stays once, in its order, and what is written is not read. */
static void lists_have_a_variable_once(void)
{
    enum { MOST = 300 };
    static fl_var v[MOST];
    for (int turn = 0, counts[] = {3, 20, MOST, 60, MOST}; turn < 5; turn++) {
        const int n = counts[turn];
        fl_var *reads[3 * MOST], *writes[2 * MOST];
        int read_count = 0, write_count = 0;
        for (int i = 0; i < n; i++) {
            reads[read_count++] = &v[i];
            reads[read_count++] = &v[n - 1 - i];
            if (i % 3) continue;
            writes[write_count++] = &v[i];
            writes[write_count++] = &v[i - i % 2];
            reads[read_count++] = &v[i];
        }
        fl_vars_once(reads, &read_count, writes, &write_count);
        int written = 0, bad = 0, seen[MOST] = {0};
        for (int i = 0; i < write_count; i++) bad += seen[writes[i] - v]++;
        for (int i = 0; i < n; i += 3) bad += !seen[i];
        for (int i = 0; i < n; i++) written += seen[i];
        for (int i = 0; i < read_count; i++) bad += seen[reads[i] - v]++;
        for (int i = 0; i < n; i++) bad += seen[i] != 1;
        CHECK(!bad && written == write_count && read_count + write_count == n);
        CHECK(writes[0] == &v[0] && reads[0] == &v[n - 1]);
    }
}

static void lanes_are_bounded(void)
{
    int lane = -1, count = 0, gate = 0, *counter = &count;
    fl_var v[FL_MAX_LANES] = {{0}}, *reads[FL_MAX_LANES];
    CHECK(fl_engine_lane_new(&lane, "wide", -1, true) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "engine: a ring of -1 slots for lane 'wide' (1 to 1048576)");
    fl_task all = {.name = "count",
                   .run = op_count,
                   .payload = &counter,
                   .payload_size = sizeof counter,
                   .reads = reads,
                   .lane = threaded[0]};
    while (fl_engine_lane_new(&lane, "more", 4, true) == FL_OK) {
        reads[all.read_count++] = &v[lane];
        CHECK(push_gate(lane, &gate, NO_VARS, VARS(&v[lane])) == FL_OK);
    }
    CHECK_TEXT(fl_message(), "engine: there are 96 lanes already, no room for 'more'");
    CHECK(all.read_count > 40 && fl_engine_push(&all) == FL_OK); /* it waits for as many lanes */
    sleep_ms(20);
    CHECK(get(&count) == 0);
    set(&gate, 1);
    CHECK(fl_engine_wait_all() == FL_OK && get(&count) == 1);
    fl_engine_stats s;
    fl_engine_stats_get(&s);
    CHECK(s.lanes == FL_LANE_DEFERRED && s.threads <= s.lanes && lane == FL_LANE_DEFERRED - 1);
}

static void many_pushes_keep_memory_bounded(void)
{
    char payload[600] = {0};
    fl_var v[8] = {{0}};
    push("warm", threaded[0], 0, op_nothing, payload, sizeof payload, NO_VARS, VARS(&v[0]));
    fl_engine_wait_all();
    long before = resident_bytes();
    for (int i = 0; i < MANY; i++)
        push("nothing", threaded[i & 1], 0, op_nothing, payload, i % 100 ? 100 : sizeof payload, VARS(&v[i & 7]),
             VARS(&v[(i + 3) & 7]));
    CHECK(fl_engine_wait_all() == FL_OK);
    CHECK(resident_bytes() - before < (UNDER_TSAN ? 256 : 16) << 20);
}

static void spread_body(void *context, int64_t begin, int64_t end)
{
    double *out = context;
    for (int64_t i = begin; i < end; i++) out[i] = (double)i * 2;
}
static fl_status op_parallel(void *payload)
{
    fl_team_for(10000, 100, spread_body, *(double **)payload);
    return FL_OK;
}

static void mixed_parallel_regions(void)
{
    double *out[2] = {malloc(10000 * sizeof **out), malloc(10000 * sizeof **out)};
    fl_var v[2] = {{0}, {0}}, slow = {0};
    int ms = 1;
    for (int i = 0; i < 60; i++) {
        if (i % 4 == 0) push("sleep", FL_LANE_IO, 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&slow));
        push("parallel", FL_LANE_CPU, FL_TASK_CHEAP, op_parallel, &out[i % 2], sizeof *out, VARS(&slow),
             VARS(&v[i % 2]));
        push("parallel", FL_LANE_COMM, 0, op_parallel, &out[1 - i % 2], sizeof *out, NO_VARS, VARS(&v[1 - i % 2]));
        fl_team_for(10000, 100, spread_body, out[0] + 0 * fl_engine_wait_var(&v[0]));
    }
    CHECK(fl_engine_wait_all() == FL_OK);
    for (int i = 0; i < 10000; i++) CHECK(out[0][i] == i * 2.0 && out[1][i] == i * 2.0);
    free(out[0]), free(out[1]);
}

static void one_team_of_threads(void)
{
    fl_engine_stats s;
    for (int round = 0; round < 3; round++) {
        fl_engine_mode_set(round == 1 ? FL_ENGINE_QUEUED : FL_ENGINE_AUTO);
        mixed_parallel_regions();
        fl_engine_stats_get(&s);
        CHECK(count_threads() <= fl_team_size() + s.threads + UNDER_TSAN); /* TSan has a thread of its own */
    }
}

/* ---- the profile ---- */

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static void odd_place(char *buffer, size_t size) { snprintf(buffer, size, "a\"b\\c\n\x01.lua:7"); }

static void profile_parses(void)
{
    char path[] = "/tmp/flowlua-trace-XXXXXX";
    int fd = mkstemp(path), ms = 2;
    fl_var v = {0};
    close(fd);
    CHECK(fl_engine_profile_dump(path) == FL_ERR_STATE);
    CHECK(fl_engine_profile_start() == FL_OK && fl_engine_profiling);
    fl_engine_where = odd_place;
    push("sleep \"well\"", threaded[0], 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&v));
    push_nothing(driven[0], 0, VARS(&v), NO_VARS);
    push_nothing(FL_LANE_CPU, FL_TASK_CHEAP, NO_VARS, NO_VARS);
    fl_engine_where = NULL;
    CHECK(fl_engine_profile_dump(path) == FL_OK && !fl_engine_profiling);
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, NULL), *event;
    size_t i;
    int ops = 0, names = 0;
    CHECK(json != NULL);
    json_array_foreach(json_object_get(json, "traceEvents"), i, event)
    {
        const char *phase = text_of(event, "ph");
        names += !strcmp(phase, "M");
        if (strcmp(phase, "X")) continue;
        ops++;
        CHECK_TEXT(text_of(json_object_get(event, "args"), "line"), "a\"b\\c\n\x01.lua:7");
        if (json_integer_value(json_object_get(event, "tid")) != threaded[0]) continue;
        CHECK_TEXT(text_of(event, "name"), "sleep \"well\"");
        CHECK(json_number_value(json_object_get(event, "dur")) >= 1900);
    }
    CHECK(ops == 3 && names >= 4);
    json_decref(json);
    unlink(path);
}

static void profile_keeps_the_newest(void)
{
    char path[] = "/tmp/flowlua-trace-XXXXXX";
    close(mkstemp(path));
    CHECK(fl_engine_profile_start() == FL_OK);
    for (int i = 0; i < 70000; i++) push_nothing(FL_LANE_CPU, FL_TASK_CHEAP, NO_VARS, NO_VARS);
    CHECK(fl_engine_profile_dump("/no/such/place") == FL_ERR_IO);
    CHECK_TEXT(fl_message(), "profile: cannot write '/no/such/place': No such file or directory");
    CHECK(fl_engine_profile_dump(path) == FL_OK);
    FILE *f = fopen(path, "r");
    int lines = 0;
    for (int c; (c = getc(f)) != EOF;) lines += c == '\n';
    fclose(f);
    CHECK(lines > 65536 && lines < 65536 + 64);
    unlink(path);
}

/* ---- fork and the end ---- */

/* In a child everything runs on the caller; parallel loops work, too. */
static int in_the_child(fl_var *v)
{
    int count = 0, *place = &count;
    double out[10000];
    double *destination = out;
    for (int i = 0; i < 10; i++)
        if (push("count", threaded[i % 4], 0, op_count, &place, sizeof place, VARS(v), NO_VARS) != FL_OK) return 1;
    if (push("parallel", FL_LANE_CPU, 0, op_parallel, &destination, sizeof destination, NO_VARS, NO_VARS) != FL_OK)
        return 2;
    if (count != 10 || out[9999] != 19998) return 3;
    if (fl_engine_wait_all() != FL_OK || fl_engine_mode_get() != FL_ENGINE_NAIVE) return 4;
    fl_engine_stop();
    return 0;
}

static void forked_child_runs_inline(void)
{
    if (UNDER_TSAN) SKIP("ThreadSanitizer does not follow a fork with threads");
    fl_var v = {0};
    int status = 0, count = 0, *place = &count;
    for (int i = 0; i < 100; i++) push("count", threaded[i % 4], 0, op_count, &place, sizeof place, NO_VARS, VARS(&v));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(in_the_child(&v));
    CHECK(count == 100); /* a fork drains the lanes */
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    push("count", threaded[0], 0, op_count, &place, sizeof place, NO_VARS, VARS(&v));
    CHECK(fl_engine_wait_var(&v) == FL_OK && count == 101);
}

/* 1000 ops, more than anybody wants to wait for. */
static void queue_plenty(fl_var *v)
{
    int ms = 10;
    for (int i = 0; i < 1000; i++)
        push("sleep", i % 10 == 9 ? driven[0] : threaded[i % 4], i % 3 ? 0 : FL_TASK_UPDATES, op_sleep, &ms, sizeof ms,
             VARS(&v[i % 5]), VARS(&v[5 + i % 3]));
}

static void stop_cancels(void)
{
    fl_var v[8] = {{0}};
    int ms = 10, cancelled = 0;
    push("sleep", threaded[0], 0, op_sleep, &ms, sizeof ms, NO_VARS, VARS(&v[0]));
    queue_plenty(v);
    push("sleep", threaded[0], 0, op_sleep, &ms, sizeof ms, VARS(&v[0]), VARS(&v[7]));
    double start = seconds();
    fl_engine_stop();
    fl_engine_stop();
    CHECK(seconds() - start < 1);
    fl_engine_stats s;
    fl_engine_stats_get(&s);
    CHECK(s.threads == 0);
    for (int i = 0; i < 8; i++) {
        cancelled += fl_engine_wait_var(&v[i]) != FL_OK;
        fl_var_clear(&v[i]);
    }
    CHECK(cancelled > 0);
    CHECK(fl_engine_wait_all() == FL_ERR_STATE);
    CHECK_TEXT(fl_message(), "sleep: cancelled");
    push_nothing(threaded[0], 0, NO_VARS, VARS(&v[0])); /* and starts again */
    CHECK(fl_engine_wait_var(&v[0]) == FL_OK && fl_engine_wait_all() == FL_OK);
}

static void exit_with_queued_ops(void)
{
    double start = seconds();
    int status = 0;
    fflush(stdout);
    pid_t child = vfork();
    if (child == 0) {
        execl(program, program, "--exit", (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(seconds() - start < (UNDER_TSAN ? 3 : 1));
}

int main(int argc, char **argv)
{
    static fl_var v[8];
    program = argv[0];
    alarm(300);
    fl_engine_mode_set(FL_ENGINE_AUTO);
    make_lanes();
    if (argc > 1 && !strcmp(argv[1], "--exit")) {
        queue_plenty(v);
        return 3;
    }
    RUN(fresh_variable_is_ready);
    RUN(readers_overlap);
    RUN(writers_keep_order);
    RUN(first_tasks_that_can_run_go_by_priority);
    RUN(write_waits_for_readers);
    RUN(diamond_across_lanes);
    RUN(wait_var_waits_for_its_writer_only);
    RUN(short_rings_wrap);
    RUN(readers_beyond_the_slots);
    RUN(version_counts_at_push);
    RUN(cheap_runs_here_when_ready);
    RUN(waits_drive_what_others_need);
    RUN(large_payloads_are_copied);
    RUN(many_pushes_keep_memory_bounded);
    RUN(one_team_of_threads);
    RUN(profile_parses);
    RUN(profile_keeps_the_newest);
    RUN(forked_child_runs_inline);
    RUN(stop_cancels);
    RUN(exit_with_queued_ops);
    RUN(lists_have_a_variable_once);
    RUN(lanes_are_bounded);
    fl_engine_stop();
    return finish();
}
