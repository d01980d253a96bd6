/*
** test_poison.c -- errors of the engine's ops: whom they reach, who reports them, and what ends a wait.
*/
#include "lanes.h"

static void here(char *buffer, size_t size) { snprintf(buffer, size, "train.lua:41"); }

static void failure_poisons_its_readers(void)
{
    int lanes[] = {threaded[0], driven[0], FL_LANE_CPU};
    for (int i = 0; i < 3; i++) {
        fl_var start = {0}, x = {0}, y = {0}, z = {0}, clean = {0};
        int count = 0, *place = &count;
        fl_engine_where = here;
        push("sleep", threaded[1], 0, op_sleep, &(int){5}, sizeof(int), NO_VARS, VARS(&start));
        fl_task boom = {.name = "matmul",
                        .run = op_boom,
                        .reads = (fl_var *[]){&start},
                        .writes = (fl_var *[]){&x},
                        .read_count = 1,
                        .write_count = 1,
                        .lane = lanes[i]};
        CHECK(fl_engine_push(&boom) == FL_OK);
        fl_engine_where = NULL;
        push("add", threaded[2], 0, op_count, &place, sizeof place, VARS(&x, &clean), VARS(&y));
        push("mul", driven[1], 0, op_count, &place, sizeof place, VARS(&y), VARS(&z));
        CHECK(fl_engine_wait_var(&z) == FL_ERR_VALUE);
        CHECK_TEXT(fl_message(), "matmul (train.lua:41): boom");
        CHECK(fl_engine_wait_var(&y) == FL_ERR_VALUE && fl_engine_wait_var(&x) == FL_ERR_VALUE);
        CHECK(fl_engine_wait_var(&z) == FL_ERR_VALUE); /* it stays */
        CHECK(count == 0 && fl_engine_wait_var(&clean) == FL_OK && fl_engine_wait_var(&start) == FL_OK);
        CHECK(fl_engine_wait_all() == FL_OK); /* the script has seen it */
        fl_var_clear(&x), fl_var_clear(&y), fl_var_clear(&z);
        CHECK(fl_engine_wait_var(&z) == FL_OK);
    }
}

static void only_a_pure_write_clears(void)
{
    fl_var x = {0}, y = {0};
    push_boom(threaded[0], VARS(&x));
    push_nothing(threaded[1], FL_TASK_UPDATES, NO_VARS, VARS(&x)); /* x += 1 reads x */
    CHECK(fl_engine_wait_var(&x) == FL_ERR_VALUE);
    CHECK(push_nothing(FL_LANE_CPU, FL_TASK_UPDATES | FL_TASK_CHEAP, NO_VARS, VARS(&x)) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul: boom");
    CHECK(push_nothing(FL_LANE_CPU, FL_TASK_CHEAP, VARS(&x), VARS(&y)) == FL_ERR_VALUE);
    CHECK(fl_engine_wait_var(&y) == FL_ERR_VALUE);
    CHECK(push_nothing(FL_LANE_CPU, FL_TASK_CHEAP, NO_VARS, VARS(&x)) == FL_OK);
    CHECK(fl_engine_wait_var(&x) == FL_OK && fl_engine_wait_var(&y) == FL_ERR_VALUE);
    push_nothing(threaded[0], 0, VARS(&x), VARS(&y));
    CHECK(fl_engine_wait_var(&y) == FL_OK && fl_var_readable(&y));
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void updates_spare_their_targets(void)
{
    for (int i = 0; i < 2; i++) {
        int lane = i ? driven[0] : threaded[1], weight = 7, *place = &weight;
        fl_var gradient = {0}, parameter = {0}, moment = {0};
        int gate = 0;
        push_gate(threaded[0], &gate, NO_VARS, VARS(&gradient));
        push_boom(threaded[0], VARS(&gradient));
        CHECK(push("adamw", lane, FL_TASK_UPDATES, op_count, &place, sizeof place, VARS(&gradient),
                   VARS(&parameter, &moment))
              == FL_OK);
        set(&gate, 1);
        CHECK(fl_engine_wait_var(&parameter) == FL_OK && fl_engine_wait_var(&moment) == FL_OK);
        CHECK(weight == 7 && parameter.version == 1);
        CHECK(fl_engine_wait_var(&gradient) == FL_ERR_VALUE);
        CHECK(fl_engine_wait_all() == FL_ERR_VALUE); /* the skipped step is reported */
        CHECK_TEXT(fl_message(), "matmul: boom");
        CHECK(fl_engine_wait_all() == FL_OK);
        fl_var_clear(&gradient);
        push("adamw", lane, FL_TASK_UPDATES, op_count, &place, sizeof place, VARS(&gradient),
             VARS(&parameter, &moment));
        CHECK(fl_engine_wait_all() == FL_OK && weight == 8);
    }
}

static void update_that_fails_poisons_its_target(void)
{
    fl_var x = {0};
    push("scale", threaded[0], FL_TASK_UPDATES, op_boom, NULL, 0, NO_VARS, VARS(&x));
    CHECK(fl_engine_wait_var(&x) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul: boom");
    fl_var_clear(&x);
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void overwriting_a_poisoned_variable_heals_it(void)
{
    fl_var x = {0}, y = {0};
    push_boom(threaded[0], VARS(&x));
    push_nothing(threaded[0], FL_TASK_UPDATES | FL_TASK_OVERWRITES, NO_VARS, VARS(&x));
    CHECK(fl_engine_wait_var(&x) == FL_OK);
    push_boom(threaded[0], VARS(&y));
    push_nothing(threaded[0], FL_TASK_UPDATES | FL_TASK_OVERWRITES, VARS(&y), VARS(&x));
    CHECK(fl_engine_wait_var(&x) == FL_OK); /* not begun: x is as it was */
    fl_var_clear(&y);
    fl_engine_wait_all();
}

static void errors_without_a_reader_are_filed(void)
{
    fl_var x = {0}, y = {0};
    push("save", threaded[0], 0, op_boom, NULL, 0, NO_VARS, NO_VARS);
    CHECK(fl_engine_wait_all() == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul: boom");
    CHECK(fl_engine_wait_all() == FL_OK);
    push_boom(threaded[0], VARS(&x));
    CHECK(fl_engine_wait_all() == FL_ERR_VALUE && fl_engine_wait_all() == FL_OK);
    push_nothing(threaded[0], 0, VARS(&x), NO_VARS); /* saving x does not happen */
    CHECK(fl_engine_wait_all() == FL_ERR_VALUE && fl_engine_wait_all() == FL_OK);
    for (int i = 0; i < 1000; i++) push_boom(threaded[i % 4], VARS(i % 2 ? &x : &y));
    CHECK(fl_engine_wait_all() == FL_ERR_VALUE && fl_engine_wait_all() == FL_OK);
    fl_var_clear(&x), fl_var_clear(&y);
}

static void collectives_are_entered_all_the_same(void)
{
    fl_var x = {0}, y = {0};
    int count = 0, *place = &count;
    push_boom(threaded[0], VARS(&x));
    push("all_reduce", threaded[1], FL_TASK_NO_SKIP, op_count, &place, sizeof place, VARS(&x), VARS(&y));
    CHECK(fl_engine_wait_var(&y) == FL_ERR_VALUE);
    push("all_reduce", FL_LANE_CPU, FL_TASK_NO_SKIP | FL_TASK_CHEAP, op_count, &place, sizeof place, VARS(&x),
         VARS(&y));
    CHECK(fl_engine_wait_var(&y) == FL_ERR_VALUE && count == 2);
    fl_var_clear(&x), fl_var_clear(&y);
    CHECK(fl_engine_wait_all() == FL_OK);
}

static void failure_on_the_caller(void)
{
    fl_var x = {0};
    fl_engine_stats before, after;
    fl_engine_stats_get(&before);
    fl_engine_where = here;
    CHECK(push("matmul", FL_LANE_CPU, FL_TASK_CHEAP, op_boom, NULL, 0, NO_VARS, VARS(&x)) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul: boom");
    CHECK(fl_engine_wait_var(&x) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul (train.lua:41): boom");
    fl_fail(FL_ERR_VALUE, "half way");
    fl_var_clear(&x);
    fl_var_poison(&x, "add_");
    CHECK(fl_engine_wait_var(&x) != FL_OK);
    CHECK_TEXT(fl_message(), "add_ (train.lua:41): half way");
    fl_engine_where = NULL;
    fl_var_clear(&x);
    CHECK(fl_engine_wait_all() == FL_OK);
    fl_engine_stats_get(&after);
    CHECK(after.failed_ops == before.failed_ops + 1 && after.inline_ops == before.inline_ops + 1);
}

static void naive_mode_raises_at_once(void)
{
    fl_var x = {0}, y = {0};
    fl_engine_mode_set(FL_ENGINE_NAIVE);
    CHECK(fl_engine_mode_get() == FL_ENGINE_NAIVE);
    CHECK(push_boom(threaded[0], VARS(&x)) == FL_ERR_VALUE);
    CHECK(push_nothing(threaded[1], 0, VARS(&x), VARS(&y)) == FL_ERR_VALUE);
    CHECK_TEXT(fl_message(), "matmul: boom");
    fl_engine_mode_set(FL_ENGINE_AUTO);
    fl_var_clear(&x), fl_var_clear(&y);
}

static bool asked_to_stop(void) { return true; }

static void interrupt_ends_a_wait(void)
{
    fl_var x = {0};
    int gate = 0, ms = 0;
    push_gate(threaded[0], &gate, NO_VARS, VARS(&x));
    fl_engine_interrupted = asked_to_stop;
    double start = seconds();
    CHECK(fl_engine_wait_var(&x) == FL_ERR_INTERRUPTED);
    CHECK_TEXT(fl_message(), "interrupted");
    CHECK(fl_engine_wait_all() == FL_ERR_INTERRUPTED);
    for (int i = 0; i < 4; i++) push("sleep", short_threaded, 0, op_sleep, &ms, sizeof ms, VARS(&x), NO_VARS);
    CHECK(push("sleep", short_threaded, 0, op_sleep, &ms, sizeof ms, VARS(&x), NO_VARS) == FL_ERR_INTERRUPTED);
    CHECK(seconds() - start < 2);
    fl_engine_interrupted = NULL;
    set(&gate, 1);
    CHECK(fl_engine_wait_all() == FL_OK && fl_engine_wait_var(&x) == FL_OK);
}

int main(void)
{
    alarm(300);
    fl_engine_mode_set(FL_ENGINE_AUTO);
    make_lanes();
    RUN(failure_poisons_its_readers);
    RUN(only_a_pure_write_clears);
    RUN(updates_spare_their_targets);
    RUN(update_that_fails_poisons_its_target);
    RUN(overwriting_a_poisoned_variable_heals_it);
    RUN(errors_without_a_reader_are_filed);
    RUN(collectives_are_entered_all_the_same);
    RUN(failure_on_the_caller);
    RUN(naive_mode_raises_at_once);
    RUN(interrupt_ends_a_wait);
    fl_engine_stop();
    return finish();
}
