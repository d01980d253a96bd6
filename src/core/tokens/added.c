/*
** added.c -- tokens found as they are (see added.h): a tree of bytes whose edges lie in one hash table.
*/
#include "added.h"
#include "base/hash.h"
#include "char_class.h"

#include <stdlib.h>

struct fl_added_edge {
    uint64_t from; /* node << 8 | byte, plus 1; 0: a free slot */
    uint32_t to;
};

void fl_added_free(fl_added *added)
{
    free(added->tokens);
    free(added->edges);
    free(added->ends);
    *added = (fl_added){0};
}

static uint64_t edge_key(size_t node, unsigned char byte) { return ((uint64_t)node << 8 | byte) + 1; }

static struct fl_added_edge *edge_slot(const fl_added *added, uint64_t key)
{
    size_t mask = ((size_t)1 << added->bits) - 1, slot = fl_hash_slot(key, added->bits);
    while (added->edges[slot].from != key && added->edges[slot].from != 0) slot = (slot + 1) & mask;
    return &added->edges[slot];
}

static fl_status edges_grow(fl_added *added)
{
    fl_added grown = {.bits = added->edges ? added->bits + 1 : 8};
    grown.edges = calloc((size_t)1 << grown.bits, sizeof *grown.edges);
    if (!grown.edges) return fl_fail(FL_ERR_MEMORY, "out of memory");
    for (size_t i = 0; added->edges && i < (size_t)1 << added->bits; i++)
        if (added->edges[i].from) *edge_slot(&grown, added->edges[i].from) = added->edges[i];
    free(added->edges);
    added->edges = grown.edges;
    added->bits = grown.bits;
    return FL_OK;
}

static fl_status node_new(fl_added *added)
{
    if (added->nodes == added->node_room)
        FL_TRY(fl_grow((void **)&added->ends, &added->node_room, added->nodes, 1, sizeof *added->ends));
    added->ends[added->nodes++] = -1;
    return FL_OK;
}

/* The node behind this one; made when there is none. */
static fl_status node_follow(size_t *node, fl_added *added, unsigned char byte)
{
    if (!added->edges || added->edge_count >= (size_t)1 << (added->bits - 1)) FL_TRY(edges_grow(added));
    struct fl_added_edge *edge = edge_slot(added, edge_key(*node, byte));
    if (!edge->from) {
        FL_TRY(node_new(added));
        *edge = (struct fl_added_edge){edge_key(*node, byte), (uint32_t)(added->nodes - 1)};
        added->edge_count++;
    }
    *node = edge->to;
    return FL_OK;
}

fl_status fl_added_put(fl_added *added, const fl_added_token *token, const unsigned char *content, size_t size)
{
    size_t node = 0;
    if (added->nodes == 0) FL_TRY(node_new(added)); /* the root */
    for (size_t i = 0; i < size; i++) FL_TRY(node_follow(&node, added, content[i]));
    if (added->count == added->room)
        FL_TRY(fl_grow((void **)&added->tokens, &added->room, added->count, 1, sizeof *added->tokens));
    added->ends[node] = (int32_t)added->count;
    added->tokens[added->count++] = *token;
    added->first[content[0]] = true;
    return FL_OK;
}

/* The longest token that begins at the text; NULL: none. */
static const fl_added_token *match(size_t *length, const fl_added *added, const unsigned char *text, size_t left)
{
    const fl_added_token *found = NULL;
    size_t node = 0;
    for (size_t i = 0; i < left; i++) {
        const struct fl_added_edge *edge = edge_slot(added, edge_key(node, text[i]));
        if (!edge->from) break;
        node = edge->to;
        if (added->ends[node] < 0) continue;
        found = &added->tokens[added->ends[node]];
        *length = i + 1;
    }
    return found;
}

/* Class of the character that ends at `at`, with its bytes. */
static int class_before(size_t *length, const unsigned char *text, size_t at)
{
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && (text[start] & 0xc0) == 0x80) start--;
    return char_class(length, text + start, at - start);
}

static bool is_alone(const unsigned char *text, size_t size, size_t begin, size_t end)
{
    size_t length;
    if (begin > 0 && (class_before(&length, text, begin) & FL_CHAR_WORD)) return false;
    return end >= size || !(char_class(&length, text + end, size - end) & FL_CHAR_WORD);
}

/* The bytes that the token takes with the spaces around it. */
static void take_spaces(size_t *begin, size_t *end, const fl_added_token *token, const unsigned char *text, size_t size,
                        size_t low)
{
    size_t length;
    while (token->left && *begin > low && (class_before(&length, text, *begin) & FL_CHAR_SPACE)) *begin -= length;
    while (token->right && *end < size && (char_class(&length, text + *end, size - *end) & FL_CHAR_SPACE))
        *end += length;
}

const fl_added_token *fl_added_find(size_t *begin, size_t *end, size_t *next, const fl_added *added,
                                    const unsigned char *text, size_t size, size_t from, size_t low)
{
    size_t length = 1;
    if (added->count == 0) return NULL;
    for (size_t at = from; at < size; at++) {
        if (!added->first[text[at]]) continue;
        const fl_added_token *token = match(&length, added, text + at, size - at);
        if (!token) continue;
        if (token->single_word && !is_alone(text, size, at, at + length)) {
            at += length - 1;
            continue;
        }
        *begin = at;
        *end = *next = at + length;
        take_spaces(begin, end, token, text, size, low);
        return token;
    }
    return NULL;
}
