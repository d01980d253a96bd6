/*
** status.c -- this thread's last error message.
**
** Messages are formatted beside the buffer and copied in afterwards, so that the old message may be an
** argument of the new one. What does not fit is cut and ends in "...".
*/
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_SIZE = 2048 };

static _Thread_local char message[MESSAGE_SIZE];

/* Formats into `text`; returns its length. */
static size_t format_cut(char *text, const char *format, va_list args)
{
    int length = vsnprintf(text, MESSAGE_SIZE, format, args);
    if (length < 0) length = snprintf(text, MESSAGE_SIZE, "%s", format);
    if (length < MESSAGE_SIZE) return (size_t)length;
    memcpy(text + MESSAGE_SIZE - 4, "...", 4);
    return MESSAGE_SIZE - 1;
}

fl_status fl_fail(fl_status code, const char *format, ...)
{
    char text[MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    size_t length = format_cut(text, format, args);
    va_end(args);
    memcpy(message, text, length + 1);
    return code;
}

fl_status fl_fail_prefix(fl_status code, const char *format, ...)
{
    char text[MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    size_t length = format_cut(text, format, args), room = MESSAGE_SIZE - 1 - length;
    va_end(args);
    size_t rest = strnlen(message, room);
    memcpy(text + length, message, rest);
    text[length + rest] = '\0';
    memcpy(message, text, length + rest + 1);
    return code;
}

const char *fl_message(void) { return message; }
