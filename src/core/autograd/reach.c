/*
** reach.c -- see pass.h.
*/
#include "pass.h"

#include <stdlib.h>

fl_status fl_pass_out_of_memory(void) { return fl_fail(FL_ERR_MEMORY, "backward: out of memory for the graph"); }

static fl_status reserve(void **list, size_t size, int64_t *capacity, int64_t count)
{
    if (count < *capacity) return FL_OK;
    int64_t more = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*list, size * (size_t)more);
    if (!grown) return fl_pass_out_of_memory();
    *list = grown;
    *capacity = more;
    return FL_OK;
}

fl_status fl_pass_reach(tape_pass *pass, fl_node *node)
{
    if (!node || node->run == pass) return FL_OK;
    if (node->run)
        return fl_fail(FL_ERR_STATE, "backward: called from inside a backward over the same graph (a hook?)");
    FL_TRY(reserve((void **)&pass->nodes, sizeof *pass->nodes, &pass->capacity, pass->count));
    pass->nodes[pass->count++] = fl_node_ref(node);
    node->run = pass;
    node->wanted = false;
    return FL_OK;
}

fl_status fl_pass_reach_leaf(tape_pass *pass, fl_tensor *leaf)
{
    fl_autograd *a = fl_tape_record_of(leaf);
    if (!a) return fl_pass_out_of_memory();
    if (a->run != pass) {
        FL_TRY(reserve((void **)&pass->leaves, sizeof *pass->leaves, &pass->leaf_capacity, pass->leaf_count));
        pass->leaves[pass->leaf_count++] = (tape_reached){fl_tensor_ref(leaf), a->pending, a->expected, a->run};
        a->pending = NULL;
        a->expected = 0;
        a->run = pass;
    }
    a->expected++;
    return FL_OK;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = (*(fl_node *const *)a)->seq, y = (*(fl_node *const *)b)->seq;
    return x > y ? -1 : x < y;
}

fl_status fl_pass_reach_all(tape_pass *pass)
{
    bool sorted = true;
    for (int64_t i = 0; i < pass->count; i++) {
        fl_node *n = pass->nodes[i];
        for (int j = 0; j < n->nin; j++) {
            if (n->edges[j].node) FL_TRY(fl_pass_reach(pass, n->edges[j].node));
            if (n->edges[j].leaf) FL_TRY(fl_pass_reach_leaf(pass, n->edges[j].leaf));
        }
    }
    for (int64_t i = 1; i < pass->count && sorted; i++) sorted = pass->nodes[i - 1]->seq > pass->nodes[i]->seq;
    if (!sorted) qsort(pass->nodes, (size_t)pass->count, sizeof *pass->nodes, newest_first);
    return FL_OK;
}

bool fl_pass_asks(const tape_pass *pass, const fl_tensor *leaf)
{
    for (int i = 0; i < pass->xcount; i++)
        if (pass->xs[i] == leaf) return true;
    return false;
}

/* Oldest first: producers before consumers. */
fl_status fl_pass_mark_wanted(tape_pass *pass)
{
    for (int i = 0; i < pass->xcount; i++) {
        fl_node *n;
        int slot;
        FL_TRY(fl_tape_node_of(&n, &slot, pass->xs[i]));
        if (n && n->run == pass) n->wanted = true;
    }
    for (int64_t i = pass->count - 1; i >= 0; i--) {
        fl_node *n = pass->nodes[i];
        for (int j = 0; j < n->nin && !n->wanted; j++) {
            const tape_edge *e = &n->edges[j];
            n->wanted = pass->accumulate ? e->node || e->leaf
                                         : (e->node && e->node->wanted) || (e->leaf && fl_pass_asks(pass, e->leaf));
        }
    }
    return FL_OK;
}

fl_status fl_autograd_reaches_others(bool *out, fl_tensor *const *ys, int count, fl_tensor *const *xs, int xcount)
{
    tape_pass pass = {.xs = xs, .xcount = xcount};
    fl_status status = FL_OK;
    *out = false;
    for (int i = 0; i < count && status == FL_OK; i++) {
        fl_node *node;
        int slot;
        status = fl_tape_node_of(&node, &slot, ys[i]);
        if (status == FL_OK) status = fl_pass_reach(&pass, node);
    }
    for (int64_t i = 0; i < pass.count && status == FL_OK && !*out; i++) {
        const fl_node *n = pass.nodes[i];
        for (int j = 0; j < n->nin && status == FL_OK; j++) {
            *out |= n->edges[j].leaf && !fl_pass_asks(&pass, n->edges[j].leaf);
            status = fl_pass_reach(&pass, n->edges[j].node);
        }
    }
    for (int64_t i = 0; i < pass.count; i++) {
        pass.nodes[i]->run = NULL;
        fl_node_unref(pass.nodes[i]);
    }
    free(pass.nodes);
    return status;
}
