/*
** tokenizer.h -- byte-pair tokenizers of files: Hugging Face's tokenizer.json, GPT-2's vocab.json with merges.txt.
**
** A text goes through the steps of the file: added tokens are found, the text between them is normalised, cut into
** pieces and encoded, and a template puts tokens around the whole. Features of a file that are not supported are
** refused when it is opened, by name. Bytes that are not UTF-8 are a piece of their own: bytes at byte level or with
** byte fallback, else unknown.
*/
#ifndef FL_TOKENIZER_H
#define FL_TOKENIZER_H

#include "memory/tensor.h"

typedef struct fl_tokenizer fl_tokenizer;

/* Reads a tokenizer.json. fl_tokenizer_free frees *out. Errors: FL_ERR_IO "tokenizer: PATH: what is wrong, and where",
** FL_ERR_MISSING for a library, FL_ERR_MEMORY. */
fl_status fl_tokenizer_read(fl_tokenizer **out, const char *path);
/* Reads GPT-2's pair of files, which say nothing of their steps: those of GPT-2 are taken. */
fl_status fl_tokenizer_read_pair(fl_tokenizer **out, const char *vocab, const char *merges);
void fl_tokenizer_free(fl_tokenizer *tokenizer);

/* The state of encoding that one thread has: earlier results, and scratch memory. */
typedef struct fl_tokenizer_work fl_tokenizer_work;

/* One text. dtype: FL_INT64 or FL_INT32. One thread at a time. */
fl_status fl_tokenizer_encode(fl_tensor **out, fl_tokenizer *tokenizer, const char *text, size_t size, bool add_special,
                              fl_dtype dtype);

/* Many texts, which threads share: out[i] is a tensor of text i. Errors name the text, counted from 1. */
typedef struct fl_tokenizer_text {
    const char *data; /* borrowed */
    size_t size;
} fl_tokenizer_text;
fl_status fl_tokenizer_encode_list(fl_tensor **out, fl_tokenizer *tokenizer, const fl_tokenizer_text *texts,
                                   size_t count, bool add_special, fl_dtype dtype);

/* A whole file, read in blocks that the threads of the pool share; memory is taken for the tokens and a few blocks.
** The result is that of the file as one text. workers: 0: one per core. interrupted: asked between blocks, true ends
** with FL_ERR_INTERRUPTED; may be NULL. */
fl_status fl_tokenizer_encode_file(fl_tensor **out, fl_tokenizer *tokenizer, const char *path, bool add_special,
                                   fl_dtype dtype, int workers, bool (*interrupted)(void));

/* The text of tokens; the caller frees *text. skip_special: special tokens are left out. An id without a token is an
** error that names its place, counted from 1. */
fl_status fl_tokenizer_decode(char **text, size_t *size, fl_tokenizer *tokenizer, const int64_t *ids, size_t count,
                              bool skip_special);

/* Largest id + 1. */
int64_t fl_tokenizer_size(const fl_tokenizer *tokenizer);
/* -1: there is no such token. */
int64_t fl_tokenizer_id(const fl_tokenizer *tokenizer, const char *token, size_t size);
/* false: no token has this id. */
bool fl_tokenizer_token(const fl_tokenizer *tokenizer, int64_t id, const char **token, size_t *size);

/* "byte-level BPE, 50257 tokens, 50000 merges, 1 added". */
void fl_tokenizer_describe(const fl_tokenizer *tokenizer, char *text, size_t size);

#endif
