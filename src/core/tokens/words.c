/*
** words.c -- words with numbers (see words.h): the bytes in one block, found through open addressing.
*/
#include "words.h"
#include "base/hash.h"

#include <stdlib.h>

enum { NO_WORD = 0xffffffff, BITS = 8 };

void fl_words_free(fl_words *words)
{
    fl_text_free(&words->bytes);
    free(words->places);
    free(words->slots);
    *words = (fl_words){0};
}

static size_t slot_of(const fl_words *words, const void *word, size_t size)
{
    return fl_hash_slot(fl_hash_words(size, word, size), words->bits);
}

static fl_status slots_grow(fl_words *words)
{
    int bits = words->slots ? words->bits + 1 : BITS;
    int32_t *slots = malloc(sizeof *slots << bits);
    if (!slots) return fl_fail(FL_ERR_MEMORY, "out of memory");
    memset(slots, 0xff, sizeof *slots << bits);
    free(words->slots);
    words->slots = slots;
    words->bits = bits;
    for (int32_t i = 0; i < words->limit; i++) {
        const struct fl_word_place *p = &words->places[i];
        if (p->size == NO_WORD) continue;
        size_t slot = slot_of(words, words->bytes.data + p->begin, p->size);
        while (slots[slot] >= 0) slot = (slot + 1) & ((1u << bits) - 1);
        slots[slot] = i;
    }
    return FL_OK;
}

/* Places up to `number`, the new ones holes. */
static fl_status places_grow(fl_words *words, int32_t number)
{
    if (number >= words->room) {
        int32_t room = number < FL_WORDS_MOST / 2 ? 2 * number + 64 : FL_WORDS_MOST;
        struct fl_word_place *places = realloc(words->places, sizeof *places * (size_t)room);
        if (!places) return fl_fail(FL_ERR_MEMORY, "out of memory");
        words->places = places;
        words->room = room;
    }
    for (; words->limit <= number; words->limit++) words->places[words->limit].size = NO_WORD;
    return FL_OK;
}

fl_status fl_words_put(fl_words *words, int32_t number, const void *word, size_t size)
{
    if (words->bytes.size + size >= NO_WORD) return fl_fail(FL_ERR_IO, "more than 4 GiB of tokens");
    if (!words->slots || words->count >= 1 << (words->bits - 1)) FL_TRY(slots_grow(words));
    FL_TRY(places_grow(words, number));
    uint32_t begin = (uint32_t)words->bytes.size;
    FL_TRY(fl_text_add(&words->bytes, word, size));
    words->places[number] = (struct fl_word_place){begin, (uint32_t)size};
    size_t slot = slot_of(words, word, size);
    while (words->slots[slot] >= 0) slot = (slot + 1) & ((1u << words->bits) - 1);
    words->slots[slot] = number;
    words->count++;
    return FL_OK;
}

int32_t fl_words_find(const fl_words *words, const void *word, size_t size)
{
    if (!words->slots) return -1;
    for (size_t slot = slot_of(words, word, size);; slot = (slot + 1) & ((1u << words->bits) - 1)) {
        int32_t number = words->slots[slot];
        if (number < 0) return -1;
        const struct fl_word_place *p = &words->places[number];
        if (p->size == size && (size == 0 || memcmp(words->bytes.data + p->begin, word, size) == 0)) return number;
    }
}

bool fl_words_get(const fl_words *words, int64_t number, const unsigned char **word, size_t *size)
{
    if (number < 0 || number >= words->limit || words->places[number].size == NO_WORD) return false;
    *word = words->bytes.data + words->places[number].begin;
    *size = words->places[number].size;
    return true;
}
