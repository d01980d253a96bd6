/*
** bpe_encode.c -- from a piece of text to tokens (see bpe.h).
**
** Texts repeat their words, so the tokens of short pieces are remembered: a table of 64-byte entries, two places for
** each piece, the older result gives way. Short pieces look for the best pair by walking over all of them; long ones
** keep them in a heap, so that a megabyte of one letter takes no longer than its length asks for.
*/
#include "bpe.h"
#include "bpe_merges.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEY_WORDS = 3, KEY_MOST = 23, KNOWN_IDS = 9, KNOWN_BITS = 15, WALK_MOST = 48 };
static const uint32_t NO_RANK = UINT32_MAX;

/* ---- pieces that are known ---- */

struct known {
    uint64_t key[KEY_WORDS]; /* the bytes, zeros behind them, the size in the last byte; 0: a free entry */
    int32_t ids[KNOWN_IDS];
    int32_t count;
};
struct fl_bpe_known {
    struct known entries[1 << KNOWN_BITS];
};

void fl_bpe_work_free(fl_bpe_work *work)
{
    free(work->known);
    free(work->symbols);
    free(work->heap);
    *work = (fl_bpe_work){0};
}

static const uint8_t masks[48] = {
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};

static void key_make(uint64_t *key, const unsigned char *piece, size_t size, size_t readable)
{
    if (FL_LIKELY(readable >= sizeof(uint64_t) * KEY_WORDS)) {
        uint64_t mask[KEY_WORDS];
        memcpy(key, piece, sizeof mask);
        memcpy(mask, masks + 24 - size, sizeof mask);
        for (int i = 0; i < KEY_WORDS; i++) key[i] &= mask[i];
    } else {
        memset(key, 0, sizeof *key * KEY_WORDS);
        memcpy(key, piece, size);
    }
    ((unsigned char *)key)[KEY_MOST] = (unsigned char)size;
}

static struct known *known_place(const fl_bpe_work *work, const uint64_t *key)
{
    uint64_t hash = fl_hash_mix(fl_hash_mix(key[0], key[1]), key[2]);
    return &work->known->entries[fl_hash_slot(hash, KNOWN_BITS) & ~(size_t)1];
}

static bool known_is(const struct known *entry, const uint64_t *key)
{
    return entry->key[0] == key[0] && entry->key[1] == key[1] && entry->key[2] == key[2];
}

/* Keeps what ids holds from `first` on. */
static void known_keep(struct known *place, const uint64_t *key, const fl_ids *ids, size_t first)
{
    size_t count = ids->count - first;
    if (count > KNOWN_IDS) return;
    place[1] = place[0];
    memcpy(place->key, key, sizeof place->key);
    place->count = (int32_t)count;
    memcpy(place->ids, ids->list + first, count * sizeof *ids->list);
}

/* ---- symbols ---- */

/* symbols: rows of `room` numbers each: tokens, ranks and results of the pair that begins there, the symbols before and
** behind. */
static fl_status work_reserve(fl_bpe_work *work, size_t symbols)
{
    if (symbols >= (size_t)1 << 31) return fl_fail(FL_ERR_VALUE, "a piece of %zu symbols is too long", symbols);
    if (symbols <= work->room && work->symbols) return FL_OK;
    free(work->symbols);
    work->room = 0;
    size_t room = symbols + symbols / 4 + 256;
    work->symbols = malloc(room * 5 * sizeof *work->symbols);
    if (!work->symbols) return fl_fail(FL_ERR_MEMORY, "out of memory for a piece of %zu symbols", symbols);
    work->room = room;
    return FL_OK;
}

/* The tokens of a character's bytes; 0: some byte has none. */
static size_t fall_back(int32_t *out, const fl_bpe *bpe, const fl_text *symbol)
{
    for (size_t i = 0; i < symbol->size; i++)
        if ((out[i] = bpe->bytes[symbol->data[i]]) < 0) return 0;
    return symbol->size;
}

/* A character with what the vocabulary adds to it: in front of those that continue a piece, behind the last one. */
static fl_status symbol_text(fl_text *symbol, const fl_bpe *bpe, const unsigned char *at, size_t length, bool first,
                             bool last)
{
    symbol->size = 0;
    if (!first) FL_TRY(fl_text_add(symbol, bpe->prefix.data, bpe->prefix.size));
    FL_TRY(fl_text_add(symbol, at, length));
    return last ? fl_text_add(symbol, bpe->suffix.data, bpe->suffix.size) : FL_OK;
}

/* The symbols of a piece of characters, in work->symbols; unknown ones in a row are one if the tokenizer fuses. */
static fl_status characters_read(size_t *count, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece,
                                 size_t size)
{
    fl_text symbol = {0};
    fl_status status = FL_OK;
    size_t n = 0;
    bool unknown = false; /* one waits to be written */
    FL_TRY(work_reserve(work, size * (1 + bpe->prefix.size) + bpe->suffix.size + 1));
    int32_t *out = work->symbols;
    for (size_t at = 0, length; at < size; at += length) {
        int32_t code;
        size_t bytes;
        if ((length = fl_utf8_next(&code, piece + at, size - at)) == 0) length = 1;
        if ((status = symbol_text(&symbol, bpe, piece + at, length, at == 0, at + length == size)) != FL_OK) break;
        int32_t token = fl_words_find(&bpe->tokens, symbol.data, symbol.size);
        if (token >= 0) {
            if (unknown) out[n++] = bpe->unknown;
            unknown = false;
            out[n++] = token;
        } else if (bpe->byte_fallback && (bytes = fall_back(out + n + unknown, bpe, &symbol)) > 0) {
            if (unknown) memmove(out + n, out + n + 1, bytes * sizeof *out); /* the unknown one is still to come */
            n += bytes;
        } else if (bpe->unknown >= 0) {
            if (unknown && !bpe->fuse_unknown) out[n++] = bpe->unknown;
            unknown = true;
        }
    }
    if (unknown) out[n++] = bpe->unknown;
    fl_text_free(&symbol);
    *count = n;
    return status;
}

static fl_status bytes_read(size_t *count, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece,
                            size_t size)
{
    size_t n = 0;
    bool unknown = false;
    FL_TRY(work_reserve(work, size + 1));
    for (size_t i = 0; i < size; i++) {
        int32_t token = bpe->bytes[piece[i]];
        if (token < 0 && (bpe->unknown < 0 || (unknown && bpe->fuse_unknown))) continue;
        unknown = token < 0;
        work->symbols[n++] = unknown ? bpe->unknown : token;
    }
    *count = n;
    return FL_OK;
}

/* ---- merging ---- */

static inline void pair_read(uint32_t *rank, int32_t *result, const fl_bpe *bpe, int32_t left, int32_t right)
{
    const struct fl_merge *m = merge_slot(bpe, merge_pair(left, right));
    bool found = m->pair != NO_PAIR;
    *rank = found ? m->rank : NO_RANK;
    *result = found ? m->result : -1;
}

/* Merges n symbols in place, by looking at all pairs each time. Returns how many are left. */
static size_t merge_walk(const fl_bpe *bpe, int32_t *symbols, size_t n)
{
    uint32_t ranks[WALK_MOST];
    int32_t results[WALK_MOST];
    for (size_t i = 0; i + 1 < n; i++) pair_read(&ranks[i], &results[i], bpe, symbols[i], symbols[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        symbols[best] = results[best];
        n--;
        for (size_t i = best + 1; i < n; i++) symbols[i] = symbols[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            ranks[i] = ranks[i + 1];
            results[i] = results[i + 1];
        }
        if (best + 1 < n) pair_read(&ranks[best], &results[best], bpe, symbols[best], symbols[best + 1]);
        if (best > 0) pair_read(&ranks[best - 1], &results[best - 1], bpe, symbols[best - 1], symbols[best]);
    }
    return n;
}

/* A heap of rank << 32 | position, the least on top. */
static fl_status heap_push(fl_bpe_work *work, size_t *count, uint64_t value)
{
    if (*count == work->heap_room)
        FL_TRY(fl_grow((void **)&work->heap, &work->heap_room, *count, 1, sizeof *work->heap));
    uint64_t *heap = work->heap;
    size_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
    return FL_OK;
}

static uint64_t heap_pop(fl_bpe_work *work, size_t *count)
{
    uint64_t *heap = work->heap, top = heap[0], value = heap[--*count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= value) break;
        heap[at] = heap[child];
    }
    if (*count > 0) heap[at] = value;
    return top;
}

struct chain {
    int32_t *symbols, *results, *before, *behind; /* a symbol that was merged away has results -2 */
    uint32_t *ranks;
};

/* Looks up the pair that begins at `at` and puts it into the heap. */
static fl_status pair_offer(const fl_bpe *bpe, fl_bpe_work *work, size_t *count, const struct chain *chain, int32_t at)
{
    int32_t behind = chain->behind[at];
    chain->ranks[at] = NO_RANK;
    chain->results[at] = -1;
    if (behind < 0) return FL_OK;
    pair_read(&chain->ranks[at], &chain->results[at], bpe, chain->symbols[at], chain->symbols[behind]);
    return chain->ranks[at] == NO_RANK ? FL_OK
                                       : heap_push(work, count, (uint64_t)chain->ranks[at] << 32 | (uint32_t)at);
}

static fl_status merge_heap(const fl_bpe *bpe, fl_bpe_work *work, size_t *n)
{
    int32_t *rows = work->symbols;
    size_t room = work->room, heap = 0, left = 0;
    struct chain c = {rows, rows + room, rows + 2 * room, rows + 3 * room, (uint32_t *)rows + 4 * room};
    for (size_t i = 0; i < *n; i++) {
        c.before[i] = (int32_t)i - 1;
        c.behind[i] = i + 1 < *n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < *n; i++) FL_TRY(pair_offer(bpe, work, &heap, &c, (int32_t)i));
    while (heap > 0) {
        uint64_t top = heap_pop(work, &heap);
        int32_t at = (int32_t)(uint32_t)top;
        if (c.results[at] < 0 || c.ranks[at] != top >> 32) continue; /* the pair is no more */
        int32_t gone = c.behind[at];
        c.symbols[at] = c.results[at];
        c.results[gone] = -2;
        c.behind[at] = c.behind[gone];
        if (c.behind[at] >= 0) c.before[c.behind[at]] = at;
        FL_TRY(pair_offer(bpe, work, &heap, &c, at));
        if (c.before[at] >= 0) FL_TRY(pair_offer(bpe, work, &heap, &c, c.before[at]));
    }
    for (size_t i = 0; i < *n; i++)
        if (c.results[i] != -2) c.symbols[left++] = c.symbols[i];
    *n = left;
    return FL_OK;
}

static fl_status piece_merge(fl_ids *ids, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece, size_t size)
{
    size_t n;
    if (bpe->whole_first) {
        int32_t whole = fl_words_find(bpe->byte_level ? &bpe->pieces : &bpe->tokens, piece, size);
        if (whole >= 0) return fl_ids_add(ids, whole);
    }
    if (bpe->byte_level && !bpe->prefix.size && !bpe->suffix.size) FL_TRY(bytes_read(&n, bpe, work, piece, size));
    else FL_TRY(characters_read(&n, bpe, work, piece, size));
    if (n <= WALK_MOST) n = merge_walk(bpe, work->symbols, n);
    else FL_TRY(merge_heap(bpe, work, &n));
    FL_TRY(fl_ids_reserve(ids, n));
    if (n) memcpy(ids->list + ids->count, work->symbols, n * sizeof *ids->list);
    ids->count += n;
    return FL_OK;
}

static fl_status short_encode(fl_ids *ids, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece,
                              size_t size, size_t readable)
{
    uint64_t key[KEY_WORDS];
    if (FL_UNLIKELY(!work->known) && !(work->known = calloc(1, sizeof *work->known)))
        return fl_fail(FL_ERR_MEMORY, "out of memory");
    key_make(key, piece, size, readable);
    struct known *place = known_place(work, key), *entry = place;
    if (!known_is(entry, key)) entry++;
    if (FL_LIKELY(known_is(entry, key))) {
        FL_TRY(fl_ids_reserve(ids, KNOWN_IDS));
        memcpy(ids->list + ids->count, entry->ids, sizeof entry->ids);
        ids->count += (size_t)entry->count;
        return FL_OK;
    }
    size_t first = ids->count;
    FL_TRY(piece_merge(ids, bpe, work, piece, size));
    known_keep(place, key, ids, first);
    return FL_OK;
}

/* A place to cut the piece, before its border characters, so that the parts have the tokens of the whole. */
static size_t part_end(const fl_bpe *bpe, const unsigned char *piece, size_t size)
{
    const fl_text *border = &bpe->border;
    for (size_t at = 1; border->size && at + border->size <= size; at++) {
        const unsigned char *next = memchr(piece + at, border->data[0], size - at - border->size + 1);
        if (!next) break;
        at = (size_t)(next - piece);
        if (memcmp(next, border->data, border->size) != 0) continue;
        if (at < border->size || memcmp(next - border->size, border->data, border->size) != 0) return at;
    }
    return size;
}

fl_status fl_bpe_encode(fl_ids *ids, const fl_bpe *bpe, fl_bpe_work *work, const unsigned char *piece, size_t size,
                        size_t readable)
{
    while (size > 0) {
        size_t end = bpe->border.size ? part_end(bpe, piece, size) : size;
        if (FL_LIKELY(end <= KEY_MOST)) FL_TRY(short_encode(ids, bpe, work, piece, end, readable));
        else FL_TRY(piece_merge(ids, bpe, work, piece, end));
        piece += end;
        size -= end;
        readable -= end;
    }
    return FL_OK;
}
