/*
** json.c -- reading JSON (see json.h): limits before jansson sees the text, and words for its errors.
*/
#include "json.h"

#include <jansson.h>
#include <limits.h>
#include <string.h>

/* position: of the wrong byte or the last byte of a wrong word, counted from 1. */
static fl_status fail_at(const char *text, size_t position, const char *what)
{
    int line = 1;
    for (size_t i = 0; i + 1 < position; i++) line += text[i] == '\n';
    return fl_fail(FL_ERR_IO, "%s at byte %zu (line %d)", what, position, line);
}

/* Refuses what would take too much stack or memory to read. */
static fl_status scan(const char *text, size_t size, size_t most_values)
{
    size_t depth = 0, values = 1;
    bool in_string = false;
    if (size > INT_MAX) return fl_fail(FL_ERR_IO, "a text of more than 2 GiB"); /* positions are ints */
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '"') in_string = !in_string;
        else if (in_string) i += c == '\\';
        else if (c == '[' || c == '{') {
            if (++depth > FL_JSON_DEPTH) return fail_at(text, i + 1, "too many nested lists and objects");
            values++;
        } else if (c == ']' || c == '}') depth -= depth > 0;
        else values += c == ',';
    }
    return most_values && values > most_values ? fl_fail(FL_ERR_IO, "more than %zu values", most_values) : FL_OK;
}

/* The string whose closing quote is the byte before `end`: its first byte, behind the opening quote. */
static const char *string_start(const char *text, const char *end)
{
    for (const char *at = end - 2; at > text; at--) {
        const char *escape = at;
        while (escape > text && escape[-1] == '\\') escape--;
        if (*at == '"' && (at - escape) % 2 == 0) return at + 1;
    }
    return text + 1;
}

static fl_status fail_twice(const char *text, size_t position)
{
    const char *end = text + position, *start = string_start(text, end);
    char key[FL_SHOWN_TEXT], what[FL_SHOWN_TEXT + 32];
    fl_text_clean(key, sizeof key, start, (size_t)(end - 1 - start), "");
    snprintf(what, sizeof what, "the key \"%s\" occurs twice", key);
    return fail_at(text, position, what);
}

/* Errors of which jansson gives the position before the byte. */
static bool is_before(const json_error_t *error)
{
    return json_error_code(error) == json_error_invalid_utf8 || strncmp(error->text, "control character", 17) == 0
        || strncmp(error->text, "unexpected newline", 18) == 0;
}

static fl_status fail_parse(const char *text, const json_error_t *error)
{
    size_t position = (size_t)error->position + is_before(error);
    switch (json_error_code(error)) {
    case json_error_duplicate_key: return fail_twice(text, position);
    case json_error_premature_end_of_input: return fail_at(text, position, "the text ends early");
    case json_error_end_of_input_expected: return fail_at(text, position, "text after the value");
    case json_error_invalid_utf8: return fail_at(text, position, "not UTF-8");
    case json_error_null_byte_in_key: return fail_at(text, position, "a NUL in a key");
    case json_error_null_character: return fail_at(text, position, "a NUL in a string");
    case json_error_unknown:
    case json_error_out_of_memory: return fl_fail(FL_ERR_MEMORY, "out of memory");
    default: return fail_at(text, position, error->text);
    }
}

fl_status fl_json_read(json_t **out, const char *text, size_t size, fl_json_limits limits)
{
    json_error_t error;
    FL_TRY(scan(text, size, limits.values));
    size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | (limits.no_nul ? 0 : JSON_ALLOW_NUL);
    json_t *value = json_loadb(text, size, flags, &error);
    if (!value) return fail_parse(text, &error);
    *out = value;
    return FL_OK;
}
