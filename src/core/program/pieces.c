/*
** pieces.c -- a call of a function that is captured in pieces: requests of the script are compared with those of an
** earlier call, put off, and done as one program where a value is read.
*/
#include "dispatch/autocast.h"
#include "piece_run.h"

#include "autograd/anomaly.h"
#include "dispatch/fault.h"

#include <stdlib.h>

fl_piece_run fl_piece_now;

static const fl_answerer answerer;

/* ---- requests of the script ---- */

/* A tensor from outside is what it was when the piece was recorded, and no argument's memory. */
static bool is_outside(const fl_piece_value *value, const fl_tensor *tensor)
{
    if (value->outside != tensor || tensor->meta != value->meta || tensor->offset != value->offset) return false;
    for (int i = 0; i < fl_piece_now.of->root->value_count; i++)
        if (fl_piece_now.values[i]->storage == tensor->storage) return false;
    return tensor->requires_grad == value->requires_grad;
}

static bool is_value(fl_piece *piece, int id, const fl_tensor *tensor)
{
    return id < fl_piece_now.count ? fl_piece_now.values[id] == tensor
                                   : is_outside(fl_piece_value_of(piece, id), tensor);
}

static bool leaf_fits(fl_piece *piece, const fl_piece_leaf *leaf)
{
    fl_tensor *t = leaf->leaf < fl_piece_now.count ? fl_piece_now.values[leaf->leaf]
                                                   : fl_piece_value_of(piece, leaf->leaf)->outside;
    if (!t || !is_value(piece, leaf->leaf, t) || !t->requires_grad) return false;
    const fl_tensor *before = fl_autograd_grad_of(t);
    return leaf->before < 0 ? !before : before && is_value(piece, leaf->before, before);
}

static bool is_call(fl_piece *piece, const fl_piece_call *call, const fl_request *request)
{
    if (call->kind != request->kind || call->op != request->op || call->in_place != request->in_place) return false;
    if (call->nin != request->nin || call->retain != request->retain || call->grad_enabled != fl_grad_enabled)
        return false;
    for (int i = 0; i < call->nin; i++) {
        const fl_operand *a = &call->in[i], *b = &request->in[i];
        if (a->kind != b->kind) return false;
        if (a->kind == FL_TENSOR ? !is_value(piece, (int)a->integer, b->tensor)
                                 : a->kind != FL_NONE && a->integer != b->integer)
            return false;
    }
    for (int i = 0; i < call->leaf_count; i++)
        if (!leaf_fits(piece, &call->leaves[i])) return false;
    return !call->attrs || fl_piece_has_attrs(call, request->attrs);
}

/* True if the piece continues with the request, or, for NULL, ends here. */
static bool goes_on(fl_piece *piece, const fl_request *request)
{
    if (!request) return piece->call_count == fl_piece_now.position;
    return piece->call_count > fl_piece_now.position && is_call(piece, &piece->calls[fl_piece_now.position], request);
}

/* A piece that begins with the calls that were made, and continues with the request; NULL: there is none. */
static fl_piece *find_next(const fl_request *request)
{
    if (fl_piece_now.next && goes_on(fl_piece_now.next, request)) return fl_piece_now.next;
    for (fl_piece *p = fl_piece_now.at->child; p; p = p->sibling)
        if (p != fl_piece_now.next && goes_on(p, request)
            && (!fl_piece_now.next || fl_piece_begins_alike(p, fl_piece_now.next, fl_piece_now.position)))
            return p;
    return NULL;
}

/* The piece that is followed from now on: the numbers of the calls that were made become its own. */
static void turn_to(fl_piece *piece)
{
    for (int i = 0; i < fl_piece_now.position && piece != fl_piece_now.next; i++)
        if (piece->calls[i].live) fl_piece_take_numbers(&piece->calls[i], fl_piece_now.next->calls[i].attrs);
    fl_piece_now.next = piece;
}

/* Gives the results of the next call of the piece. */
static fl_status follow(fl_tensor **out, fl_piece *piece, const fl_request *request)
{
    fl_piece_call *call = &piece->calls[fl_piece_now.position];
    turn_to(piece);
    FL_TRY(fl_values_give(piece, call->past));
    if (call->live) fl_piece_take_numbers(call, request->attrs);
    for (int i = 0; i < call->leaf_count; i++) {
        const fl_piece_leaf *l = &call->leaves[i];
        if (l->after != l->before)
            FL_TRY(fl_autograd_set_grad(fl_piece_now.values[l->leaf], fl_piece_now.values[l->after]));
    }
    for (int i = 0; i < call->turned_count; i++) FL_TRY(fl_autograd_set_spent(fl_piece_now.values[call->turned[i]]));
    for (int i = 0; i < call->nout; i++) out[i] = fl_tensor_ref(fl_piece_now.values[call->out[i]]);
    fl_piece_now.position++;
    return FL_OK;
}
/* ---- deferred ops run as in eager code ---- */

/* A gradient of a leaf, as the script has it, while backwards are done that it called before. */
struct held {
    fl_tensor *leaf, *gradient; /* owned */
};

/* Returns how many there are; NULL: there is no memory. */
static struct held *hold_gradients(int *count, const fl_piece *piece, int calls, fl_tensor *const *values)
{
    int most = 0;
    *count = 0;
    for (int n = 0; n < calls; n++) most += piece->calls[n].leaf_count;
    struct held *list = calloc((size_t)most + 1, sizeof *list);
    for (int n = 0; n < calls && list; n++)
        for (int i = 0; i < piece->calls[n].leaf_count; i++) {
            fl_tensor *leaf = values[piece->calls[n].leaves[i].leaf], *g = fl_autograd_grad_of(leaf);
            bool again = false;
            for (int k = 0; k < *count; k++) again |= list[k].leaf == leaf;
            if (!again) list[(*count)++] = (struct held){fl_tensor_ref(leaf), g ? fl_tensor_ref(g) : NULL};
        }
    return list;
}

static void give_gradients_back(struct held *list, int count)
{
    for (int i = 0; i < count; i++) {
        fl_autograd_set_grad(list[i].leaf, list[i].gradient);
        fl_tensor_unref(list[i].leaf);
        fl_tensor_unref(list[i].gradient);
    }
    free(list);
}

/* The call's operands as tensors that it had. old: values past the piece's first. */
static void take_operands(fl_operand *in, const fl_piece_call *call, fl_tensor *const *values)
{
    for (int i = 0; i < call->nin; i++) {
        in[i] = call->in[i];
        if (in[i].kind == FL_TENSOR) in[i] = fl_of(values[call->in[i].integer]);
    }
}

static fl_status redo_call(fl_piece_call *call, fl_tensor *const *values, fl_operand *in)
{
    fl_tensor *out[FL_MAX_OUT] = {NULL};
    const fl_request request = {call->kind, call->op,  call->in_place, call->retain,
                                in,         call->nin, call->nout,     call->attrs};
    const bool enabled = fl_grad_enabled;
    take_operands(in, call, values);
    for (int i = 0; i < call->leaf_count; i++) {
        const fl_piece_leaf *l = &call->leaves[i];
        FL_TRY(fl_autograd_set_grad(values[l->leaf], l->before < 0 ? NULL : values[l->before]));
    }
    fl_grad_enabled = call->grad_enabled;
    fl_status status = fl_piece_record(out, &request, call, values);
    fl_grad_enabled = enabled;
    for (int i = 0; i < call->nout && status == FL_OK; i++) fl_tensor_unref(out[i]);
    return status;
}

static void stop(void)
{
    fl_piece_drop_recorded();
    fl_answerer_now = NULL;
    if (!fl_piece_now.stopped) fl_piece_now.host.stopped(fl_piece_now.host.context);
    fl_piece_now.stopped = true;
}

/* Values of the path as they are, each held. */
static fl_tensor **hold_values(void)
{
    fl_tensor **values = malloc(sizeof *values * (size_t)(fl_piece_now.count + 1));
    for (int i = 0; i < fl_piece_now.count && values; i++)
        values[i] = fl_piece_now.values[i] ? fl_tensor_ref(fl_piece_now.values[i]) : NULL;
    return values;
}

static int most_operands(const fl_piece *piece, int calls)
{
    int most = 0;
    for (int n = 0; n < calls; n++)
        if (piece->calls[n].nin > most) most = piece->calls[n].nin;
    return most;
}

/* The first `calls` calls of the piece. values: of all of them. */
static fl_status redo_calls(fl_piece *piece, int calls, fl_tensor *const *values)
{
    int held_count = 0;
    fl_operand *in = malloc(sizeof *in * (size_t)(most_operands(piece, calls) + 1));
    struct held *held = hold_gradients(&held_count, piece, calls, values);
    fl_status status = in && held ? FL_OK : fl_program_out_of_memory();
    for (int n = 0; n < calls && status == FL_OK; n++) status = redo_call(&piece->calls[n], values, in);
    if (held) give_gradients_back(held, held_count);
    free(in);
    return status;
}

/* The calls that were put off, recorded where that can be and `records`. Otherwise, and after an error, nothing is
** answered any more. */
static fl_status redo(bool records)
{
    fl_piece *piece = fl_piece_now.next;
    const int calls = fl_piece_now.position, count = fl_piece_now.count;
    const int first = piece ? piece->first : count;
    fl_answerer_now = NULL;
    fl_tensor **values = hold_values();
    if (!values) return fl_program_out_of_memory();
    fl_piece_now.next = NULL;
    fl_piece_now.position = 0;
    if (records) {
        fl_values_cut(first);
        records = fl_piece_begin();
    }
    fl_status status = redo_calls(piece, calls, values);
    if (status != FL_OK && piece) {
        fl_values_cut(first);
        for (int i = first; i < count; i++) fl_values_add(values[i]);
        fl_values_lose(piece);
    }
    fl_values_end_pending();
    for (int i = 0; i < count; i++) fl_tensor_unref(values[i]);
    free(values);
    if (status != FL_OK || !records) stop();
    else fl_answerer_now = &answerer;
    return status;
}

/* ---- the end of a piece ---- */

static bool has_graph(fl_piece *piece)
{
    for (int id = fl_piece_now.of->root->value_count; id < fl_piece_now.count; id++)
        if (fl_piece_now.values[id] && !fl_piece_value_of(piece, id)->outside && fl_piece_now.values[id]->refs > 1
            && fl_autograd_has_graph(fl_piece_now.values[id]))
            return true;
    return false;
}

/* In the place of one that has the same calls, whose results were held otherwise; else beside the others. */
static void add_piece(fl_piece *piece)
{
    for (fl_piece **at = &fl_piece_now.at->child; *at; at = &(*at)->sibling) {
        fl_piece *old = *at;
        if (old->call_count != piece->call_count || !fl_piece_begins_alike(old, piece, piece->call_count)) continue;
        piece->sibling = old->sibling;
        *at = piece;
        old->sibling = NULL;
        fl_piece_free(old);
        fl_piece_now.at = piece;
        return;
    }
    piece->sibling = fl_piece_now.at->child;
    fl_piece_now.at->child = piece;
    fl_piece_now.of->count++;
    fl_piece_now.at = piece;
}

static fl_status close_recorded(void)
{
    fl_piece *p = fl_piece_now.recorded;
    fl_answerer_now = NULL;
    fl_piece_now.host.collect(fl_piece_now.host.context, true);
    if (fl_piece_now.unfit || has_graph(p)) {
        stop();
        return FL_OK;
    }
    p->results = calloc((size_t)p->value_count + 1, sizeof *p->results);
    fl_tensor **results = malloc(sizeof *results * (size_t)(p->value_count + 1));
    fl_status status = p->results && results ? FL_OK : fl_program_out_of_memory();
    for (int id = p->first; id < fl_piece_now.count && status == FL_OK; id++) {
        if (!fl_value_is_made(p, id) || !fl_piece_now.values[id]->meta->local_numel || !fl_value_is_held(p, id, 1))
            continue;
        results[p->result_count] = fl_piece_now.values[id];
        p->results[p->result_count++] = id;
    }
    if (status == FL_OK) status = fl_program_end_piece(&p->program, results, p->result_count);
    free(results);
    if (status != FL_OK) {
        stop();
        return FL_OK;
    }
    fl_piece_now.recorded = NULL;
    add_piece(p);
    fl_values_release(p);
    fl_answerer_now = &answerer;
    return FL_OK;
}

/* True if the values that were freed by now when the piece was recorded are freed now too. */
static bool others_are_gone(fl_piece *piece)
{
    for (int id = piece->first, next = 0; id < fl_piece_now.count; id++) {
        if (next < piece->result_count && piece->results[next] == id) {
            next++;
            continue;
        }
        if (fl_value_is_made(piece, id) && fl_piece_now.values[id]->meta->local_numel && fl_value_is_held(piece, id, 1))
            return false;
    }
    return true;
}

static fl_status give_numbers(void *context, int id, const fl_op *op, fl_attrs *attrs)
{
    const fl_piece *piece = context;
    memcpy(attrs, piece->calls[id].attrs, offsetof(fl_attrs, at) + sizeof *attrs->at * (size_t)attrs->count);
    return FL_OK;
}

static fl_status run_program(fl_piece *piece)
{
    fl_tensor **args = malloc(sizeof *args * (size_t)(piece->input_count + piece->result_count + 1));
    if (!args) return fl_program_out_of_memory();
    fl_tensor **results = args + piece->input_count;
    for (int i = 0; i < piece->input_count; i++) args[i] = fl_piece_now.values[piece->inputs[i]];
    fl_status status = fl_program_run(piece->program, args, results, give_numbers, piece);
    for (int i = 0; i < piece->result_count && status == FL_OK; i++) {
        const int id = piece->results[i];
        for (int k = id; k < fl_piece_now.count; k++)
            if (fl_piece_now.values[k] && fl_piece_value_of(piece, k)->base == id)
                fl_value_move(fl_piece_now.values[k], results[i]);
        fl_tensor_unref(results[i]);
    }
    free(args);
    return status;
}

/* The calls that were put off are done, as the piece's program. */
static fl_status run_piece(fl_piece *piece)
{
    turn_to(piece);
    fl_answerer_now = NULL;
    for (int all = 0; all < 2 && !others_are_gone(piece); all++)
        fl_piece_now.host.collect(fl_piece_now.host.context, all);
    if (!others_are_gone(piece)) {
        FL_TRY(redo(true));
        return fl_piece_now.recorded ? close_recorded() : FL_OK;
    }
    fl_status status = run_program(piece);
    if (status != FL_OK) {
        fl_values_lose(piece);
        fl_values_end_pending();
        fl_piece_now.next = NULL;
        stop();
        return status;
    }
    fl_values_end_pending();
    fl_piece_now.at = piece;
    fl_piece_now.next = NULL;
    fl_piece_now.position = 0;
    fl_values_release(piece);
    fl_answerer_now = &answerer;
    return FL_OK;
}
/* ---- answers ---- */

static fl_status answer(fl_tensor **out, const fl_request *request)
{
    fl_piece *next = fl_piece_now.recorded ? NULL : find_next(request);
    if (next) return follow(out, next, request);
    if (!fl_piece_now.recorded) FL_TRY(redo(true));
    fl_answerer_now = NULL;
    fl_status status = fl_piece_now.recorded ? fl_piece_record(out, request, NULL, NULL) : fl_request_run(out, request);
    if (fl_piece_now.recorded && fl_piece_now.unfit) stop();
    if (!fl_piece_now.stopped) fl_answerer_now = &answerer;
    return status;
}

static fl_status answer_call(fl_tensor **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                             bool in_place)
{
    fl_attrs defaults;
    if (!attrs) {
        fl_attrs_init(&defaults, op);
        attrs = &defaults;
    }
    return answer(out, &(fl_request){FL_PIECE_OP, op, in_place, false, in, nin, in_place ? 1 : op->nout, attrs});
}

static fl_status answer_backward(fl_tensor *y, fl_tensor *gradient, bool retain)
{
    if (!fl_grad_sync || fl_grad_unsynced || fl_anomaly_watched) {
        FL_TRY(answerer.stop());
        return fl_autograd_backward(&y, gradient ? &gradient : NULL, 1, retain, false);
    }
    const fl_operand in[2] = {fl_of(y), gradient ? fl_of(gradient) : (fl_operand){FL_NONE, {0}}};
    return answer(NULL, &(fl_request){FL_PIECE_BACKWARD, NULL, false, retain, in, 2, 0, NULL});
}

static fl_status answer_detach(fl_tensor **out, fl_tensor *x)
{
    const fl_operand in = fl_of(x);
    return answer(out, &(fl_request){FL_PIECE_DETACH, NULL, false, false, &in, 1, 1, NULL});
}

static fl_status answer_read(void)
{
    if (fl_piece_now.recorded) return close_recorded();
    if (!fl_piece_now.position) return FL_OK;
    fl_piece *whole = find_next(NULL);
    if (whole) return run_piece(whole);
    FL_TRY(redo(true));
    return fl_piece_now.recorded ? close_recorded() : FL_OK;
}

static fl_status answer_stop(void)
{
    fl_status status = fl_piece_now.recorded ? FL_OK : redo(false);
    stop();
    return status;
}

static const fl_answerer answerer = {answer_call, answer_backward, answer_detach, answer_read, answer_stop};
/* A value that was put off is read. */
static fl_status read_put_off(void) { return fl_answerer_now == &answerer ? answer_read() : FL_OK; }

/* ---- calls ---- */

fl_status fl_pieces_new(fl_pieces **out, fl_tensor *const *args, int count)
{
    fl_pieces *pieces = calloc(1, sizeof *pieces);
    fl_status status = pieces && (pieces->root = fl_piece_new(NULL)) ? FL_OK : fl_program_out_of_memory();
    for (int i = 0; i < count && status == FL_OK; i++) {
        fl_piece_value v = {.meta = args[i]->meta, .base = i};
        memcpy(v.strides, args[i]->strides, sizeof v.strides);
        status = fl_piece_add_value(pieces->root, &v);
    }
    if (status == FL_OK) pieces->default_dtype = fl_dtype_default;
    if (status == FL_OK) *out = pieces;
    else fl_pieces_free(pieces);
    return status;
}

void fl_pieces_free(fl_pieces *pieces)
{
    if (!pieces) return;
    fl_piece_free(pieces->root);
    free(pieces);
}

bool fl_pieces_fits(const fl_pieces *pieces, fl_tensor *const *args, int count)
{
    bool fits = pieces->root->value_count == count && pieces->default_dtype == fl_dtype_default;
    for (int i = 0; i < count && fits; i++) fits = pieces->root->values[i].meta == args[i]->meta;
    return fits;
}

bool fl_pieces_is_vain(const fl_pieces *pieces) { return pieces->root->is_last && !pieces->root->child; }
bool fl_pieces_is_running(void) { return fl_piece_now.of != NULL; }

/* Each has memory of its own. */
static bool are_apart(fl_tensor *const *args, int count)
{
    for (int i = 0; i < count; i++) {
        if (!args[i]->contiguous || args[i]->requires_grad || args[i]->autograd) return false;
        for (int k = 0; k < i; k++)
            if (args[k]->storage == args[i]->storage) return false;
    }
    return true;
}

fl_status fl_pieces_begin(bool *answers, fl_pieces *pieces, fl_tensor *const *args, const fl_pieces_host *host)
{
    const int count = pieces->root->value_count;
    *answers = !fl_piece_now.of && !fl_fault_armed && !fl_answerer_now && are_apart(args, count);
    if (!*answers) return FL_OK;
    fl_values_start(read_put_off);
    fl_piece_now = (fl_piece_run){.of = pieces, .host = *host, .at = pieces->root};
    fl_autocast_forget();
    fl_status status = FL_OK;
    for (int i = 0; i < count && status == FL_OK; i++) status = fl_values_add(args[i]);
    if (status != FL_OK) {
        fl_pieces_end(true);
        return status;
    }
    fl_dispatch_watch(FL_WATCH_ANSWER, true);
    fl_answerer_now = &answerer;
    return FL_OK;
}

fl_status fl_pieces_end(bool failed)
{
    fl_status status = FL_OK;
    fl_piece_now.failed |= failed;
    if (!fl_piece_now.stopped && failed) status = answer_stop();
    else if (!fl_piece_now.stopped) status = answer_read();
    fl_answerer_now = NULL;
    fl_dispatch_watch(FL_WATCH_ANSWER, false);
    fl_autocast_forget();
    fl_piece_drop_recorded();
    fl_values_cut(0);
    for (int i = 0; i < fl_piece_now.pending_count; i++) fl_storage_unref(fl_piece_now.pending[i]);
    free(fl_piece_now.values);
    free(fl_piece_now.pending);
    fl_piece_now = (fl_piece_run){.of = NULL};
    return status;
}

static int add_facts(fl_program_facts *out, const fl_piece *piece)
{
    int count = piece->program != NULL;
    fl_program_facts f = {0};
    if (piece->program) fl_program_facts_get(&f, piece->program);
    out->steps += f.steps;
    out->bytes_alone += f.bytes_alone;
    out->bytes_in_place += f.bytes_in_place;
    if (f.bytes_shared > out->bytes_shared) out->bytes_shared = f.bytes_shared;
    if (f.bytes_least > out->bytes_least) out->bytes_least = f.bytes_least;
    out->bytes_own += f.bytes_own;
    for (const fl_piece *p = piece->child; p; p = p->sibling) count += add_facts(out, p);
    return count;
}

int fl_pieces_facts_get(fl_program_facts *out, const fl_pieces *pieces)
{
    *out = (fl_program_facts){0};
    return add_facts(out, pieces->root);
}
