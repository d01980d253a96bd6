/*
** tokenizer_decode.c -- from tokens back to text (see tokenizer.h).
**
** The decoders of a file change a list of texts, which begins as the tokens; in the end the texts are joined. Bytes
** that make no UTF-8 stay bytes.
*/
#include "base/utf8.h"
#include "tokenizer_json.h"

#include <stdlib.h>

/* Texts one behind the other. */
struct texts {
    fl_text bytes;
    fl_spans list;
};

static fl_status texts_end(struct texts *texts, size_t begin)
{
    return fl_spans_add(&texts->list, begin, texts->bytes.size);
}

/* Value of two hexadecimal digits; -1: they are none. */
static int hex_byte(const unsigned char *digits)
{
    int value = 0;
    for (int i = 0; i < 2; i++) {
        unsigned char c = digits[i];
        int digit = c >= '0' && c <= '9' ? c - '0'
            : c >= 'A' && c <= 'F'       ? c - 'A' + 10
            : c >= 'a' && c <= 'f'       ? c - 'a' + 10
                                         : -1;
        if (digit < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* The byte that <0x41> names; -1: the token names none. */
static int fallback_byte(const unsigned char *token, size_t size)
{
    return size == 6 && memcmp(token, "<0x", 3) == 0 && token[5] == '>' ? hex_byte(token + 3) : -1;
}

/* ---- decoders: each writes the decoded text i ---- */

/* The bytes that a token's characters stand for; a token with others stays as it is. */
static fl_status bytes_decode(fl_text *out, const unsigned char *token, size_t size)
{
    size_t start = out->size;
    FL_TRY(fl_text_reserve(out, size + 1));
    for (size_t at = 0, length; at < size; at += length) {
        int32_t code;
        int byte = -1;
        if ((length = fl_utf8_next(&code, token + at, size - at)) > 0) byte = fl_byte_of_char(code);
        if (byte < 0) {
            out->size = start;
            return fl_text_add(out, token, size);
        }
        out->data[out->size++] = (unsigned char)byte;
    }
    return FL_OK;
}

static fl_status metaspace_decode(fl_text *out, const fl_decode *decode, const unsigned char *token, size_t size,
                                  bool first)
{
    static const fl_text space = {(unsigned char *)" ", 1, 1}, nothing = {(unsigned char *)"", 0, 1};
    return fl_text_replace(out, token, size, &decode->pattern, NULL, first && decode->drops ? &nothing : &space);
}

static bool is_at(const fl_text *content, const unsigned char *text, size_t left)
{
    return content->size > 0 && left >= content->size && memcmp(text, content->data, content->size) == 0;
}

static fl_status strip_decode(fl_text *out, const fl_decode *decode, const unsigned char *token, size_t size)
{
    size_t begin = 0, end = size, width = decode->content.size;
    for (int i = 0; i < decode->start && is_at(&decode->content, token + begin, end - begin); i++) begin += width;
    for (int i = 0; i < decode->stop && end - begin >= width && is_at(&decode->content, token + end - width, width);
         i++)
        end -= width;
    return fl_text_add(out, token + begin, end - begin);
}

static fl_status suffix_decode(fl_text *out, const fl_decode *decode, const unsigned char *token, size_t size,
                               bool last)
{
    fl_text space = {(unsigned char *)" ", last ? 0 : 1, 1};
    return fl_text_replace(out, token, size, &decode->pattern, NULL, &space);
}

static fl_status one_decode(fl_text *out, const fl_decode *decode, const struct texts *from, size_t i)
{
    const unsigned char *token = from->bytes.data + from->list.list[i].begin;
    size_t size = from->list.list[i].end - from->list.list[i].begin;
    switch (decode->kind) {
    case FL_DECODE_BYTES: return bytes_decode(out, token, size);
    case FL_DECODE_METASPACE: return metaspace_decode(out, decode, token, size, i == 0);
    case FL_DECODE_STRIP: return strip_decode(out, decode, token, size);
    case FL_DECODE_REPLACE: return fl_text_replace(out, token, size, &decode->pattern, decode->regex, &decode->content);
    case FL_DECODE_SUFFIX: return suffix_decode(out, decode, token, size, i + 1 == from->list.count);
    default: return fl_text_add(out, token, size);
    }
}

/* Bytes in a row are one text. */
static fl_status fallback_decode(struct texts *to, const struct texts *from)
{
    bool open = false;
    size_t begin = 0;
    for (size_t i = 0; i < from->list.count; i++) {
        const unsigned char *token = from->bytes.data + from->list.list[i].begin;
        size_t size = from->list.list[i].end - from->list.list[i].begin;
        int byte = fallback_byte(token, size);
        if (byte < 0 && open) FL_TRY(texts_end(to, begin));
        if (!open || byte < 0) begin = to->bytes.size;
        open = byte >= 0;
        unsigned char c = (unsigned char)byte;
        FL_TRY(fl_text_add(&to->bytes, open ? &c : token, open ? 1 : size));
        if (!open) FL_TRY(texts_end(to, begin));
    }
    return open ? texts_end(to, begin) : FL_OK;
}

static fl_status decode_step(struct texts *to, const fl_decode *decode, const struct texts *from)
{
    bool fuses = decode->kind == FL_DECODE_BYTES || decode->kind == FL_DECODE_FUSE;
    to->bytes.size = to->list.count = 0;
    FL_TRY(fl_text_reserve(&to->bytes, from->bytes.size + 1));
    if (decode->kind == FL_DECODE_FALLBACK) return fallback_decode(to, from);
    for (size_t i = 0; i < from->list.count; i++) {
        size_t begin = to->bytes.size;
        FL_TRY(one_decode(&to->bytes, decode, from, i));
        if (!fuses) FL_TRY(texts_end(to, begin));
    }
    return fuses ? texts_end(to, 0) : FL_OK;
}

/* ---- all decoders ---- */

/* The tokens as texts; without decoders spaces lie between them. */
static fl_status tokens_list(struct texts *out, const fl_tokenizer *tokenizer, const int64_t *ids, size_t count,
                             bool skip_special)
{
    FL_TRY(fl_text_reserve(&out->bytes, count * 4 + 1));
    for (size_t i = 0; i < count; i++) {
        const char *token;
        size_t size, begin = out->bytes.size;
        if (!fl_tokenizer_token(tokenizer, ids[i], &token, &size))
            return fl_fail(FL_ERR_VALUE, "decode: entry %zu is %lld, which is no token (ids are 0 to %lld)", i + 1,
                           (long long)ids[i], (long long)fl_tokenizer_size(tokenizer) - 1);
        if (skip_special && ids[i] < tokenizer->special_limit && tokenizer->special[ids[i]]) continue;
        if (tokenizer->decoder_count == 0 && out->list.count > 0) FL_TRY(fl_text_add(&out->bytes, " ", 1));
        FL_TRY(fl_text_add(&out->bytes, token, size));
        FL_TRY(texts_end(out, begin));
    }
    return FL_OK;
}

fl_status fl_tokenizer_decode(char **text, size_t *size, fl_tokenizer *tokenizer, const int64_t *ids, size_t count,
                              bool skip_special)
{
    struct texts sides[2] = {{{0}, {0}}, {{0}, {0}}};
    int side = 0;
    fl_status status = tokens_list(&sides[0], tokenizer, ids, count, skip_special);
    for (int i = 0; i < tokenizer->decoder_count && status == FL_OK; i++, side = !side)
        status = decode_step(&sides[!side], &tokenizer->decoders[i], &sides[side]);
    if (status == FL_OK) {
        *text = (char *)sides[side].bytes.data;
        *size = sides[side].bytes.size;
        sides[side].bytes.data = NULL;
    }
    for (int i = 0; i < 2; i++) {
        fl_text_free(&sides[i].bytes);
        fl_spans_free(&sides[i].list);
    }
    return status;
}

/* ---- reading ---- */

static fl_status read_count(int *out, json_t *step, const char *key)
{
    json_t *value = json_object_get(step, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > 1000000)
        return fl_fail(FL_ERR_IO, "decoder.%s must be a whole number from 0 to 1000000", key);
    *out = (int)json_integer_value(value);
    return FL_OK;
}

static fl_status read_metaspace(fl_decode *decode, json_t *step)
{
    json_t *scheme = json_object_get(step, "prepend_scheme");
    FL_TRY(read_flag(&decode->drops, step, "add_prefix_space", true, "decoder"));
    if (json_is_string(scheme) && strcmp(json_string_value(scheme), "never") == 0) decode->drops = false;
    return read_text(&decode->pattern, step, "replacement", "decoder");
}

static fl_status decoder_fill(fl_decode *decode, json_t *step)
{
    switch (decode->kind) {
    case FL_DECODE_METASPACE: return read_metaspace(decode, step);
    case FL_DECODE_STRIP:
        FL_TRY(read_count(&decode->start, step, "start"));
        FL_TRY(read_count(&decode->stop, step, "stop"));
        return read_text(&decode->content, step, "content", "decoder");
    case FL_DECODE_REPLACE:
        FL_TRY(fl_tokenizer_read_pattern(&decode->pattern, &decode->regex, step, "decoder"));
        return read_text(&decode->content, step, "content", "decoder");
    case FL_DECODE_SUFFIX: return read_text(&decode->pattern, step, "suffix", "decoder");
    default: return FL_OK;
    }
}

fl_status fl_tokenizer_read_decoder(fl_tokenizer *tokenizer, json_t *step)
{
    static const struct {
        const char *type;
        fl_decode_kind kind;
    } kinds[] = {
        {"ByteLevel", FL_DECODE_BYTES},   {"Metaspace", FL_DECODE_METASPACE}, {"ByteFallback", FL_DECODE_FALLBACK},
        {"Fuse", FL_DECODE_FUSE},         {"Strip", FL_DECODE_STRIP},         {"Replace", FL_DECODE_REPLACE},
        {"BPEDecoder", FL_DECODE_SUFFIX},
    };
    const char *type = NULL;
    size_t i;
    json_t *list, *one;
    if (is_missing(step)) return FL_OK;
    FL_TRY(step_type(&type, step, "decoder"));
    if (strcmp(type, "Sequence") == 0) {
        FL_TRY(read_list(&list, step, "decoders", "decoder"));
        json_array_foreach(list, i, one) FL_TRY(fl_tokenizer_read_decoder(tokenizer, one));
        return FL_OK;
    }
    for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        if (tokenizer->decoder_count == FL_TOKENIZER_STEPS)
            return fl_fail(FL_ERR_IO, "decoder has more than %d steps", FL_TOKENIZER_STEPS);
        fl_decode *d = &tokenizer->decoders[tokenizer->decoder_count++];
        d->kind = kinds[i].kind;
        return decoder_fill(d, step);
    }
    return refuse_type("a decoder", type);
}
