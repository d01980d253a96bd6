/*
** added.h -- tokens that are found in a text as they are, before it is cut into pieces: <|endoftext|> and its like.
*/
#ifndef FL_ADDED_H
#define FL_ADDED_H

#include "growing.h"

typedef struct fl_added_token {
    int32_t id;
    bool single_word; /* only where no letter or digit touches it */
    bool left, right; /* takes the spaces before it, behind it */
    bool special;     /* decoding may leave it out */
} fl_added_token;

/* Contents of tokens as a tree of bytes. Starts as {0}. */
typedef struct fl_added {
    fl_added_token *tokens; /* owned */
    size_t count, room;
    struct fl_added_edge *edges; /* 2^bits slots; owned */
    size_t edge_count;
    int bits;
    int32_t *ends; /* token that ends at a node, -1: none; owned */
    size_t nodes, node_room;
    bool first[256]; /* bytes that contents begin with */
} fl_added;

void fl_added_free(fl_added *added);

/* A token with its content, which is not empty; the last one with a content holds. */
fl_status fl_added_put(fl_added *added, const fl_added_token *token, const unsigned char *content, size_t size);

/* The first token in the text from `from` on, the longest of those that begin there; the bytes it takes are [begin,
** end), *next: the start of the next search. NULL: none. low: the text before it is taken. */
const fl_added_token *fl_added_find(size_t *begin, size_t *end, size_t *next, const fl_added *added,
                                    const unsigned char *text, size_t size, size_t from, size_t low);

#endif
