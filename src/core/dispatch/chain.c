/*
** chain.c -- deferred results: which ops wait in which chain.
*/
#include "base/hash.h"
#include "chain_internal.h"
#include "dispatch.h"
#include "engine/control.h"
#include "engine/var.h"
#include "fault.h"
#include "file/mapping.h"
#include "listener.h"
#include "op/operand.h"

void (*fl_chain_collect)(int64_t bytes);

fl_chain fl_chains[FL_CHAINS];
int fl_chain_forcing;
uint8_t fl_chain_lessons[256];
static uint64_t clock_ticks;

/* ---- contents of a chain ---- */

static bool is_input_of(const fl_chain *chain, const fl_storage *storage)
{
    for (int i = 0; i < chain->count; i++)
        if (chain->values[i].role == FL_VALUE_INPUT && chain->values[i].storage == storage) return true;
    return false;
}

static void release_input(fl_chain *chain, int i)
{
    fl_storage *storage = chain->values[i].storage;
    bool read = false;
    chain->values[i].role = FL_VALUE_UNUSED;
    chain->values[i].storage = NULL;
    chain->inputs--;
    for (int k = 0; k < FL_CHAINS && !read; k++) read = is_input_of(&fl_chains[k], storage);
    if (!read) fl_var_unmark_deferred_read(&storage->var);
    fl_storage_unref(storage);
}

/* Gives back those of `values`, a bit each, that no pending result needs. */
static void give_back(fl_chain *chain, uint64_t values)
{
    if (chain->busy) return;
    for (uint64_t left = values & ~fl_chain_needed_by(chain, chain->pending); left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        if (i < chain->count && chain->values[i].role == FL_VALUE_INPUT) release_input(chain, i);
    }
    if (chain->pending) return;
    chain->count = 0;
    chain->open = false;
}

void fl_chain_tidy(fl_chain *chain) { give_back(chain, ~0ull); }

void fl_chain_set_done(fl_chain *chain, int i)
{
    chain->values[i].pending = false;
    chain->pending &= ~(1ull << i);
}

/* The tensor of a pending result is gone. */
static void value_dropped(fl_storage *storage)
{
    int i;
    fl_chain *c = fl_chain_of_stamp(storage->var.write, &i);
    fl_chain_set_done(c, i);
    c->values[i].storage = NULL;
    fl_storage_unref(c->values[i].home);
    c->values[i].home = NULL;
    give_back(c, c->values[i].needs);
}

void fl_chain_refresh_needs(fl_chain *chain)
{
    for (int i = 0; i < chain->count; i++) {
        fl_chain_value *v = &chain->values[i];
        v->needs = 1ull << i;
        if (v->role == FL_VALUE_RESULT)
            for (int k = 0; k < v->nin; k++) v->needs |= chain->values[v->in[k]].needs;
    }
}

uint64_t fl_chain_needed_by(const fl_chain *chain, uint64_t results)
{
    uint64_t needs = 0;
    for (; results; results &= results - 1) needs |= chain->values[__builtin_ctzll(results)].needs;
    return needs;
}

/* Nanoseconds of an element. */
static float cost_of(const fl_chain_value *value)
{
    if (value->role != FL_VALUE_RESULT) return 0;
    return value->row ? fl_ew_rows[value->row].cost_ns : value->draws;
}

bool fl_chain_is_costly(const fl_chain *chain, const fl_chain_value *value)
{
    float cost = cost_of(value);
    for (int k = 0; k < value->nin; k++) cost += cost_of(&chain->values[value->in[k]]);
    return cost >= 0.5f;
}

/* ---- finding a chain ---- */

static bool has_shape(const fl_chain *chain, const fl_meta *meta)
{
    return chain->ndim == meta->shape.ndim
        && memcmp(chain->size, meta->window.size, sizeof *chain->size * (size_t)chain->ndim) == 0;
}

int fl_chain_pending_value(const fl_chain *chain, const fl_tensor *tensor)
{
    int i;
    if (!fl_var_is_deferred(&tensor->storage->var) || fl_chain_of_stamp(tensor->storage->var.write, &i) != chain)
        return -1;
    bool whole = tensor->contiguous && has_shape(chain, tensor->meta) && tensor->meta->dtype == chain->values[i].dtype;
    return whole ? i : -1;
}

/* A chain without values; the one that was used longest ago is computed if there is no other. */
static fl_chain *chain_take(void)
{
    fl_chain *oldest = NULL;
    for (int i = 0; i < FL_CHAINS; i++) {
        if (fl_chains[i].count == 0 && !fl_chains[i].busy) return &fl_chains[i];
        if (!fl_chains[i].busy && (!oldest || fl_chains[i].age < oldest->age)) oldest = &fl_chains[i];
    }
    if (!oldest) return NULL;
    fl_chain_compute(oldest, oldest->pending, 0);
    return oldest;
}

/* The open chain for results of this plan: of their local shape and device. */
static fl_chain *chain_for(const fl_plan *plan)
{
    const fl_meta *meta = plan->out[0];
    int index = plan->device ? plan->device_index : -1;
    for (int i = 0; i < FL_CHAINS; i++)
        if (fl_chains[i].open && has_shape(&fl_chains[i], meta) && fl_chains[i].device == plan->device
            && fl_chains[i].device_index == index)
            return &fl_chains[i];
    fl_chain *c = chain_take();
    if (!c) return NULL;
    c->inputs = c->patterns = c->room = 0;
    c->open = true;
    c->device = plan->device;
    c->device_index = index;
    c->lane = plan->lane;
    c->ndim = meta->shape.ndim;
    memcpy(c->size, meta->window.size, sizeof c->size);
    c->numel = meta->local_numel;
    return c;
}

/* Strides along the chain's axes; false: neighbours of the innermost axis lie apart: copy kernels do that better. */
static bool broadcast_strides(int64_t *strides, const fl_chain *chain, const fl_tensor *tensor)
{
    int ndim = tensor->meta->shape.ndim, last = chain->ndim - 1;
    memset(strides, 0, sizeof *strides * FL_MAX_NDIM);
    for (int i = 0; i < ndim; i++)
        strides[chain->ndim - ndim + i] = fl_tensor_local_shape(tensor)[i] == 1 ? 0 : tensor->strides[i];
    while (last > 0 && chain->size[last] == 1) last--;
    return last < 0 || strides[last] == 0 || strides[last] == 1;
}

static int value_find(const fl_chain *chain, const fl_tensor *tensor, const int64_t *strides)
{
    int64_t offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
    for (int i = 0; i < chain->count; i++) {
        const fl_chain_value *v = &chain->values[i];
        if (v->role == FL_VALUE_INPUT && v->storage == tensor->storage && v->offset == offset
            && v->dtype == tensor->meta->dtype && memcmp(v->stride, strides, sizeof v->stride) == 0)
            return i;
    }
    return -1;
}

/* True where the strides are neither those of a result nor 0, nor those of another operand. */
static bool is_new_pattern(const fl_chain *chain, const int64_t *strides)
{
    int64_t expected = 1, any = 0;
    bool as_result = true;
    for (int a = chain->ndim - 1; a >= 0; a--) {
        any |= strides[a];
        as_result &= chain->size[a] == 1 || strides[a] == expected;
        expected *= chain->size[a];
    }
    if (!any || as_result) return false;
    for (int i = 0; i < chain->count; i++)
        if (chain->values[i].role == FL_VALUE_INPUT
            && memcmp(chain->values[i].stride, strides, sizeof chain->values[i].stride) == 0)
            return false;
    return true;
}

/* True if the operand's value is there, or is a step of this chain. A value that another chain defers is computed. */
static bool is_at_hand(const fl_chain *chain, const fl_tensor *tensor)
{
    fl_var *var = &tensor->storage->var;
    if (fl_chain_pending_value(chain, tensor) >= 0) return true;
    if (fl_var_is_deferred(var)) fl_var_computer(var->write);
    if (chain->device) return true; /* pending work is waited for in the device's queue */
    if (var->write) fl_var_settle(var);
    return fl_var_readable(var);
}

/* The most steps of tiles that an op takes: its own, and conversions unless all is of the dtype that it computes in. */
static int room_of(const fl_chain_call *call)
{
    fl_dtype dtype = call->plan->out[0]->dtype;
    bool plain = fl_dtype_compute(dtype) == dtype;
    for (int k = 0; k < call->nin; k++)
        plain = plain && (call->tensors[k] ? call->tensors[k]->meta->dtype : call->plan->number_dtype) == dtype;
    return plain ? 1 : call->nin + 2;
}

/* True if the chain has room for one more step and its operands. */
static bool has_room(const fl_chain *chain, const fl_chain_call *call)
{
    int inputs = chain->inputs, patterns = chain->patterns;
    int64_t strides[FL_MAX_NDIM];
    for (int k = 0; k < call->nin; k++) {
        if (!call->tensors[k] || fl_chain_pending_value(chain, call->tensors[k]) >= 0) continue;
        broadcast_strides(strides, chain, call->tensors[k]);
        if (value_find(chain, call->tensors[k], strides) >= 0) continue;
        inputs++;
        patterns += is_new_pattern(chain, strides);
    }
    return inputs <= FL_CHAIN_MAX_INPUTS && patterns < FL_TILES_PATTERNS
        && chain->count + call->nin + 1 <= FL_CHAIN_MAX_VALUES && chain->room + room_of(call) <= FL_CHAIN_MAX_ROOM;
}

/* Counts the room of the chain that its values take. */
static void count_again(fl_chain *chain)
{
    int count = chain->count;
    chain->inputs = chain->patterns = chain->room = 0;
    for (chain->count = 0; chain->count < count; chain->count++) {
        const fl_chain_value *v = &chain->values[chain->count];
        chain->inputs += v->role == FL_VALUE_INPUT;
        if (v->role == FL_VALUE_INPUT) chain->patterns += is_new_pattern(chain, v->stride);
        if (v->role == FL_VALUE_RESULT) chain->room += v->room;
    }
}

/* Values that nothing pending needs leave the chain, and the others move up: it has room again. */
static void compact(fl_chain *chain)
{
    fl_chain_tidy(chain);
    uint8_t places[FL_CHAIN_MAX_VALUES];
    uint64_t needed = fl_chain_needed_by(chain, chain->pending);
    int count = 0;
    chain->pending = 0;
    for (int i = 0; i < chain->count; i++) {
        if (!(needed >> i & 1u)) continue;
        fl_chain_value *v = &chain->values[count];
        places[i] = (uint8_t)count;
        if (count < i) *v = chain->values[i];
        for (int k = 0; v->role == FL_VALUE_RESULT && k < v->nin; k++) v->in[k] = places[v->in[k]];
        if (v->pending) {
            chain->pending |= 1ull << count;
            v->storage->var.write = fl_chain_stamp(chain, count);
        }
        count++;
    }
    chain->count = count;
    fl_chain_refresh_needs(chain);
    count_again(chain);
}

static int add_number(fl_chain *chain, const fl_view *view)
{
    fl_chain_value *v = &chain->values[chain->count];
    *v = (fl_chain_value){
        .role = FL_VALUE_NUMBER, .dtype = view->dtype, .needs = 1ull << chain->count, .number = {view->scalar[0]}};
    return chain->count++;
}

static int add_input(fl_chain *chain, fl_tensor *tensor)
{
    int64_t strides[FL_MAX_NDIM];
    broadcast_strides(strides, chain, tensor);
    int found = value_find(chain, tensor, strides);
    if (found >= 0) return found;
    chain->patterns += is_new_pattern(chain, strides);
    fl_chain_value *v = &chain->values[chain->count];
    *v = (fl_chain_value){.role = FL_VALUE_INPUT,
                          .dtype = tensor->meta->dtype,
                          .needs = 1ull << chain->count,
                          .storage = fl_storage_ref(tensor->storage),
                          .offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype)};
    memcpy(v->stride, strides, sizeof strides);
    chain->inputs++;
    return chain->count++;
}

/* The views of the operands that kernels get, without their data. */
static void views_of(fl_view *views, const fl_chain_call *call)
{
    for (int k = 0; k < call->nin; k++) {
        fl_view *view = &views[k];
        if (!call->tensors[k]) fl_view_of_number(view, &call->in[k], call->plan->number_dtype);
        else *view = (fl_view){.dtype = call->tensors[k]->meta->dtype, .ndim = call->tensors[k]->meta->shape.ndim};
    }
}

/* Sets the step that computes the value. */
static void set_step(fl_chain_value *value, const fl_chain_call *call, fl_view *views)
{
    const fl_op *op = call->plan->op;
    fl_kernel kernel = {.row = op->row, .attrs = call->attrs, .in = views, .nin = call->nin};
    value->row = (uint8_t)op->row;
    if (op->row) {
        value->compute = fl_ew_compute_dtype(&kernel, call->plan->out[0]->dtype);
        fl_ew_attributes(value->attributes, &kernel);
    }
    if (!op->draw) return;
    if (op->flags & FL_OP_RANDOM) {
        fl_generator generator = fl_dispatch_draw(call->plan->out[0]);
        kernel.seed = generator.seed;
        kernel.counter = generator.counter;
    }
    value->draws = true;
    value->first = (uint64_t)fl_meta_first(call->plan->out[0]);
    op->draw(&value->draw, &kernel);
}

/* The operands as values of the chain, in[k] being operand k; adds the values they are computed from. */
static uint64_t add_operands(fl_chain *chain, const fl_chain_call *call, fl_view *views, uint8_t *in)
{
    uint64_t needs = 0;
    views_of(views, call);
    for (int k = 0; k < call->nin; k++) {
        fl_tensor *tensor = call->tensors[k];
        int value = tensor ? fl_chain_pending_value(chain, tensor) : add_number(chain, &views[k]);
        if (value < 0) value = add_input(chain, tensor);
        in[k] = (uint8_t)value;
        needs |= chain->values[value].needs;
    }
    return needs;
}

/* The value of the storage becomes a step, whose operands are there. */
static void add_result(fl_chain *chain, const fl_chain_call *call, fl_view *views, const uint8_t *in, uint64_t needs,
                       fl_storage *storage)
{
    const fl_meta *meta = call->plan->out[0];
    int i = chain->count++;
    fl_chain_value *v = &chain->values[i];
    *v = (fl_chain_value){.role = FL_VALUE_RESULT, .pending = true, .dtype = meta->dtype, .needs = needs | 1ull << i};
    v->storage = storage;
    v->name = call->plan->op->name;
    if (fl_chain_reports() && fl_engine_where) fl_engine_where(v->line, sizeof v->line);
    v->nin = (uint8_t)call->nin;
    memcpy(v->in, in, (size_t)call->nin);
    set_step(v, call, views);
    v->lesson = (uint8_t)fl_hash_words(meta->hash, v->name, strlen(v->name));
    v->kept = v->guessed = fl_chain_lessons[v->lesson] && fl_chain_is_costly(chain, v);
    v->room = (uint8_t)room_of(call);
    chain->room += v->room;
    chain->pending |= 1ull << i;
    chain->age = ++clock_ticks;
}

static fl_tensor *add_step(fl_chain *chain, const fl_chain_call *call)
{
    fl_view views[FL_EW_MAX_IN];
    uint8_t in[FL_EW_MAX_IN];
    uint64_t needs = add_operands(chain, call, views, in);
    fl_tensor *out;
    fl_stamp stamp = fl_chain_stamp(chain, chain->count);
    if (fl_tensor_deferred(&out, call->plan->out[0], chain->device_index, stamp) != FL_OK) return NULL;
    add_result(chain, call, views, in, needs, out->storage);
    return out;
}

/* Marks what the values read, but for what they write; false: some operand has too many readers already. */
static bool mark_reads(const fl_chain_call *call, const fl_storage *written)
{
    for (int k = 0; k < call->nin; k++)
        if (call->tensors[k] && call->tensors[k]->storage != written
            && !fl_var_is_deferred(&call->tensors[k]->storage->var)
            && !fl_var_mark_deferred_read(&call->tensors[k]->storage->var))
            return false;
    return true;
}

void fl_chain_start(void)
{
    if (fl_var_computer) return;
    fl_var_computer = fl_chain_compute_stamp;
    fl_var_before_write = fl_chain_before_write;
    fl_storage_dropped = value_dropped;
}

bool fl_chain_may_wait(void)
{
    if (!fl_var_computer) fl_chain_start();
    return !fl_chain_forcing && !fl_fault_armed && !fl_listener_now && fl_engine_mode_get() == FL_ENGINE_AUTO;
}

/* A chain with room for the step, whose operands are ready; NULL: the op must run now. */
static fl_chain *chain_ready(const fl_chain_call *call)
{
    int64_t strides[FL_MAX_NDIM];
    for (int tries = 0; tries < 2; tries++) {
        fl_chain *c = chain_for(call->plan);
        if (!c) return NULL;
        for (int k = 0; k < call->nin; k++)
            if (call->tensors[k]
                && (!broadcast_strides(strides, c, call->tensors[k]) || !is_at_hand(c, call->tensors[k]))) {
                fl_chain_tidy(c);
                return NULL;
            }
        if (has_room(c, call)) return c;
        if (fl_chain_collect) fl_chain_collect(0);
        compact(c);
        c->open = c->count <= FL_CHAIN_MAX_VALUES / 2 && has_room(c, call);
    }
    return NULL;
}

fl_tensor *fl_chain_add(const fl_chain_call *call)
{
    if (!fl_chain_may_wait() || (call->plan->op->draw && fl_meta_first(call->plan->out[0]) < 0)) return NULL;
    fl_chain *c = chain_ready(call);
    if (!c) return NULL;
    fl_tensor *result = mark_reads(call, NULL) ? add_step(c, call) : NULL;
    if (!result) fl_chain_tidy(c);
    return result;
}

/* True if some operand of the call is computed from memory that may be lost. */
static bool may_lose(const fl_chain *chain, const fl_chain_call *call)
{
    uint64_t pending = 0;
    for (int k = 0; k < call->nin; k++) {
        int value = call->tensors[k] ? fl_chain_pending_value(chain, call->tensors[k]) : -1;
        if (value >= 0) pending |= 1ull << value;
        else if (call->tensors[k] && fl_mapping_is_watched(call->tensors[k]->storage->data)) return true;
    }
    return fl_chain_may_lose(chain, pending);
}

/* The step writes operand 0 of the call. */
static bool add_write(fl_chain *chain, const fl_chain_call *call)
{
    fl_view views[FL_EW_MAX_IN];
    uint8_t in[FL_EW_MAX_IN];
    fl_chain_target target;
    if (!fl_chain_target_open(&target, chain, call->tensors[0])) return false;
    uint64_t needs = add_operands(chain, call, views, in);
    add_result(chain, call, views, in, needs, target.storage);
    fl_chain_target_close(&target, chain, chain->count - 1);
    return true;
}

bool fl_chain_write(const fl_chain_call *call)
{
    fl_storage *storage = call->tensors[0]->storage;
    if (!call->plan->op->row || !fl_chain_may_wait() || !fl_chain_make_writable(call->tensors[0])) return false;
    fl_chain *c = chain_ready(call);
    if (!c) return false;
    bool added = fl_chain_is_unread(storage) && !fl_chain_holds_much(c) && !may_lose(c, call)
        && mark_reads(call, storage) && add_write(c, call);
    if (!added) fl_chain_tidy(c);
    return added;
}

void fl_chain_keep(fl_tensor *tensor)
{
    int i;
    if (!fl_var_is_deferred(&tensor->storage->var)) return;
    fl_chain *c = fl_chain_of_stamp(tensor->storage->var.write, &i);
    c->values[i].kept = true;
}
