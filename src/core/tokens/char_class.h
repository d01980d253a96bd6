/*
** char_class.h -- the class of a character, for scan.c and cut.c (fl_char_classes_open has been called).
*/
#ifndef FL_CHAR_CLASS_H
#define FL_CHAR_CLASS_H

#include "base/utf8.h"
#include "regex.h"

/* Bits FL_CHAR_... of the character that begins here, with its bytes; 0 and one byte where there is none. */
static inline int char_class(size_t *length, const unsigned char *text, size_t left)
{
    int32_t code;
    if (FL_LIKELY(text[0] < 128)) {
        *length = 1;
        return fl_char_ascii[text[0]];
    }
    if (FL_UNLIKELY((*length = fl_utf8_next(&code, text, left)) == 0)) {
        *length = 1;
        return 0;
    }
    const uint8_t *page = fl_char_page(code >> 8);
    return FL_LIKELY(page != NULL) ? page[code & 255] : 0;
}

#endif
