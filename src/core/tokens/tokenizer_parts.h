/*
** tokenizer_parts.h -- what a tokenizer is made of, for the files that read it, encode and decode (tokenizer*.c).
*/
#ifndef FL_TOKENIZER_PARTS_H
#define FL_TOKENIZER_PARTS_H

#include "added.h"
#include "bpe.h"
#include "normalize.h"
#include "cut.h"
#include "tokenizer.h"

enum { FL_TOKENIZER_STEPS = 32 }; /* of a kind, at most */

typedef enum fl_decode_kind {
    FL_DECODE_BYTES,     /* byte level: characters become the bytes they stand for, and all tokens one */
    FL_DECODE_METASPACE, /* `pattern` becomes a space, at the start nothing (if `drops`) */
    FL_DECODE_FALLBACK,  /* <0x41> becomes a byte */
    FL_DECODE_FUSE,      /* all tokens become one */
    FL_DECODE_STRIP,     /* up to `start` and `stop` times `content` at the ends of each token */
    FL_DECODE_REPLACE,   /* `pattern`, or what `regex` matches, becomes `content` */
    FL_DECODE_SUFFIX     /* `pattern` becomes a space, at the end of the last token nothing */
} fl_decode_kind;

typedef struct fl_decode {
    fl_decode_kind kind;
    fl_text pattern, content; /* owned */
    fl_regex *regex;          /* owned */
    int start, stop;
    bool drops;
} fl_decode;

struct fl_tokenizer {
    fl_bpe bpe;
    fl_added plain, normalized; /* tokens found before and after the text is normalised */
    fl_words names;             /* added tokens that the model lacks */
    bool *special;              /* by id, of `special_limit`; owned */
    int32_t special_limit, added_count;
    fl_normalize normalizers[FL_TOKENIZER_STEPS];
    fl_cut splits[FL_TOKENIZER_STEPS];
    fl_decode decoders[FL_TOKENIZER_STEPS];
    int normalizer_count, split_count, decoder_count;
    fl_ids before, behind;   /* the template's tokens around a text */
    fl_tokenizer_work *work; /* of fl_tokenizer_encode; owned, NULL until then */
};

struct fl_tokenizer_work {
    fl_bpe_work bpe;
    fl_cut_work split;
    fl_text texts[2]; /* normalised */
    fl_ids ids;
};

fl_tokenizer_work *fl_tokenizer_work_new(void); /* NULL: out of memory */
void fl_tokenizer_work_free(fl_tokenizer_work *work);

/* Normalises a text into *out, which is one of work's texts or `text`. */
fl_status fl_tokenizer_normalize(const fl_text **out, const fl_tokenizer *tokenizer, fl_tokenizer_work *work,
                                 const fl_text *text, bool begins, bool *first);

/* Adds the tokens of a text to work->ids, without the template. begins: the start of what is encoded, else it goes on
** behind a letter or digit. */
fl_status fl_tokenizer_add_text(const fl_tokenizer *tokenizer, fl_tokenizer_work *work, const unsigned char *text,
                                size_t size, bool begins);

/* A tensor of the ids, between those of the template if add_special. */
fl_status fl_tokenizer_ids_tensor(fl_tensor **out, const fl_tokenizer *tokenizer, const fl_ids *ids, bool add_special,
                                  fl_dtype dtype);

/* The characters that may stand behind a letter or digit of ASCII where a text can be cut so that its parts have the
** tokens of the whole: "" (nowhere is known), " " or " \n". */
const char *fl_tokenizer_cuts(const fl_tokenizer *tokenizer);

#endif
