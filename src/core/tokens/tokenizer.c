/*
** tokenizer.c -- encoding a text by the steps of a tokenizer (see tokenizer.h).
*/
#include "tokenizer_parts.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

void fl_tokenizer_free(fl_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    fl_bpe_free(&tokenizer->bpe);
    fl_words_free(&tokenizer->names);
    fl_added_free(&tokenizer->plain);
    fl_added_free(&tokenizer->normalized);
    free(tokenizer->special);
    for (int i = 0; i < tokenizer->normalizer_count; i++) fl_normalize_free(&tokenizer->normalizers[i]);
    for (int i = 0; i < tokenizer->split_count; i++) fl_cut_free(&tokenizer->splits[i]);
    for (int i = 0; i < tokenizer->decoder_count; i++) {
        fl_text_free(&tokenizer->decoders[i].pattern);
        fl_text_free(&tokenizer->decoders[i].content);
        fl_regex_free(tokenizer->decoders[i].regex);
    }
    fl_ids_free(&tokenizer->before);
    fl_ids_free(&tokenizer->behind);
    fl_tokenizer_work_free(tokenizer->work);
    free(tokenizer);
}

fl_tokenizer_work *fl_tokenizer_work_new(void) { return calloc(1, sizeof(fl_tokenizer_work)); }

void fl_tokenizer_work_free(fl_tokenizer_work *work)
{
    if (!work) return;
    fl_bpe_work_free(&work->bpe);
    fl_cut_work_free(&work->split);
    for (int i = 0; i < 2; i++) fl_text_free(&work->texts[i]);
    fl_ids_free(&work->ids);
    free(work);
}

/* ---- one stretch of text, without added tokens ---- */

/* True if the pieces are those of one known pattern, and can be encoded as they are found. */
static bool is_scan(const fl_tokenizer *tokenizer)
{
    return tokenizer->split_count == 1 && tokenizer->splits[0].kind == FL_CUT_SCAN;
}

static fl_status scan_encode(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const fl_text *text)
{
    const fl_scan *scan = &tokenizer->splits[0].scan;
    for (size_t at = 0; at < text->size;) {
        size_t end = fl_scan_next(scan, text->data, text->size, at);
        FL_TRY(fl_bpe_encode(&work->ids, &tokenizer->bpe, &work->bpe, text->data + at, end - at, text->size - at));
        at = end;
    }
    return FL_OK;
}

static fl_status pieces_encode(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const fl_text *text, bool begins,
                               bool first)
{
    const fl_text *cut;
    const fl_spans *pieces;
    if (is_scan(tokenizer)) return scan_encode(tokenizer, work, text);
    FL_TRY(fl_cut_run(&cut, &pieces, &work->split, tokenizer->splits, tokenizer->split_count, text, begins, first));
    for (size_t i = 0; i < pieces->count; i++) {
        size_t begin = pieces->list[i].begin, end = pieces->list[i].end;
        FL_TRY(
            fl_bpe_encode(&work->ids, &tokenizer->bpe, &work->bpe, cut->data + begin, end - begin, cut->size - begin));
    }
    return FL_OK;
}

/* ---- added tokens, normalising ---- */

fl_status fl_tokenizer_normalize(const fl_text **out, const fl_tokenizer *tokenizer, fl_tokenizer_work *work,
                                 const fl_text *text, bool begins, bool *first)
{
    for (int i = 0; i < tokenizer->normalizer_count; i++) {
        fl_text *to = &work->texts[i & 1];
        FL_TRY(fl_normalize_run(to, &tokenizer->normalizers[i], text->data, text->size, begins));
        if (tokenizer->normalizers[i].kind == FL_NORMALIZE_STRIP && text->size > 0 && to->size > 0)
            *first &= text->data[0] == to->data[0];
        text = to;
    }
    *out = text;
    return FL_OK;
}

typedef fl_status stretch_encode(const fl_tokenizer *t, fl_tokenizer_work *work, const fl_text *text, bool begins,
                                 bool first);

/* Encodes the text between added tokens, and these. begins: of the text; first: it is the first one. */
static fl_status between(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const fl_added *added,
                         const fl_text *text, bool begins, bool first, stretch_encode *encode)
{
    size_t done = 0, begin, end, next = 0;
    while (done < text->size) {
        const fl_added_token *token = fl_added_find(&begin, &end, &next, added, text->data, text->size, next, done);
        size_t stop = token ? begin : text->size;
        fl_text part = {text->data + done, stop > done ? stop - done : 0, 0};
        if (part.size > 0) FL_TRY(encode(tokenizer, work, &part, begins || done > 0, first && done == 0));
        if (!token) break;
        FL_TRY(fl_ids_add(&work->ids, token->id));
        done = end;
        if (next < done) next = done;
    }
    return FL_OK;
}

/* A stretch that is UTF-8. */
static fl_status valid_encode(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const fl_text *text, bool begins,
                              bool first)
{
    FL_TRY(fl_tokenizer_normalize(&text, tokenizer, work, text, begins, &first));
    if (tokenizer->normalized.count == 0) return pieces_encode(tokenizer, work, text, begins, first);
    return between(tokenizer, work, &tokenizer->normalized, text, begins, first, pieces_encode);
}

/* End of the UTF-8 that begins at `at`. */
static size_t valid_end(const unsigned char *text, size_t size, size_t at)
{
    for (size_t length; at < size; at += length) {
        uint64_t word;
        int32_t code;
        length = 1;
        while (size - at >= sizeof word && (memcpy(&word, text + at, sizeof word), !(word & 0x8080808080808080)))
            at += 8;
        if (at < size && text[at] >= 128 && (length = fl_utf8_next(&code, text + at, size - at)) == 0) return at;
        if (at >= size) break;
    }
    return at;
}

static size_t invalid_end(const unsigned char *text, size_t size, size_t at)
{
    int32_t code;
    while (at < size && fl_utf8_next(&code, text + at, size - at) == 0) at++;
    return at;
}

/* A stretch of any bytes. */
static fl_status any_encode(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const fl_text *text, bool begins,
                            bool first)
{
    for (size_t at = 0, end; at < text->size; at = end) {
        end = valid_end(text->data, text->size, at);
        fl_text part = {text->data + at, end - at, 0};
        if (part.size > 0) FL_TRY(valid_encode(tokenizer, work, &part, begins && at == 0, first && at == 0));
        size_t wrong = end;
        end = invalid_end(text->data, text->size, wrong);
        if (end > wrong)
            FL_TRY(fl_bpe_encode(&work->ids, &tokenizer->bpe, &work->bpe, text->data + wrong, end - wrong,
                                 text->size - wrong));
    }
    return FL_OK;
}

fl_status fl_tokenizer_add_text(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const unsigned char *text,
                                size_t size, bool begins)
{
    fl_text whole = {(unsigned char *)text, size, 0};
    return between(tokenizer, work, &tokenizer->plain, &whole, begins, begins, any_encode);
}

/* ---- the whole ---- */

fl_status fl_tokenizer_ids_tensor(fl_tensor **out, const fl_tokenizer *tokenizer, const fl_ids *ids, bool add_special,
                                  fl_dtype dtype)
{
    const fl_ids *parts[] = {&tokenizer->before, ids, &tokenizer->behind};
    size_t from = add_special ? 0 : 1, to = add_special ? 3 : 2, count = 0, n = 0;
    for (size_t p = from; p < to; p++) count += parts[p]->count;
    fl_shape shape = {.ndim = 1, .dims = {(int64_t)count}};
    FL_TRY(fl_tensor_empty_local(out, dtype, &shape));
    void *data = count > 0 ? fl_tensor_data(*out) : NULL;
    for (size_t p = from; p < to; p++)
        for (size_t i = 0; i < parts[p]->count; i++, n++) {
            if (dtype == FL_INT32) ((int32_t *)data)[n] = parts[p]->list[i];
            else ((int64_t *)data)[n] = parts[p]->list[i];
        }
    return FL_OK;
}

fl_status fl_tokenizer_encode(fl_tensor **out, fl_tokenizer *tokenizer, const char *text, size_t size, bool add_special,
                              fl_dtype dtype)
{
    if (!tokenizer->work && !(tokenizer->work = fl_tokenizer_work_new()))
        return fl_fail(FL_ERR_MEMORY, "encode: out of memory");
    tokenizer->work->ids.count = 0;
    fl_status status = fl_tokenizer_add_text(tokenizer, tokenizer->work, (const unsigned char *)text, size, true);
    if (status != FL_OK) return fl_fail_prefix(status, "encode: ");
    return fl_tokenizer_ids_tensor(out, tokenizer, &tokenizer->work->ids, add_special, dtype);
}

/* ---- properties of a tokenizer ---- */

int64_t fl_tokenizer_size(const fl_tokenizer *tokenizer)
{
    return tokenizer->names.limit > tokenizer->bpe.tokens.limit ? tokenizer->names.limit : tokenizer->bpe.tokens.limit;
}

int64_t fl_tokenizer_id(const fl_tokenizer *tokenizer, const char *token, size_t size)
{
    int32_t id = fl_words_find(&tokenizer->bpe.tokens, token, size);
    return id >= 0 ? id : fl_words_find(&tokenizer->names, token, size);
}

bool fl_tokenizer_token(const fl_tokenizer *tokenizer, int64_t id, const char **token, size_t *size)
{
    const unsigned char **word = (const unsigned char **)token;
    return fl_words_get(&tokenizer->bpe.tokens, id, word, size) || fl_words_get(&tokenizer->names, id, word, size);
}

void fl_tokenizer_describe(const fl_tokenizer *tokenizer, char *text, size_t size)
{
    const char *kind = tokenizer->bpe.byte_level ? "byte-level BPE"
        : tokenizer->bpe.byte_fallback           ? "BPE with byte fallback"
                                                 : "BPE";
    snprintf(text, size, "%s, %d tokens, %u merges, %d added", kind,
             (int)(tokenizer->bpe.tokens.count + tokenizer->names.count), (unsigned)tokenizer->bpe.merge_count,
             (int)tokenizer->added_count);
}
