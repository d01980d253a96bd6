/*
** tokenizer_read.c -- reading the files of a tokenizer (see tokenizer.h): the model, added tokens.
*/
#include "file/json.h"
#include "file/open.h"
#include "tokenizer_json.h"

#include <stdlib.h>
#include <unistd.h>

static fl_status file_read(fl_text *out, const char *path)
{
    int fd;
    int64_t size;
    FL_TRY(fl_file_open(&fd, &size, "tokenizer", path));
    fl_status status = fl_text_reserve(out, (size_t)size);
    if (status != FL_OK) fl_fail_prefix(status, "tokenizer: %s: ", path);
    else status = fl_file_read(fd, out->data, size, 0, "tokenizer", path);
    if (status == FL_OK) out->size = (size_t)size;
    close(fd);
    return status;
}

static fl_status json_file(json_t **out, const char *path)
{
    fl_text text = {0};
    FL_TRY(file_read(&text, path));
    fl_status status = fl_json_read(out, (char *)text.data, text.size, (fl_json_limits){0});
    fl_text_free(&text);
    if (status == FL_ERR_IO) return fl_fail_prefix(status, "tokenizer: %s: not JSON: ", path);
    if (status != FL_OK) return fl_fail_prefix(status, "tokenizer: %s: ", path);
    if (json_is_object(*out)) return FL_OK;
    json_decref(*out);
    return fl_fail(FL_ERR_IO, "tokenizer: %s: not a JSON object", path);
}

/* ---- the vocabulary ---- */

static fl_status fail_token(const char *token, const char *what)
{
    char shown[FL_SHOWN_TEXT];
    return fl_fail(FL_ERR_IO, "the token \"%s\" %s", fl_text_name(shown, token), what);
}

static fl_status read_id(int32_t *out, json_t *value, const char *token)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0) return fail_token(token, "has an id that is no whole number >= 0");
    if (id >= FL_WORDS_MOST) return fail_token(token, "has an id beyond 4194303, the largest one supported");
    *out = (int32_t)id;
    return FL_OK;
}

static fl_status check_free(const fl_bpe *bpe, int32_t id, const char *token)
{
    const unsigned char *other;
    size_t size;
    char shown[FL_SHOWN_TEXT], first[FL_SHOWN_TEXT];
    if (!fl_words_get(&bpe->tokens, id, &other, &size)) return FL_OK;
    fl_text_clean(first, sizeof first, (const char *)other, size, "");
    return fl_fail(FL_ERR_IO, "the tokens \"%s\" and \"%s\" have the same id %d", first, fl_text_name(shown, token),
                   (int)id);
}

static fl_status read_vocab(fl_bpe *bpe, json_t *vocab, const char *where)
{
    const char *token;
    json_t *value;
    if (!json_is_object(vocab)) return fl_fail(FL_ERR_IO, "%s must be an object of tokens and ids", where);
    if (json_object_size(vocab) == 0) return fl_fail(FL_ERR_IO, "%s is empty", where);
    json_object_foreach(vocab, token, value)
    {
        int32_t id;
        FL_TRY(read_id(&id, value, token));
        FL_TRY(check_free(bpe, id, token));
        FL_TRY(fl_words_put(&bpe->tokens, id, token, strlen(token)));
    }
    return FL_OK;
}

/* ---- merges ---- */

/* "left right": two words with a space between them. */
static fl_status merge_line(fl_bpe *bpe, const char *line, size_t size)
{
    const char *space = memchr(line, ' ', size);
    size_t left = space ? (size_t)(space - line) : 0;
    if (!space || memchr(space + 1, ' ', size - left - 1) || left == 0 || left + 1 == size)
        return fl_fail(FL_ERR_IO, "a merge is two tokens with a space between them");
    return fl_bpe_merge(bpe, line, left, space + 1, size - left - 1);
}

static fl_status merge_entry(fl_bpe *bpe, json_t *entry)
{
    json_t *left = json_array_get(entry, 0), *right = json_array_get(entry, 1);
    if (json_is_string(entry)) return merge_line(bpe, json_string_value(entry), json_string_length(entry));
    if (json_array_size(entry) != 2 || !json_is_string(left) || !json_is_string(right))
        return fl_fail(FL_ERR_IO, "a merge is a text or a pair of tokens");
    return fl_bpe_merge(bpe, json_string_value(left), json_string_length(left), json_string_value(right),
                        json_string_length(right));
}

static fl_status read_merges(fl_bpe *bpe, json_t *merges)
{
    size_t i;
    json_t *entry;
    if (!json_is_array(merges)) return fl_fail(FL_ERR_IO, "model.merges must be a list of merges");
    FL_TRY(fl_bpe_reserve(bpe, json_array_size(merges)));
    json_array_foreach(merges, i, entry)
    {
        fl_status status = merge_entry(bpe, entry);
        if (status != FL_OK) return fl_fail_prefix(status, "model.merges: entry %zu: ", i + 1);
    }
    return FL_OK;
}

/* merges.txt: a merge in each line, behind "#version". */
static fl_status read_merges_text(fl_bpe *bpe, const fl_text *text)
{
    const char *at = (const char *)text->data, *end = at + text->size, *next;
    size_t lines = 1;
    for (const char *p = at; p < end; p++) lines += *p == '\n';
    FL_TRY(fl_bpe_reserve(bpe, lines));
    for (int number = 1; at < end; at = next, number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r') stop--;
        if (stop == at || (stop - at >= 8 && memcmp(at, "#version", 8) == 0)) continue;
        fl_status status = merge_line(bpe, at, (size_t)(stop - at));
        if (status != FL_OK) return fl_fail_prefix(status, "line %d: ", number);
    }
    return FL_OK;
}

/* ---- the model ---- */

static fl_status read_optional(fl_text *out, json_t *model, const char *key)
{
    return is_missing(json_object_get(model, key)) ? FL_OK : read_text(out, model, key, "model");
}

static fl_status read_unknown(fl_bpe *bpe, json_t *model)
{
    fl_text token = {0};
    fl_status status = read_optional(&token, model, "unk_token");
    bpe->unknown = status == FL_OK && token.data ? fl_words_find(&bpe->tokens, token.data, token.size) : -1;
    if (status == FL_OK && token.data && bpe->unknown < 0)
        status = fl_fail(FL_ERR_IO, "model.unk_token is not in the vocabulary");
    fl_text_free(&token);
    return status;
}

static fl_status read_model(fl_bpe *bpe, json_t *model)
{
    json_t *type = json_object_get(model, "type"), *dropout = json_object_get(model, "dropout");
    if (!json_is_object(model)) return fl_fail(FL_ERR_IO, "there is no model");
    if (!is_missing(type) && !json_is_string(type)) return fl_fail(FL_ERR_IO, "model.type must be a string");
    if (!is_missing(type) && strcmp(json_string_value(type), "BPE") != 0)
        return refuse_type("a model", json_string_value(type));
    if (!is_missing(dropout) && json_number_value(dropout) != 0)
        return fl_fail(FL_ERR_IO, "model.dropout, which makes tokens random, is not supported");
    FL_TRY(read_flag(&bpe->byte_fallback, model, "byte_fallback", false, "model"));
    FL_TRY(read_flag(&bpe->fuse_unknown, model, "fuse_unk", false, "model"));
    FL_TRY(read_flag(&bpe->whole_first, model, "ignore_merges", false, "model"));
    FL_TRY(read_optional(&bpe->prefix, model, "continuing_subword_prefix"));
    FL_TRY(read_optional(&bpe->suffix, model, "end_of_word_suffix"));
    if (bpe->byte_level && bpe->prefix.size + bpe->suffix.size > 0)
        return fl_fail(FL_ERR_IO, "a prefix or suffix of tokens at byte level is not supported");
    FL_TRY(read_vocab(bpe, json_object_get(model, "vocab"), "model.vocab"));
    FL_TRY(read_unknown(bpe, model));
    return read_merges(bpe, json_object_get(model, "merges"));
}

/* ---- added tokens ---- */

static fl_status mark_special(fl_tokenizer *tokenizer, int32_t id)
{
    if (id >= tokenizer->special_limit) {
        bool *grown = realloc(tokenizer->special, (size_t)id + 1);
        if (!grown) return fl_fail(FL_ERR_MEMORY, "out of memory");
        memset(grown + tokenizer->special_limit, 0, (size_t)(id + 1 - tokenizer->special_limit));
        tokenizer->special = grown;
        tokenizer->special_limit = id + 1;
    }
    tokenizer->special[id] = true;
    return FL_OK;
}

/* The token gets its id, which agrees with the model's vocabulary and belongs to no other token. */
static fl_status name_token(fl_tokenizer *tokenizer, int32_t id, const char *content, size_t size)
{
    const char *other;
    size_t other_size;
    int64_t known = fl_tokenizer_id(tokenizer, content, size);
    if (known == id) return FL_OK;
    if (known >= 0) return fl_fail(FL_ERR_IO, "its id is %d, and %d in what comes before", (int)id, (int)known);
    if (fl_tokenizer_token(tokenizer, id, &other, &other_size))
        return fl_fail(FL_ERR_IO, "its id %d is that of another token", (int)id);
    return fl_words_put(&tokenizer->names, id, content, size);
}

/* Normalised tokens are searched in normalised text, in the form they have there. */
static fl_status put_normalized(fl_tokenizer *tokenizer, const fl_added_token *token, const char *content, size_t size)
{
    const fl_text *form, text = {(unsigned char *)content, size, 0};
    bool first = true;
    fl_tokenizer_work *work = fl_tokenizer_work_new();
    if (!work) return fl_fail(FL_ERR_MEMORY, "out of memory");
    fl_status status = fl_tokenizer_normalize(&form, tokenizer, work, &text, true, &first);
    if (status == FL_OK && form->size > 0) status = fl_added_put(&tokenizer->normalized, token, form->data, form->size);
    fl_tokenizer_work_free(work);
    return status;
}

static fl_status add_token(fl_tokenizer *tokenizer, json_t *entry)
{
    fl_added_token token = {0};
    bool normalized = true;
    json_t *content = json_object_get(entry, "content");
    if (!json_is_string(content)) return fl_fail(FL_ERR_IO, "content must be a string");
    const char *text = json_string_value(content);
    size_t size = json_string_length(content);
    FL_TRY(read_id(&token.id, json_object_get(entry, "id"), text));
    FL_TRY(read_flag(&token.special, entry, "special", false, "it"));
    FL_TRY(read_flag(&token.single_word, entry, "single_word", false, "it"));
    FL_TRY(read_flag(&token.left, entry, "lstrip", false, "it"));
    FL_TRY(read_flag(&token.right, entry, "rstrip", false, "it"));
    FL_TRY(read_flag(&normalized, entry, "normalized", !token.special, "it"));
    if (size == 0) return FL_OK;
    if (token.single_word || token.left || token.right) FL_TRY(fl_char_classes_open());
    FL_TRY(name_token(tokenizer, token.id, text, size));
    if (token.special) FL_TRY(mark_special(tokenizer, token.id));
    tokenizer->added_count++;
    if (normalized) return put_normalized(tokenizer, &token, text, size);
    return fl_added_put(&tokenizer->plain, &token, (const unsigned char *)text, size);
}

static fl_status read_added(fl_tokenizer *tokenizer, json_t *list)
{
    size_t i;
    json_t *entry;
    if (is_missing(list)) return FL_OK;
    if (!json_is_array(list)) return fl_fail(FL_ERR_IO, "added_tokens must be a list");
    json_array_foreach(list, i, entry)
    {
        fl_status status = add_token(tokenizer, entry);
        if (status != FL_OK) return fl_fail_prefix(status, "added_tokens: entry %zu: ", i + 1);
    }
    return FL_OK;
}

/* ---- files ---- */

static fl_status read_all(fl_tokenizer *tokenizer, json_t *root)
{
    static const char *const not_here[] = {"truncation", "padding"};
    for (int i = 0; i < 2; i++)
        if (!is_missing(json_object_get(root, not_here[i])))
            return fl_fail(FL_ERR_IO, "%s is not supported; write null in its place", not_here[i]);
    FL_TRY(fl_tokenizer_read_normalizer(tokenizer, json_object_get(root, "normalizer")));
    FL_TRY(fl_tokenizer_read_splits(tokenizer, json_object_get(root, "pre_tokenizer")));
    FL_TRY(read_model(&tokenizer->bpe, json_object_get(root, "model")));
    FL_TRY(read_added(tokenizer, json_object_get(root, "added_tokens")));
    FL_TRY(fl_tokenizer_read_processor(tokenizer, json_object_get(root, "post_processor")));
    FL_TRY(fl_tokenizer_read_decoder(tokenizer, json_object_get(root, "decoder")));
    return fl_bpe_seal(&tokenizer->bpe);
}

static fl_status tokenizer_new(fl_tokenizer **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(FL_ERR_MEMORY, "tokenizer: out of memory");
    (*out)->bpe.unknown = -1;
    return FL_OK;
}

fl_status fl_tokenizer_read(fl_tokenizer **out, const char *path)
{
    fl_tokenizer *t;
    json_t *root;
    FL_TRY(json_file(&root, path));
    fl_status status = tokenizer_new(&t);
    if (status == FL_OK && (status = read_all(t, root)) != FL_OK) {
        fl_tokenizer_free(t);
        (void)fl_fail_prefix(status, "tokenizer: %s: ", path);
    }
    json_decref(root);
    if (status == FL_OK) *out = t;
    return status;
}

/* GPT-2's steps, and its one special token. */
static fl_status read_pair(fl_tokenizer *tokenizer, json_t *vocab, const fl_text *merges, const char *paths[2])
{
    static const char end[] = "<|endoftext|>";
    fl_status status = read_vocab(&tokenizer->bpe, vocab, "the vocabulary");
    if (status != FL_OK) return fl_fail_prefix(status, "tokenizer: %s: ", paths[0]);
    if ((status = read_merges_text(&tokenizer->bpe, merges)) != FL_OK)
        return fl_fail_prefix(status, "tokenizer: %s: ", paths[1]);
    FL_TRY(fl_tokenizer_add_bytes(tokenizer, false, true));
    fl_added_token token = {.id = fl_words_find(&tokenizer->bpe.tokens, end, sizeof end - 1), .special = true};
    if (token.id >= 0) {
        FL_TRY(fl_added_put(&tokenizer->plain, &token, (const unsigned char *)end, sizeof end - 1));
        FL_TRY(mark_special(tokenizer, token.id));
        tokenizer->added_count++;
    }
    tokenizer->decoders[tokenizer->decoder_count++].kind = FL_DECODE_BYTES;
    return fl_bpe_seal(&tokenizer->bpe);
}

fl_status fl_tokenizer_read_pair(fl_tokenizer **out, const char *vocab, const char *merges)
{
    fl_tokenizer *t = NULL;
    json_t *root;
    fl_text text = {0};
    const char *paths[2] = {vocab, merges};
    FL_TRY(json_file(&root, vocab));
    fl_status status = file_read(&text, merges);
    if (status == FL_OK) status = tokenizer_new(&t);
    if (status == FL_OK) status = read_pair(t, root, &text, paths);
    json_decref(root);
    fl_text_free(&text);
    if (status == FL_OK) *out = t;
    else fl_tokenizer_free(t);
    return status;
}
