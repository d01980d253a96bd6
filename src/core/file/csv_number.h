/*
** csv_number.h -- numbers and times as text has them.
*/
#ifndef FL_CSV_NUMBER_H
#define FL_CSV_NUMBER_H

#include <locale.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fl_number {
    bool is_integer; /* written without point and exponent, and within int64 */
    int64_t integer;
    double value;
} fl_number;

/* The number that begins at `text`, which ends in something that no number holds. Returns the text after it, NULL where
** none begins. Rounded to the nearest double, ties to even. Also inf, infinity and nan, in any case. plain: the locale
** "C". */
const char *fl_number_read(fl_number *out, const char *text, char decimal, locale_t plain);

/* A date, "2024-01-31", or a date and a time, "2024-01-31 23:59", "2024-01-31T23:59:59.25Z", "...+01:00", as seconds
** since the beginning of 1970 UTC. false: it is none. */
bool fl_time_read(double *out, const char *text, int64_t size);

#endif
