/*
** scan.c -- the patterns of GPT-2, LLaMA 3 and Qwen (see scan.h).
**
** Each begins with contractions ('s, 't, 're, 've, 'm, 'll, 'd) and ends with \s+(?!\S)|\s+: of spaces in a row the
** last one is left for what follows.
*/
#include "scan.h"
#include "char_class.h"

#include <string.h>

#define SPACES "\\s+(?!\\S)|\\s+"
const char fl_scan_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES;
#define LLAMA3(numbers)                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" numbers \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES

bool fl_scan_known(fl_scan *scan, const char *pattern, size_t size)
{
    static const struct {
        const char *pattern;
        fl_scan scan;
    } known[] = {
        {fl_scan_gpt2, {true, 0}},
        {LLAMA3("{1,3}"), {false, 3}},
        {LLAMA3(""), {false, 1}},
        {LLAMA3("+"), {false, 0}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].pattern) != size || memcmp(known[i].pattern, pattern, size) != 0) continue;
        *scan = known[i].scan;
        return true;
    }
    return false;
}

enum { LETTER = FL_CHAR_LETTER, NUMBER = FL_CHAR_NUMBER, SPACE = FL_CHAR_SPACE, KINDS = LETTER | NUMBER | SPACE };

struct reader {
    const unsigned char *text;
    size_t size;
};

/* Class of the character at `at`, with its bytes; 0 bytes at the end. */
static inline int class_at(size_t *length, const struct reader *reader, size_t at)
{
    if (at >= reader->size) {
        *length = 0;
        return 0;
    }
    return char_class(length, reader->text + at, reader->size - at) & KINDS;
}

/* End of the characters of this class from `at` on, `most` at most (0: all). */
static inline size_t run_end(const struct reader *reader, size_t at, int class, int most)
{
    size_t length;
    for (int i = 0; (most == 0 || i < most) && class_at(&length, reader, at) == class && length > 0; i++, at += length)
        continue;
    return at;
}

/* End of a contraction whose apostrophe is at `at`; at: there is none. */
static size_t contraction_end(const struct reader *reader, size_t at, bool any_case)
{
    unsigned char c[2] = {0, 0};
    size_t left = reader->size - at - 1;
    for (size_t i = 0; i < 2 && i < left; i++) {
        c[i] = reader->text[at + 1 + i];
        if (any_case && c[i] >= 'A' && c[i] <= 'Z') c[i] |= 0x20;
    }
    if (any_case && c[0] == 0xc5 && c[1] == 0xbf) return at + 3; /* long s, U+017F */
    if (c[0] == 's' || c[0] == 't' || c[0] == 'm' || c[0] == 'd') return at + 2;
    bool two = (c[0] == 'r' && c[1] == 'e') || (c[0] == 'v' && c[1] == 'e') || (c[0] == 'l' && c[1] == 'l');
    return two ? at + 3 : at;
}

/* End of the piece that begins with a space at `at`. */
static size_t space_end(const struct reader *reader, size_t at, bool lines)
{
    size_t end = at, last = at, line = at, length;
    while (class_at(&length, reader, end) == SPACE) {
        last = end;
        end += length;
        if (reader->text[last] == '\r' || reader->text[last] == '\n') line = end;
    }
    if (lines && line > at) return line;
    return end == reader->size || last == at ? end : last;
}

static size_t next_gpt2(const struct reader *reader, size_t at)
{
    size_t length, start = at;
    int class = class_at(&length, reader, at);
    if (reader->text[at] == ' ') class = class_at(&length, reader, ++start);
    else if (reader->text[at] == '\'') {
        size_t end = contraction_end(reader, at, false);
        if (end > at) return end;
    }
    if (class == SPACE || length == 0) return space_end(reader, at, false);
    return run_end(reader, start + length, class, 0);
}

static size_t next_llama3(const struct reader *reader, size_t at, int numbers)
{
    size_t length, second;
    unsigned char byte = reader->text[at];
    if (byte == '\'') {
        size_t end = contraction_end(reader, at, true);
        if (end > at) return end;
    }
    int class = class_at(&length, reader, at);
    if (class == NUMBER) return run_end(reader, at, NUMBER, numbers);
    if (class == LETTER) return run_end(reader, at + length, LETTER, 0);
    int next = class_at(&second, reader, at + length);
    if (byte != '\r' && byte != '\n' && next == LETTER) return run_end(reader, at + length + second, LETTER, 0);
    size_t start = byte == ' ' && next == 0 && second > 0 ? at + length : at;
    if (class == SPACE && start == at) return space_end(reader, at, true);
    size_t end = run_end(reader, start, 0, 0);
    while (end < reader->size && (reader->text[end] == '\r' || reader->text[end] == '\n')) end++;
    return end;
}

size_t fl_scan_next(const fl_scan *scan, const unsigned char *text, size_t size, size_t at)
{
    struct reader r = {text, size};
    return scan->gpt2 ? next_gpt2(&r, at) : next_llama3(&r, at, scan->numbers);
}
