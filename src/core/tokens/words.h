/*
** words.h -- words with numbers: the vocabulary of a tokenizer.
*/
#ifndef FL_WORDS_H
#define FL_WORDS_H

#include "growing.h"

/* Numbers lie below this: tables have an entry for each number up to the largest. */
enum { FL_WORDS_MOST = 1 << 22 };

struct fl_word_place {
    uint32_t begin, size; /* in the bytes; size NO_WORD: a hole */
};

typedef struct fl_words {
    fl_text bytes;
    struct fl_word_place *places; /* by number; owned */
    int32_t *slots;               /* 2^bits numbers by hash of their word, -1: free; owned */
    int bits;
    int32_t limit, room, count; /* largest number + 1; places; words */
} fl_words;

void fl_words_free(fl_words *words);

/* Gives the word the number. The caller has made sure that neither is taken. Errors: FL_ERR_MEMORY. */
fl_status fl_words_put(fl_words *words, int32_t number, const void *word, size_t size);

/* The number of a word; -1: there is none. */
int32_t fl_words_find(const fl_words *words, const void *word, size_t size);

/* The word of a number; false: a hole, or beyond the end. */
bool fl_words_get(const fl_words *words, int64_t number, const unsigned char **word, size_t *size);

#endif
