/*
** anomaly.c -- see anomaly.h. Nodes are visited from the newest to the oldest, so the first one whose gradient is not
** finite was given finite ones.
*/
#include "anomaly.h"
#include "dispatch/to_global.h"
#include "engine/control.h"
#include "tape.h"

#include <stdlib.h>

bool fl_anomaly_watched;

void fl_anomaly_note(fl_node *node)
{
    char line[256] = "";
    if (fl_engine_where) fl_engine_where(line, sizeof line);
    node->line = *line ? strdup(line) : NULL; /* no memory: the message goes without */
}

/* *out: the one value of test(x) reduced to a bool. */
static fl_status ask(bool *out, fl_tensor *x, const fl_op *test, const fl_op *reduce)
{
    fl_tensor *each = NULL, *all = NULL, *host = NULL;
    fl_status status = fl_dispatch_unrecorded(&each, test, (const fl_operand[]){fl_of(x)}, 1);
    if (status == FL_OK) status = fl_dispatch_unrecorded(&all, reduce, (const fl_operand[]){fl_of(each)}, 1);
    if (status == FL_OK) status = fl_host_whole(&host, all);
    if (status == FL_OK) *out = *(const bool *)fl_tensor_data(host);
    fl_tensor_unref(host);
    fl_tensor_unref(all);
    fl_tensor_unref(each);
    return status;
}

fl_status fl_anomaly_check(const fl_node *node, const fl_grad *g)
{
    char text[FL_META_TEXT];
    for (int i = 0; i < g->nin; i++) {
        bool finite, nan;
        if (!g->gin[i] || g->gin[i]->meta->placement->type == FL_META) continue;
        FL_TRY(ask(&finite, g->gin[i], FL_OP_REF(isfinite), FL_OP_REF(all)));
        if (finite) continue;
        FL_TRY(ask(&nan, g->gin[i], FL_OP_REF(isnan), FL_OP_REF(any)));
        return fl_fail(FL_ERR_VALUE,
                       "detect_anomaly: the gradient of %s%s%s%s for its operand %d (%s) is the first with %s",
                       fl_tape_node_name(node), node->line ? " (" : "", node->line ? node->line : "",
                       node->line ? ")" : "", i, fl_meta_text(text, g->in_meta[i]), nan ? "NaN" : "an infinity");
    }
    return FL_OK;
}
