/*
** locale.c -- see locale.h.
*/
#define _GNU_SOURCE /* strtod_l */
#include "locale.h"

#include <pthread.h>
#include <stdlib.h>

static locale_t plain;
static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Without memory it is 0: uselocale(0) changes nothing. */
locale_t fl_locale_plain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plain);
    return plain;
}

double fl_plain_number(const char *text, char **end)
{
    locale_t locale = fl_locale_plain();
    return locale ? strtod_l(text, end, locale) : strtod(text, end);
}
