/*
** status.c -- this thread's last error message, and text from outside as it may be shown.
**
** Messages are formatted beside the buffer and copied in afterwards, so that the old message may be an argument of the
** new one. The copy is valid UTF-8 without control characters, whatever a file or a path holds; text that does not fit
** is cut between two characters and ends in "...".
*/
#include "status.h"
#include "locale.h"
#include "utf8.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_SIZE = 1024,
    RAW_SIZE = 2 * MESSAGE_SIZE /* before escapes, which only add: longer than what is kept */
};

struct failure {
    uint64_t number; /* of the thread's failures, from 1 */
    char message[MESSAGE_SIZE];
};

/* A pointer alone: a library that a host opens late has some hundred bytes for variables of threads, for all libraries
** together. Owned by the thread, NULL before its first failure. */
static _Thread_local struct failure *last;

static void drop_failure(void *failure)
{
    free(failure);
    last = NULL;
}

static pthread_key_t at_end; /* drops it when the thread ends */
static void make_key(void) { pthread_key_create(&at_end, drop_failure); }

/* This thread's last failure; without memory one that threads share. */
static struct failure *last_failure(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static struct failure shared;
    if (last) return last;
    pthread_once(&once, make_key);
    struct failure *fresh = calloc(1, sizeof *fresh);
    if (!fresh) return &shared;
    pthread_setspecific(at_end, fresh);
    return last = fresh;
}

/* C0, DEL and C1. */
static bool is_control(int32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

size_t fl_text_clean(char *out, size_t size, const char *text, size_t length, const char *keep)
{
    size_t used = 0, safe = 0; /* `safe`: where "..." fits in */
    for (size_t i = 0; i < length;) {
        const unsigned char *s = (const unsigned char *)text + i;
        int32_t code;
        size_t n = fl_utf8_next(&code, s, length - i), step = n ? n : 1, width = step;
        bool escaped = n == 0 || (is_control(code) && (n > 1 || !s[0] || !strchr(keep, s[0])));
        if (escaped) width = 4 * step;
        if (used + width >= size) {
            memcpy(out + safe, "...", 4);
            return safe + 3;
        }
        for (size_t j = 0; escaped && j < step; j++) snprintf(out + used + 4 * j, 5, "\\x%02x", s[j]);
        if (!escaped) memcpy(out + used, s, step);
        used += width;
        i += step;
        if (used + 3 < size) safe = used;
    }
    out[used] = '\0';
    return used;
}

/* Formats into `text`; returns its length. */
static size_t format_raw(char *text, const char *format, va_list args)
{
    locale_t before = uselocale(fl_locale_plain());
    int length = vsnprintf(text, RAW_SIZE, format, args);
    uselocale(before);
    if (length < 0) length = snprintf(text, RAW_SIZE, "%s", format);
    return length < RAW_SIZE ? (size_t)length : RAW_SIZE - 1;
}

fl_status fl_fail(fl_status code, const char *format, ...)
{
    char text[RAW_SIZE];
    va_list args;
    va_start(args, format);
    size_t length = format_raw(text, format, args);
    va_end(args);
    struct failure *failure = last_failure();
    failure->number++;
    fl_text_clean(failure->message, MESSAGE_SIZE, text, length, "\n\t");
    return code;
}

fl_status fl_fail_prefix(fl_status code, const char *format, ...)
{
    char text[RAW_SIZE + MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    size_t length = format_raw(text, format, args), rest = strlen(fl_message());
    va_end(args);
    memcpy(text + length, fl_message(), rest);
    fl_text_clean(last_failure()->message, MESSAGE_SIZE, text, length + rest, "\n\t");
    return code;
}

const char *fl_message(void) { return last ? last->message : ""; }

uint64_t fl_failures(void) { return last ? last->number : 0; }

fl_status fl_fail_outside(fl_status status, uint64_t before, const char *name, const char *what)
{
    static const char *const words[] = {[FL_ERR_SHAPE] = "shapes that do not fit",
                                        [FL_ERR_DTYPE] = "a dtype that it does not take",
                                        [FL_ERR_VALUE] = "a value out of its range",
                                        [FL_ERR_SBP] = "placements or SBPs that do not fit",
                                        [FL_ERR_STATE] = "not allowed now",
                                        [FL_ERR_MEMORY] = "memory exhausted",
                                        [FL_ERR_IO] = "files",
                                        [FL_ERR_COMM] = "communication",
                                        [FL_ERR_MISSING] = "missing"};
    bool worded = fl_failures() != before && *fl_message(), known = status >= FL_OK && status <= FL_ERR_INTERRUPTED;
    if (known && (worded || status == FL_OK)) return status;
    if (!known)
        return worded
            ? fl_fail_prefix(FL_ERR_STATE, "%s: %s returned %d, which is no status: ", name, what, status)
            : fl_fail(FL_ERR_STATE, "%s: %s returned %d, which is no status, and gave no message", name, what, status);
    if (status == FL_ERR_INTERRUPTED) /* a status of the core's own waits; the script goes on */
        return fl_fail(FL_ERR_STATE, "%s: %s was interrupted and gave no message", name, what);
    return fl_fail(status, "%s: %s failed with status %d (%s) and gave no message", name, what, status, words[status]);
}

static struct {
    fl_warn_sink *sink;
    void *context;
} warnings;

void fl_warn_to(fl_warn_sink *sink, void *context)
{
    warnings.sink = sink;
    warnings.context = context;
}

void fl_warn(const char *format, ...)
{
    char text[RAW_SIZE], shown[MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    size_t length = format_raw(text, format, args);
    va_end(args);
    fl_text_clean(shown, sizeof shown, text, length, "");
    if (warnings.sink) warnings.sink(warnings.context, shown);
    else fprintf(stderr, "flowlua: %s\n", shown);
}

const char *fl_text_name(char *buffer, const char *name)
{
    fl_text_clean(buffer, FL_SHOWN_TEXT, name, strlen(name), "");
    return buffer;
}
