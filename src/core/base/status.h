/*
** status.h -- how the core reports failure.
**
** A core function that can fail returns fl_status. The function that first decides an error words
** it with fl_fail; its callers pass it on with FL_TRY and add nothing. Outputs are set only
** on success. The message lives in the calling thread until its next fl_fail.
*/
#ifndef FL_STATUS_H
#define FL_STATUS_H

#include <stddef.h>
#include <stdint.h>

typedef enum fl_status {
    FL_OK = 0,
    FL_ERR_SHAPE,      /* shapes, axes, sizes that do not fit */
    FL_ERR_DTYPE,      /* a dtype the op does not take */
    FL_ERR_VALUE,      /* a value out of its range */
    FL_ERR_SBP,        /* placements or SBPs that do not fit */
    FL_ERR_STATE,      /* a call that is not allowed now (autograd, views, engine) */
    FL_ERR_MEMORY,     /* host or device memory exhausted */
    FL_ERR_IO,         /* files */
    FL_ERR_COMM,       /* communication */
    FL_ERR_MISSING,    /* a library, device or feature that is not there */
    FL_ERR_INTERRUPTED /* Ctrl-C */
} fl_status;

/* A symbol of the program that plug-ins may use. */
#define FL_EXPORT __attribute__((visibility("default")))

/* A variable of several files: read directly, since no other library can put one of its own in its place. */
#define FL_OWN __attribute__((visibility("hidden")))

/* Words the error and returns its code. The message is kept as fl_text_clean makes it, in at most some 1,000 bytes. */
FL_EXPORT fl_status fl_fail(fl_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Message of this thread's last failure; never NULL. */
FL_EXPORT const char *fl_message(void);

/* Number of failures of this thread. fl_fail_prefix changes the message of the last one, and counts as none. */
uint64_t fl_failures(void);

/* The status that a function from outside has returned, a kernel or a task; `before`: fl_failures() before the call.
** One that failed and gave no message gets one, that begins with `name`; `what` failed: "its kernel". A number that is
** no status becomes FL_ERR_STATE. */
fl_status fl_fail_outside(fl_status status, uint64_t before, const char *name, const char *what);

/* Puts `prefix` in front of this thread's message (a row number, a file name); returns code. */
fl_status fl_fail_prefix(fl_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A warning, one line without its end: given to `sink`, or printed on standard error behind "flowlua: ". */
FL_EXPORT void fl_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
typedef void fl_warn_sink(void *context, const char *message);
void fl_warn_to(fl_warn_sink *sink, void *context); /* NULL: standard error */

/* Text from outside as it may be printed: control characters but those in `keep`, and what is not UTF-8, become "\x1b";
** more than size - 1 bytes are cut between two characters and end in "...". size: at least 4. Returns the length. */
size_t fl_text_clean(char *out, size_t size, const char *text, size_t length, const char *keep);

/* A name that a file gives, in a message: cleaned, with room for what else the message says. */
enum { FL_SHOWN_TEXT = 160 };
const char *fl_text_name(char *buffer, const char *name);

#define FL_TRY(expression)                    \
    do {                                      \
        fl_status status_ = (expression);     \
        if (status_ != FL_OK) return status_; \
    } while (0)

#define FL_LIKELY(x) __builtin_expect(!!(x), 1)
#define FL_UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
