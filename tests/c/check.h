/*
** check.h -- the harness of the C tests.
**
** A test is a function that calls CHECK; main runs them with RUN and returns finish(). Failed checks are
** printed with their place; the last line is `N passed, N failed, N skipped`, counted in tests.
*/
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <string.h>
#include <time.h>

static int check_passed, check_failed, check_skipped;
static int check_bad;          /* failed checks of the running test */
static const char *check_skip; /* why the running test skips itself */

static inline int check_that(int good, const char *text, const char *file, int line)
{
    if (good) return 1;
    check_bad++;
    printf("%s:%d: failed: %s\n", file, line, text);
    return 0;
}
#define CHECK(condition) check_that(!!(condition), #condition, __FILE__, __LINE__)

static inline int check_text(const char *got, const char *wanted, const char *file, int line)
{
    if (!strcmp(got, wanted)) return 1;
    check_bad++;
    printf("%s:%d: failed: got \"%s\", wanted \"%s\"\n", file, line, got, wanted);
    return 0;
}
#define CHECK_TEXT(got, wanted) check_text((got), (wanted), __FILE__, __LINE__)

/* Leaves a test that cannot run here. */
#define SKIP(why)           \
    do {                    \
        check_skip = (why); \
        return;             \
    } while (0)

static inline void check_run(void (*test)(void), const char *name)
{
    check_bad = 0;
    check_skip = NULL;
    test();
    if (check_bad) check_failed++, printf("FAILED  %s\n", name);
    else if (check_skip) check_skipped++, printf("skipped %s: %s\n", name, check_skip);
    else check_passed++;
    fflush(stdout);
}
#define RUN(test) check_run((test), #test)

static inline int finish(void)
{
    printf("%d passed, %d failed, %d skipped\n", check_passed, check_failed, check_skipped);
    return check_failed != 0;
}

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#endif
