/*
** vars.c -- lists of variables, as tasks have them.
**
** Steps of optimizers have thousands: beyond FEW, a table knows those that were met.
*/
#include "var.h"
#include "base/hash.h"

#include <stdlib.h>

enum { FEW = 48, LEAST_BITS = 8 };

/* The pushing thread's. A place is in use where its turn is that of the table. */
static struct {
    struct place {
        const fl_var *var;
        uint64_t turn;
    } * places; /* owned; 2^bits */
    int bits;
    uint64_t turn;
} met;

/* Room for so many variables, of which none was met. */
static bool start(int count)
{
    int bits = met.places ? met.bits : LEAST_BITS;
    while (count > 1 << (bits - 1)) bits++;
    if (!met.places || bits > met.bits) {
        struct place *places = calloc((size_t)1 << bits, sizeof *places);
        if (!places) return false;
        free(met.places);
        met.places = places;
        met.bits = bits;
        met.turn = 0;
    }
    met.turn++;
    return true;
}

static bool meet(const fl_var *var)
{
    size_t at = fl_hash_slot((uint64_t)(uintptr_t)var, met.bits), last = ((size_t)1 << met.bits) - 1;
    for (; met.places[at].turn == met.turn; at = (at + 1) & last)
        if (met.places[at].var == var) return false;
    met.places[at] = (struct place){var, met.turn};
    return true;
}

static bool is_in(fl_var *const *list, int count, const fl_var *var)
{
    for (int i = 0; i < count; i++)
        if (list[i] == var) return true;
    return false;
}

/* by_table: those of the lists before are met; else `others` has them. */
static void keep_first(fl_var **list, int *count, fl_var *const *others, int other_count, bool by_table)
{
    int kept = 0;
    for (int i = 0; i < *count; i++) {
        fl_var *var = list[i];
        bool first = by_table ? meet(var) : !is_in(list, kept, var) && !is_in(others, other_count, var);
        if (first) list[kept++] = var;
    }
    *count = kept;
}

void fl_vars_once(fl_var **reads, int *read_count, fl_var **writes, int *write_count)
{
    int count = *read_count + *write_count;
    bool by_table = count > FEW && start(count);
    keep_first(writes, write_count, NULL, 0, by_table);
    keep_first(reads, read_count, writes, *write_count, by_table);
}
