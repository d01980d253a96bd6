/*
** normalize.c -- steps before a text is cut (see normalize.h).
*/
#define _GNU_SOURCE /* memmem */
#include "normalize.h"
#include "base/on_demand.h"
#include "char_class.h"

#include <stdlib.h>

/* ---- utf8proc ---- */

/* The parts of utf8proc.h (version 2) that are used, declared here so that building needs no package. */
enum { STABLE = 2, COMPAT = 4, COMPOSE = 8, DECOMPOSE = 16, CATEGORY_MN = 6, CATEGORY_ME = 8 };

static struct {
    ssize_t (*decompose)(const unsigned char *, ssize_t, int32_t *, ssize_t, int);
    ssize_t (*reencode)(int32_t *, ssize_t, int);
    int32_t (*tolower)(int32_t);
    int (*category)(int32_t);
} unicode;

static fl_on_demand library = {{"libutf8proc.so.3", "libutf8proc.so.2", "libutf8proc.so"},
                               "libutf8proc-dev",
                               FL_ON_DEMAND_TABLE(unicode, "utf8proc_decompose", "utf8proc_reencode",
                                                  "utf8proc_tolower", "utf8proc_category")};

fl_status fl_normalize_open(fl_normalize_kind kind)
{
    if (kind > FL_NORMALIZE_STRIP_ACCENTS) return FL_OK;
    fl_status status = fl_on_demand_open(&library);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "Unicode normal forms and lower case: ");
}

/* ---- normal forms ---- */

static fl_status form_write(fl_text *out, const unsigned char *text, size_t size, int options)
{
    ssize_t room = (ssize_t)(size * 4 + 16), count;
    int32_t *codes = malloc((size_t)room * sizeof *codes + 1); /* utf8proc writes a 0 behind the text */
    if (!codes) return fl_fail(FL_ERR_MEMORY, "out of memory");
    count = unicode.decompose(text, (ssize_t)size, codes, room, options);
    if (count > room) { /* some characters become up to 18 */
        room = count;
        int32_t *grown = realloc(codes, (size_t)room * sizeof *codes + 1);
        if (!grown) {
            free(codes);
            return fl_fail(FL_ERR_MEMORY, "out of memory");
        }
        codes = grown;
        count = unicode.decompose(text, (ssize_t)size, codes, room, options);
    }
    ssize_t bytes = count < 0 ? count : unicode.reencode(codes, count, options);
    fl_status status = bytes < 0 ? fl_fail(FL_ERR_MEMORY, "the text cannot be normalised (utf8proc: %d)", (int)bytes)
                                 : fl_text_add(out, codes, (size_t)bytes);
    free(codes);
    return status;
}

/* True of characters that form C leaves as they are, whatever stands before: a part of them that texts are made of. */
static bool stays_composed(int32_t code)
{
    return code < 0x300 || (code >= 0x3400 && code < 0xa000) || (code >= 0xac00 && code < 0xd7a4)
        || (code >= 0x400 && code < 0x483) || (code >= 0x2010 && code < 0x2027) || (code >= 0x3001 && code < 0x3097);
}

/* End of the characters beyond ASCII that begin at `at`; settled: form C leaves all of them as they are. */
static size_t foreign_end(bool *settled, const unsigned char *text, size_t size, size_t at)
{
    *settled = true;
    for (size_t length; at < size && text[at] >= 128; at += length) {
        int32_t code = 0;
        length = fl_utf8_next(&code, text + at, size - at);
        if (length == 0) length = 1;
        *settled &= stays_composed(code);
    }
    return at;
}

/* ASCII is in every form, and nothing before it changes by what follows but its last character. */
static fl_status form(fl_text *out, const unsigned char *text, size_t size, int options, bool is_c)
{
    size_t done = 0, at = 0;
    while (at < size) {
        bool settled;
        if (text[at] < 128) {
            at++;
            continue;
        }
        size_t begin = at > done ? at - 1 : at;
        at = foreign_end(&settled, text, size, at);
        if (settled && is_c) continue;
        FL_TRY(fl_text_add(out, text + done, begin - done));
        FL_TRY(form_write(out, text + begin, at - begin, options));
        done = at;
    }
    return fl_text_add(out, text + done, size - done);
}

/* ---- lower case, accents, ends ---- */

/* Each character in lower case, or without marks. */
static fl_status each_character(fl_text *out, const unsigned char *text, size_t size, bool lower)
{
    FL_TRY(
        fl_text_reserve(out, size + size / 2 + 8)); /* the capital that grows most: U+0130, from two bytes to three */
    for (size_t at = 0, length; at < size; at += length) {
        int32_t code;
        length = fl_utf8_next(&code, text + at, size - at);
        if (length == 0) length = 1, code = 0;
        int category = lower ? 0 : unicode.category(code);
        if (category >= CATEGORY_MN && category <= CATEGORY_ME) continue;
        FL_TRY(fl_text_reserve(out, 4));
        if (code < 128)
            out->data[out->size++] = (unsigned char)(lower && code >= 'A' && code <= 'Z' ? code + 32 : code);
        else if (lower && code == 0x130) FL_TRY(fl_text_add(out, "i\xcc\x87", 3));
        else out->size += (size_t)fl_utf8_write(out->data + out->size, lower ? unicode.tolower(code) : code);
    }
    return FL_OK;
}

static bool is_space(const unsigned char *text, size_t left)
{
    size_t length;
    return (char_class(&length, text, left) & FL_CHAR_SPACE) != 0;
}

static fl_status strip(fl_text *out, const unsigned char *text, size_t size, bool left, bool right)
{
    size_t begin = 0, end = size, length;
    while (left && begin < end && is_space(text + begin, end - begin)) {
        (void)char_class(&length, text + begin, end - begin);
        begin += length;
    }
    while (right && end > begin) {
        size_t last = end - 1;
        while (last > begin && (text[last] & 0xc0) == 0x80) last--;
        if (!is_space(text + last, end - last)) break;
        end = last;
    }
    return fl_text_add(out, text + begin, end - begin);
}

/* ---- replacing ---- */

static fl_status find(size_t *begin, size_t *end, const unsigned char *text, size_t size, size_t from,
                      const fl_text *pattern, const fl_regex *regex)
{
    if (regex) return fl_regex_find(begin, end, regex, text, size, from);
    const unsigned char *found = pattern->size ? memmem(text + from, size - from, pattern->data, pattern->size) : NULL;
    *begin = found ? (size_t)(found - text) : size + 1;
    *end = *begin + pattern->size;
    return FL_OK;
}

fl_status fl_text_replace(fl_text *out, const unsigned char *text, size_t size, const fl_text *pattern,
                          const fl_regex *regex, const fl_text *content)
{
    size_t begin, end, done = 0;
    for (size_t from = 0; from <= size;) {
        FL_TRY(find(&begin, &end, text, size, from, pattern, regex));
        if (begin > size) break;
        FL_TRY(fl_text_add(out, text + done, begin - done));
        FL_TRY(fl_text_add(out, content->data, content->size));
        done = end;
        from = end > begin ? end : end + 1; /* behind an empty match the next character stays */
        while (from < size && end == begin && (text[from] & 0xc0) == 0x80) from++;
    }
    return fl_text_add(out, text + done, size - done);
}

/* ---- steps ---- */

void fl_normalize_free(fl_normalize *step)
{
    fl_text_free(&step->pattern);
    fl_text_free(&step->content);
    fl_regex_free(step->regex);
}

fl_status fl_normalize_run(fl_text *out, const fl_normalize *step, const unsigned char *text, size_t size, bool begins)
{
    out->size = 0;
    FL_TRY(fl_text_reserve(out, size + 1));
    switch (step->kind) {
    case FL_NORMALIZE_NFC: return form(out, text, size, STABLE | COMPOSE, true);
    case FL_NORMALIZE_NFD: return form(out, text, size, STABLE | DECOMPOSE, false);
    case FL_NORMALIZE_NFKC: return form(out, text, size, STABLE | COMPOSE | COMPAT, false);
    case FL_NORMALIZE_NFKD: return form(out, text, size, STABLE | DECOMPOSE | COMPAT, false);
    case FL_NORMALIZE_LOWERCASE: return each_character(out, text, size, true);
    case FL_NORMALIZE_STRIP_ACCENTS: return each_character(out, text, size, false);
    case FL_NORMALIZE_STRIP: return strip(out, text, size, step->left, step->right);
    case FL_NORMALIZE_PREPEND:
        if (size > 0 && begins) FL_TRY(fl_text_add(out, step->content.data, step->content.size));
        return fl_text_add(out, text, size);
    default: return fl_text_replace(out, text, size, &step->pattern, step->regex, &step->content);
    }
}

bool fl_normalize_is_local(const fl_normalize *step)
{
    if (step->kind == FL_NORMALIZE_STRIP || step->regex) return false;
    if (step->kind != FL_NORMALIZE_REPLACE) return true;
    return step->pattern.size == 1 && step->pattern.data[0] < 128;
}
