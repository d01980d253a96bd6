/*
** bpe.c -- byte-pair encoding: tables (see bpe.h; bpe_encode.c encodes).
*/
#include "bpe.h"
#include "bpe_merges.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

void fl_bpe_free(fl_bpe *bpe)
{
    fl_words_free(&bpe->tokens);
    fl_words_free(&bpe->pieces);
    fl_text_free(&bpe->prefix);
    fl_text_free(&bpe->suffix);
    fl_text_free(&bpe->border);
    free(bpe->merges);
}

/* ---- bytes as characters ---- */

/* Printable in Latin-1: bytes that stand for themselves. */
static bool is_plain(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

int32_t fl_byte_char(int byte)
{
    if (is_plain(byte)) return byte;
    return byte <= ' ' ? 0x100 + byte : byte < 0xad ? 0x121 + byte - 0x7f : 0x143;
}

int fl_byte_of_char(int32_t code)
{
    if (code < 0x100) return is_plain(code) ? code : -1;
    if (code <= 0x120) return code - 0x100;
    return code <= 0x142 ? code - 0x121 + 0x7f : code == 0x143 ? 0xad : -1;
}

/* The bytes that a token stands for; false: it has characters that stand for none, and no piece is like it. */
static bool token_bytes(unsigned char *out, size_t *count, const unsigned char *token, size_t size)
{
    *count = 0;
    for (size_t at = 0, length; at < size; at += length) {
        int32_t code;
        int byte;
        if ((length = fl_utf8_next(&code, token + at, size - at)) == 0 || (byte = fl_byte_of_char(code)) < 0)
            return false;
        out[(*count)++] = (unsigned char)byte;
    }
    return true;
}

static fl_status pieces_fill(fl_bpe *bpe)
{
    fl_text buffer = {0};
    fl_status status = FL_OK;
    const unsigned char *token;
    for (int32_t i = 0; i < bpe->tokens.limit && status == FL_OK; i++) {
        size_t size, count;
        if (!fl_words_get(&bpe->tokens, i, &token, &size)) continue;
        if ((status = fl_text_reserve(&buffer, size + 1)) != FL_OK) break;
        if (token_bytes(buffer.data, &count, token, size)) status = fl_words_put(&bpe->pieces, i, buffer.data, count);
    }
    fl_text_free(&buffer);
    return status;
}

/* ---- merges ---- */

fl_status fl_bpe_reserve(fl_bpe *bpe, size_t count)
{
    int bits = 4;
    while (((size_t)1 << bits) < 2 * count) bits++;
    if (bits > 30 || !(bpe->merges = malloc(sizeof *bpe->merges << bits)))
        return fl_fail(FL_ERR_MEMORY, "out of memory for %zu merges", count);
    bpe->merge_bits = bits;
    for (size_t i = 0; i < (size_t)1 << bits; i++) bpe->merges[i].pair = NO_PAIR;
    return FL_OK;
}

static fl_status require(int32_t *token, const fl_bpe *bpe, const char *what, const char *word, size_t size)
{
    char shown[FL_SHOWN_TEXT];
    *token = fl_words_find(&bpe->tokens, word, size);
    if (*token >= 0) return FL_OK;
    fl_text_clean(shown, sizeof shown, word, size, "");
    return fl_fail(FL_ERR_IO, "%s \"%s\" is not in the vocabulary", what, shown);
}

fl_status fl_bpe_merge(fl_bpe *bpe, const char *left, size_t left_size, const char *right, size_t right_size)
{
    int32_t a, b, result;
    fl_text both = {0};
    FL_TRY(require(&a, bpe, "the token", left, left_size));
    FL_TRY(require(&b, bpe, "the token", right, right_size));
    size_t cut = bpe->prefix.size;
    if (cut > right_size) return fl_fail(FL_ERR_IO, "the right token is shorter than the prefix of continuing tokens");
    fl_status status = fl_text_add(&both, left, left_size);
    if (status == FL_OK) status = fl_text_add(&both, right + cut, right_size - cut);
    if (status == FL_OK) status = require(&result, bpe, "what they make,", (char *)both.data, both.size);
    fl_text_free(&both);
    FL_TRY(status);
    struct fl_merge *slot = merge_slot(bpe, merge_pair(a, b));
    *slot = (struct fl_merge){merge_pair(a, b), bpe->merge_count++, result};
    return FL_OK;
}

/* ---- the border ---- */

static bool ends_with(const unsigned char *word, size_t size, const fl_text *end)
{
    return size >= end->size && memcmp(word + size - end->size, end->data, end->size) == 0;
}

/* True if no merge joins a symbol with a right one that begins with `border`, except behind one that ends with it. */
static bool is_border(const fl_bpe *bpe, const fl_text *border)
{
    const unsigned char *left, *right;
    size_t left_size, right_size;
    if (fl_words_find(&bpe->tokens, border->data, border->size) < 0) return false;
    for (size_t i = 0; i < (size_t)1 << bpe->merge_bits; i++) {
        uint64_t pair = bpe->merges[i].pair;
        if (pair == NO_PAIR) continue;
        if (!fl_words_get(&bpe->tokens, (int64_t)(pair >> 32), &left, &left_size)
            || !fl_words_get(&bpe->tokens, (int64_t)(pair & 0xffffffff), &right, &right_size))
            return false;
        bool begins = right_size >= border->size && memcmp(right, border->data, border->size) == 0;
        if (begins && !ends_with(left, left_size, border)) return false;
        if (left_size == 0 || right_size == 0) return false;
    }
    return true;
}

static fl_status border_find(fl_bpe *bpe)
{
    static const unsigned char underline[] = {0xe2, 0x96, 0x81}; /* U+2581, which stands for a space */
    FL_TRY(fl_text_add(&bpe->border, underline, sizeof underline));
    if (bpe->byte_level || bpe->prefix.size || bpe->suffix.size || bpe->whole_first || !is_border(bpe, &bpe->border))
        bpe->border.size = 0;
    return FL_OK;
}

/* ---- tables ---- */

fl_status fl_bpe_seal(fl_bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        int length = snprintf(name, sizeof name, "<0x%02X>", byte);
        if (bpe->byte_level) length = fl_utf8_write((unsigned char *)name, fl_byte_char(byte));
        bpe->bytes[byte] = fl_words_find(&bpe->tokens, name, (size_t)length);
    }
    if (bpe->byte_level) FL_TRY(pieces_fill(bpe));
    return border_find(bpe);
}
