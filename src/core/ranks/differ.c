/*
** differ.c -- ranks that run different programs: which op they differ in first.
**
** The hashes exchanged so far show only that the programs differ since the ranks met last. So the ranks meet twice
** more: they exchange the hash after each op they remember, from which all of them find the first op that differs, and
** then that op as each of them ran it. Nothing of this is done, nor kept, while programs are the same.
*/
#include "meet.h"

#include <stdio.h>
#include <string.h>

/* The entry of a member in the first meeting and in the second. */
struct hashes {
    uint64_t first, count, total; /* position in the trail of hashes[0]; their number; of the whole trail */
    uint64_t at[FL_HISTORY_RECENT];
};
_Static_assert(sizeof(struct hashes) <= FL_EAGER_BYTES, "goes along with an entry");

typedef struct words {
    char what[FL_PAST_WHAT], where[FL_PAST_WHERE];
} words;

/* The first op that differs: its position in both trails, 0: it is forgotten. Ops before the first common one that is
** remembered are the same when the hashes there are. */
static uint64_t first_difference(const struct hashes *a, const struct hashes *b)
{
    uint64_t start = a->first > b->first ? a->first : b->first, end_a = a->first + a->count,
             end_b = b->first + b->count;
    bool known = start <= 1;
    if (!a->count || !b->count) return a->total && b->total ? 0 : 1;
    for (uint64_t index = start; index < end_a && index < end_b; index++) {
        if (a->at[index - a->first] != b->at[index - b->first]) return known ? index : 0;
        known = true;
    }
    uint64_t least = a->total < b->total ? a->total : b->total;
    return known ? least + 1 : 0;
}

static fl_status show(fl_group *group, const fl_entry *mine, const void *data, size_t bytes)
{
    fl_entry e = {.collective = mine->collective};
    snprintf(e.collective.name, FL_COLLECTIVE_NAME, "comparison");
    e.fingerprint = fl_fingerprint(&e.collective, bytes);
    return fl_group_meet(group, &e, data, bytes, 0);
}

/* "rank 0 train.lua:41 sum of float32[8, 4] S(0)" */
enum { OP_WORDS = FL_PAST_WHAT + FL_PAST_WHERE + 32 };
static void word_op(char *out, int rank, const words *op_words, bool is_there)
{
    if (!is_there) snprintf(out, OP_WORDS, "rank %d nothing more", rank);
    else
        snprintf(out, OP_WORDS, "rank %d %s%s%s", rank, op_words->where, op_words->where[0] ? " " : "",
                 op_words->what[0] ? op_words->what : "an op");
}

/* True if the two members carried out the same op, by its text. */
static bool is_worded_alike(const words said[2]) { return said[0].what[0] && strcmp(said[0].what, said[1].what) == 0; }

/* A program that is no script has no lines. */
static const char *place_of(const fl_collective *collective)
{
    return collective->where[0] ? collective->where : "this collective";
}

fl_status fl_group_differs(fl_group *group, int i, const fl_entry *mine)
{
    const fl_collective first = fl_group_entry(group, 0)->collective, other = fl_group_entry(group, i)->collective;
    struct hashes own = {.total = mine->trail.to - mine->trail.from}, a, b;
    words word, said[2];
    char text[FL_COLLECTIVE_TEXT], op_a[OP_WORDS], op_b[OP_WORDS];
    if (mine->trail.history) own.count = (uint64_t)fl_history_recall(&own.first, own.at, &mine->trail);
    FL_TRY(show(group, mine, &own, sizeof own));
    memcpy(&a, fl_group_entry_data(group, 0), sizeof a);
    memcpy(&b, fl_group_entry_data(group, i), sizeof b);
    uint64_t index = first_difference(&a, &b);
    memset(&word, 0, sizeof word);
    if (mine->trail.history) fl_history_recall_op(word.what, word.where, &mine->trail, index);
    FL_TRY(show(group, mine, &word, sizeof word));
    memcpy(&said[0], fl_group_entry_data(group, 0), sizeof said[0]);
    memcpy(&said[1], fl_group_entry_data(group, i), sizeof said[1]);
    fl_collective_text(text, &first);
    if (index == 0)
        return fl_fail(
            FL_ERR_COMM,
            "the ranks run different programs: different ops led rank %d to %s and rank %d to %s (%s); is one of "
            "them inside `if rank == 0`?",
            group->ranks[0], place_of(&first), group->ranks[i], place_of(&other), text);
    word_op(op_a, group->ranks[0], &said[0], index <= a.total);
    word_op(op_b, group->ranks[i], &said[1], index <= b.total);
    return fl_fail(
        FL_ERR_COMM,
        "the ranks run different programs: %s, %s%s (before the %s%s%s); is one of them inside `if rank == 0`?", op_a,
        op_b, is_worded_alike(said) ? " with other arguments" : "", text, first.where[0] ? ", " : "", first.where);
}
