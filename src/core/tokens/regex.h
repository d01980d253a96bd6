/*
** regex.h -- regular expressions, and classes of characters, by PCRE2, which is opened at the first one.
**
** Tokenizers write patterns for Oniguruma. Constructs with another meaning in PCRE2 are translated, or refused by name:
** \s, \w and \h stand for Oniguruma's sets, "^" and "$" for lines; sets within sets and intervals with "+" are refused.
*/
#ifndef FL_REGEX_H
#define FL_REGEX_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_regex fl_regex;

/* fl_regex_free frees *out. Errors: FL_ERR_MISSING without the library; FL_ERR_VALUE with the place in the pattern. */
fl_status fl_regex_new(fl_regex **out, const char *pattern, size_t size);
void fl_regex_free(fl_regex *regex);

/* Patterns for a character of \w, and for one that is neither this nor a space, as steps without a pattern of their own
** mean it (Unicode's annex 18): Oniguruma has some signs of Latin-1 more, and no joiners. */
#define FL_REGEX_WORD "(?:(?![\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}])[\\w\\x{200c}\\x{200d}])"
#define FL_REGEX_SIGN "[^\\w\\s\\x{200c}\\x{200d}]|[\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"

/* The first match in `text`, which is UTF-8, that begins at `from` or later; *begin > size: there is none. Threads may
** use one expression at the same time. Errors: FL_ERR_VALUE for a pattern that backtracks too much; FL_ERR_MEMORY. */
fl_status fl_regex_find(size_t *begin, size_t *end, const fl_regex *regex, const unsigned char *text, size_t size,
                        size_t from);

/* Of a character, by its properties in Unicode. */
enum {
    FL_CHAR_LETTER = 1,      /* \p{L} */
    FL_CHAR_NUMBER = 2,      /* \p{N} */
    FL_CHAR_SPACE = 4,       /* White_Space */
    FL_CHAR_PUNCTUATION = 8, /* \p{P} */
    FL_CHAR_WORD = 16,       /* FL_REGEX_WORD */
    FL_CHAR_SYMBOL = 32      /* of ASCII: printed and none of these */
};

/* Opens what fl_char_class needs. */
fl_status fl_char_classes_open(void);

/* Of ASCII, known without a library. */
FL_OWN extern const uint8_t fl_char_ascii[128];

/* Of the code points 256 * page to 256 * page + 255, made when first asked for; threads may ask at the same time. NULL:
** memory was exhausted. */
const uint8_t *fl_char_page(int page);

#endif
