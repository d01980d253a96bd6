/*
** journal.c -- journals: this rank's own, and those of its peers in their arenas.
*/
#include "op/op.h"
#include "shared.h"
#include "shared_internal.h"

#include <stdio.h>

static fl_journal private_journal;
fl_journal *fl_journal_own = &private_journal;

void fl_journal_move(fl_journal *place)
{
    fl_journal *now = fl_journal_own;
    fl_journal_own = place ? place : &private_journal;
    if (fl_journal_own != now) *fl_journal_own = *now;
}

const fl_journal *fl_journal_of(int rank) { return fl_shared_has(rank) ? &fl_shared_head_of(rank)->journal : NULL; }

fl_journal *fl_journal_first(void)
{
    fl_shared_head *first = fl_shared_first_head();
    return first ? &first->journal : fl_journal_own;
}

const char *fl_journal_op(const fl_journal *journal)
{
    int64_t place = __atomic_load_n(&journal->op, __ATOMIC_RELAXED);
    FL_FOR_EACH_OP(op)
    if (FL_JOURNAL_PLACE(*op) == place) return (*op)->name;
    return place ? "an op of the script" : NULL; /* a descriptor that lies elsewhere in each process */
}

const char *fl_rank_place_text(char *buffer, const fl_journal *journal)
{
    char collective[FL_COLLECTIVE_TEXT];
    const char *op = fl_journal_op(journal);
    int n = 0;
    buffer[0] = '\0';
    if (journal->collective.name[0])
        n = snprintf(buffer, FL_RANK_PLACE_TEXT, ", %s %s", journal->meeting ? "in" : "past",
                     fl_collective_at(collective, &journal->collective));
    if (op && n < FL_RANK_PLACE_TEXT)
        snprintf(buffer + n, (size_t)(FL_RANK_PLACE_TEXT - n), "%s its last op is %s", n ? ";" : ",", op);
    return buffer;
}
