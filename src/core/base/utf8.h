/*
** utf8.h -- characters of text that may be no UTF-8, and the UTF-8 of a character.
*/
#ifndef FL_UTF8_H
#define FL_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { FL_CODE_POINTS = 0x110000 };

/* Bytes of the UTF-8 character that begins here, with its code point; 0 when there is none (overlong forms and
** surrogates included). left: at least 1. */
static inline size_t fl_utf8_next(int32_t *code, const unsigned char *text, size_t left)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
    if (length == 0 || left < length) return 0;
    int32_t value = length == 1 ? first : first & (0x7f >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (text[i] & 0x3f);
    }
    if (value < least[length] || value >= FL_CODE_POINTS || (value >= 0xd800 && value < 0xe000)) return 0;
    *code = value;
    return length;
}

/* Writes the UTF-8 of a code point, at most 4 bytes; returns how many. */
static inline int fl_utf8_write(unsigned char *out, int32_t code)
{
    int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    if (length == 1) {
        out[0] = (unsigned char)code;
        return 1;
    }
    for (int i = length - 1; i > 0; i--, code >>= 6) out[i] = (unsigned char)(0x80 | (code & 0x3f));
    out[0] = (unsigned char)(0xf00 >> length | code);
    return length;
}

#endif
