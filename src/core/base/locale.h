/*
** locale.h -- numbers as text, with a point: a program around us may have set a locale in which 0.5 is "0,5".
**
** Numbers are read by fl_plain_number. Text for other programs, or to be read again, is formatted
** between uselocale(fl_locale_plain()) and uselocale of what that returned.
*/
#ifndef FL_LOCALE_H
#define FL_LOCALE_H

#include <locale.h>

/* The locale "C", for uselocale. */
locale_t fl_locale_plain(void);

/* strtod in it. */
double fl_plain_number(const char *text, char **end);

#endif
