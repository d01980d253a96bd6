/*
** bpe.h -- byte-pair encoding: a piece of text becomes symbols, and pairs of neighbours are merged, the pair with the
** lowest rank first, until none is left that a merge names.
**
** Symbols are bytes (byte level) or characters. The result is that of Hugging Face's `tokenizers`; the time is
** n log n in the length of a piece, whatever it holds.
*/
#ifndef FL_BPE_H
#define FL_BPE_H

#include "words.h"

struct fl_merge {
    uint64_t pair; /* left << 32 | right; NO_PAIR: a free slot */
    uint32_t rank;
    int32_t result; /* token */
};

typedef struct fl_bpe {
    fl_words tokens;         /* of the model, as the file writes them */
    fl_words pieces;         /* byte level: the same as the bytes they stand for */
    struct fl_merge *merges; /* 2^merge_bits slots; owned */
    int merge_bits;
    uint32_t merge_count;
    int32_t unknown;        /* the token for what has none; -1: such characters are left out */
    int32_t bytes[256];     /* tokens of bytes: at byte level its symbols, else for byte fallback; -1: none */
    fl_text prefix, suffix; /* of symbols that continue a piece, and of the last one */
    fl_text border;         /* a character before which no merge reaches but from itself; empty: none is known */
    bool byte_level, byte_fallback, fuse_unknown, whole_first; /* whole_first: a piece that is a token stays whole */
} fl_bpe;

void fl_bpe_free(fl_bpe *bpe);

/* Room for `count` merges in all; then each merge. Both tokens and their concatenation (without the prefix of the right
** one) are in the vocabulary, or FL_ERR_IO names the one that is missing. The last of two merges of a pair holds. */
fl_status fl_bpe_reserve(fl_bpe *bpe, size_t count);
fl_status fl_bpe_merge(fl_bpe *bpe, const char *left, size_t left_size, const char *right, size_t right_size);

/* When tokens and merges are complete: the tables that follow from them. */
fl_status fl_bpe_seal(fl_bpe *bpe);

/* The state of a thread that encodes: results of short pieces, and room for long ones. Starts as {0}. */
typedef struct fl_bpe_work {
    struct fl_bpe_known *known; /* owned */
    int32_t *symbols;           /* owned; six numbers for each of room */
    size_t room;
    uint64_t *heap; /* owned */
    size_t heap_room;
} fl_bpe_work;
void fl_bpe_work_free(fl_bpe_work *work);

/* Adds the tokens of a piece, which is UTF-8 unless the level is bytes. readable: bytes that may be read from `piece`
** on, at least size. Errors: FL_ERR_MEMORY; FL_ERR_VALUE for a piece of 2 GiB. */
fl_status fl_bpe_encode(fl_ids *ids, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece, size_t size,
                        size_t readable);

/* Byte level writes each byte as a character: the printable ones of Latin-1 as themselves, the others from U+0100 on.
** byte_of: of a code point; -1: it is none of these. */
int32_t fl_byte_char(int byte);
int fl_byte_of_char(int32_t code);

#endif
