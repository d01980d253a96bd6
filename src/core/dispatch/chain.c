/*
** chain.c -- deferred results: which ops wait in which chain, what is computed when.
**
** A chain is a list of steps over local parts of one shape. Its values are operands in memory (owned), numbers and
** results; a result is pending while its tensor lives and it is not computed. A computation takes the steps that the
** wanted results need and stores those results, what was marked to be kept, and what is computed for the second time,
** so nothing is computed more than twice.
*/
#include "chain.h"
#include "base/clock.h"
#include "chain_report.h"
#include "dispatch.h"
#include "cpu/tiles.h"
#include "engine/engine.h"
#include "fault.h"
#include "op/operand.h"

#include <assert.h>
#include <stdlib.h>
#include <stdio.h>

enum {
    CHAINS = 16,
    MAX_VALUES = 56,
    MAX_INPUTS = 8,
    MAX_ROOM = FL_TILES_STEPS - FL_EW_MAX_IN - 2 /* steps of tiles, with conversions */
};

typedef enum role { UNUSED, INPUT, NUMBER, RESULT } role;

struct chain_value {
    uint8_t role;
    bool pending;  /* a result that is not computed, whose tensor lives */
    bool kept;     /* to be stored when it is computed for another */
    bool computed; /* once already, without being stored */
    fl_dtype dtype;
    uint64_t needs;              /* the values it is computed from and itself, a bit each */
    fl_storage *storage;         /* INPUT: owned; pending: its tensor's */
    int64_t offset;              /* INPUT: bytes */
    int64_t stride[FL_MAX_NDIM]; /* INPUT: along the chain's axes, 0 where broadcast */
    int64_t number[1];
    /* RESULT: */
    const char *name;                         /* of the op */
    char line[FL_CHAIN_LINE];                 /* that called it, while passes are reported */
    uint8_t row, room, nin, in[FL_EW_MAX_IN]; /* room: steps of tiles that it may take */
    fl_dtype compute;
    union {
        fl_ew_attr attributes[FL_EW_ATTRS]; /* of a row */
        struct {
            fl_draw draw;
            uint64_t first; /* logical index of the first element */
        };
    };
    bool draws; /* neither a row nor this: a cast */
};

struct chain {
    int count, inputs, patterns, room, ndim;
    bool open;               /* takes more steps */
    bool busy;               /* is being computed */
    const fl_device *device; /* NULL: the host */
    int device_index, lane;
    uint64_t pending, age; /* bits of values */
    int64_t size[FL_MAX_NDIM], numel;
    struct chain_value values[MAX_VALUES];
};

void (*fl_chain_collect)(int64_t bytes);

static struct chain chains[CHAINS];
static uint64_t clock_ticks;
static int forcing; /* computations under way */

/* ---- stamps ---- */

static fl_stamp stamp_of(const struct chain *chain, int value)
{
    return (fl_stamp)FL_LANE_DEFERRED << 56 | (fl_stamp)(chain - chains) << 8 | (fl_stamp)(value + 1);
}

/* The chain of a pending value's stamp. */
static struct chain *chain_of(fl_stamp stamp, int *value)
{
    *value = (int)(stamp & 0xff) - 1;
    return &chains[stamp >> 8 & 0xffff];
}

/* ---- what a chain holds ---- */

static bool is_input_of(const struct chain *chain, const fl_storage *storage)
{
    for (int i = 0; i < chain->count; i++)
        if (chain->values[i].role == INPUT && chain->values[i].storage == storage) return true;
    return false;
}

static void release_input(struct chain *chain, int i)
{
    fl_storage *storage = chain->values[i].storage;
    bool read = false;
    chain->values[i].role = UNUSED;
    chain->values[i].storage = NULL;
    chain->inputs--;
    for (int k = 0; k < CHAINS && !read; k++) read = is_input_of(&chains[k], storage);
    if (!read) fl_var_unmark_deferred_read(&storage->var);
    fl_storage_unref(storage);
}

/* Gives back what no pending result needs; a chain without any is empty. */
static void tidy(struct chain *chain)
{
    uint64_t needed = 0;
    if (chain->busy) return;
    for (uint64_t left = chain->pending; left; left &= left - 1) needed |= chain->values[__builtin_ctzll(left)].needs;
    for (int i = 0; i < chain->count; i++)
        if (chain->values[i].role == INPUT && !(needed >> i & 1u)) release_input(chain, i);
    if (chain->pending) return;
    chain->count = 0;
    chain->open = false;
}

static void set_done(struct chain *chain, int i)
{
    chain->values[i].pending = false;
    chain->pending &= ~(1ull << i);
}

/* The tensor of a pending result is gone. */
static void value_dropped(fl_storage *storage)
{
    int i;
    struct chain *c = chain_of(storage->var.write, &i);
    set_done(c, i);
    c->values[i].storage = NULL;
    tidy(c);
}

/* ---- computing ---- */

/* What results need is known anew: some of it may lie in memory now. */
static void refresh_needs(struct chain *chain)
{
    for (int i = 0; i < chain->count; i++) {
        struct chain_value *v = &chain->values[i];
        v->needs = 1ull << i;
        if (v->role == RESULT)
            for (int k = 0; k < v->nin; k++) v->needs |= chain->values[v->in[k]].needs;
    }
}

static uint64_t needed_by(const struct chain *chain, uint64_t results)
{
    uint64_t needs = 0;
    for (; results; results &= results - 1) needs |= chain->values[__builtin_ctzll(results)].needs;
    return needs;
}

/* The operands that `results` need and that are poisoned or may be: a task passes that on to all it writes. */
static uint64_t doubtful(const struct chain *chain, uint64_t results)
{
    uint64_t operands = 0;
    for (uint64_t left = chain->device ? needed_by(chain, results) : 0; left; left &= left - 1) {
        const struct chain_value *v = &chain->values[__builtin_ctzll(left)];
        if (v->role == INPUT && v->storage->var.poison) operands |= left & -left;
    }
    return operands;
}

/* The results to store so that those of `wanted` are there. */
static uint64_t to_store(const struct chain *chain, uint64_t wanted)
{
    uint64_t store = wanted & chain->pending, doubt = doubtful(chain, store);
    for (uint64_t left = needed_by(chain, store) & chain->pending; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        if ((chain->values[i].kept || chain->values[i].computed) && doubtful(chain, 1ull << i) == doubt)
            store |= 1ull << i;
    }
    return store;
}

static int slot_of(const struct chain *chain, fl_tiles *tiles, const struct chain_value *value, const int *slots)
{
    fl_view view = {.dtype = value->dtype, .ndim = chain->ndim, .size = chain->size, .stride = value->stride};
    switch (value->role) {
    case INPUT: view.data = (char *)value->storage->data + value->offset; return fl_tiles_operand(tiles, &view);
    case NUMBER:
        view.ndim = 0;
        view.scalar[0] = value->number[0];
        view.data = view.scalar;
        return fl_tiles_operand(tiles, &view);
    default: break;
    }
    int in[FL_EW_MAX_IN] = {0};
    for (int k = 0; k < value->nin; k++) in[k] = slots[value->in[k]];
    if (value->draws) return fl_tiles_draw(tiles, &value->draw, value->first, in[0], value->dtype);
    if (!value->row) return fl_tiles_cast(tiles, in[0], value->dtype);
    return fl_tiles_row(tiles, value->row, value->compute, value->dtype, value->attributes, in, value->nin);
}

/* The steps that the results need, as tiles; slots: of all values that are needed. */
static void build(const struct chain *chain, fl_tiles *tiles, uint64_t results, int *slots)
{
    fl_tiles_begin(tiles, chain->ndim, chain->size, NULL);
    for (uint64_t left = needed_by(chain, results); left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        slots[i] = slot_of(chain, tiles, &chain->values[i], slots);
        assert(slots[i] != FL_TILES_FULL);
    }
}

/* Memory for the results of `store`, of which some may be gone afterwards: garbage is collected where it is short. */
static fl_status blocks_new(fl_storage **blocks, const struct chain *chain, uint64_t store)
{
    fl_status status = FL_OK;
    for (uint64_t left = store; left && status == FL_OK; left &= left - 1) {
        int i = __builtin_ctzll(left);
        size_t bytes = (size_t)chain->numel * fl_dtype_size(chain->values[i].dtype);
        status = fl_storage_new_for(&blocks[i], bytes, (fl_device_type)chain->values[i].storage->device,
                                    chain->device_index, FL_QUEUE_COMPUTE);
        if (status != FL_OK) blocks[i] = NULL;
    }
    return status;
}

/* The value is in memory; it becomes an operand where others are still computed from it. */
static void value_done(struct chain *chain, int i)
{
    struct chain_value *v = &chain->values[i];
    set_done(chain, i);
    if (!(needed_by(chain, chain->pending) >> i & 1u) || !fl_var_mark_deferred_read(&v->storage->var)) {
        v->storage = NULL;
        return;
    }
    v->role = INPUT;
    chain->inputs++;
    v->storage = fl_storage_ref(v->storage);
    v->offset = 0;
    int64_t stride = 1;
    for (int a = chain->ndim - 1; a >= 0; a--) v->stride[a] = stride, stride *= chain->size[a];
}

/* There is no memory: the results are poisoned with the message. */
static void value_failed(struct chain *chain, int i)
{
    fl_storage *storage = chain->values[i].storage;
    storage->var.write = 0;
    fl_var_poison(&storage->var, chain->values[i].name);
    set_done(chain, i);
    chain->values[i].storage = NULL;
}

/* A computation under way: which results are stored where. */
struct work {
    struct chain *chain;
    uint64_t store, computed; /* results, and all that they are computed from */
    uint64_t started;         /* base/clock.h */
    fl_storage *blocks[MAX_VALUES];
    int slots[MAX_VALUES];
};

/* Finds memory for the results of `store`; false: there is none, with the message. Some may be gone afterwards, because
** garbage was collected. */
static bool work_begin(struct work *work, struct chain *chain, uint64_t store)
{
    *work = (struct work){.chain = chain, .started = fl_now()};
    chain->busy = true;
    forcing++;
    fl_status status = blocks_new(work->blocks, chain, store);
    for (int i = 0; i < chain->count; i++) {
        if (work->blocks[i] && status == FL_OK && chain->pending >> i & 1u) work->store |= 1ull << i;
        else if (work->blocks[i]) fl_storage_unref(work->blocks[i]);
    }
    return status == FL_OK;
}

/* The steps for the results to be stored, which have memory from here on, and for `also`. */
static void work_tiles(struct work *work, fl_tiles *tiles, uint64_t also)
{
    work->computed = needed_by(work->chain, work->store | also);
    build(work->chain, tiles, work->store | also, work->slots);
    for (uint64_t left = work->store; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        fl_storage *storage = work->chain->values[i].storage;
        fl_storage_move_data(storage, work->blocks[i]);
        storage->var.write = 0;
        fl_tiles_store(tiles, work->slots[i], storage->data);
    }
}

/* fold: the op that took the elements, or NULL. */
static void report(const struct work *work, const char *fold)
{
    const struct chain *chain = work->chain;
    fl_chain_step steps[MAX_VALUES + 1];
    fl_chain_pass pass = {.steps = steps, .stored = __builtin_popcountll(work->store), .numel = chain->numel};
    char line[FL_CHAIN_LINE] = "";
    for (uint64_t left = work->computed; left; left &= left - 1) {
        const struct chain_value *v = &chain->values[__builtin_ctzll(left)];
        if (v->role == RESULT) steps[pass.count++] = (fl_chain_step){v->name, v->line};
    }
    if (fold && fl_engine_where) fl_engine_where(line, sizeof line);
    if (fold) steps[pass.count++] = (fl_chain_step){fold, line}, pass.stored++;
    if (pass.count) fl_chain_report(&pass, work->started);
}

/* The tiles have run. */
static void work_end(struct work *work, const char *fold)
{
    struct chain *chain = work->chain;
    if (fl_chain_reports()) report(work, fold);
    for (uint64_t left = work->computed; left; left &= left - 1) chain->values[__builtin_ctzll(left)].computed = true;
    for (uint64_t left = work->store; left; left &= left - 1) value_done(chain, __builtin_ctzll(left));
    refresh_needs(chain);
    chain->busy = false;
    forcing--;
    tidy(chain);
}

/* ---- on a device ---- */

struct issued {
    const struct work *work;
    const fl_tiles *tiles;
    const char *name;
};

static fl_status issue_run(void *payload)
{
    const struct issued *issued = payload;
    const struct chain *chain = issued->work->chain;
    FL_TRY(chain->device->enter(chain->device_index, FL_QUEUE_COMPUTE));
    return chain->device->tiles(issued->tiles, issued->name);
}

/* One task, which the engine orders among all others that read or write its variables. */
static void issue(const struct work *work, const fl_tiles *tiles)
{
    fl_var *reads[MAX_VALUES], *writes[MAX_VALUES];
    uint32_t versions[MAX_VALUES]; /* a result has its value from the start: this write is none of the script's */
    struct chain *chain = work->chain;
    struct issued payload = {work, tiles, chain->values[63 - __builtin_clzll(work->store)].name};
    fl_task task = {.name = payload.name,
                    .run = issue_run,
                    .payload = &payload,
                    .payload_size = sizeof payload,
                    .reads = reads,
                    .writes = writes,
                    .lane = chain->lane};
    for (uint64_t left = work->computed; left; left &= left - 1) {
        int i = __builtin_ctzll(left), k = 0;
        if (chain->values[i].role != INPUT) continue;
        while (k < task.read_count && reads[k] != &chain->values[i].storage->var) k++;
        if (k == task.read_count) reads[task.read_count++] = &chain->values[i].storage->var;
    }
    for (uint64_t left = work->store; left; left &= left - 1)
        writes[task.write_count++] = &chain->values[__builtin_ctzll(left)].storage->var;
    for (int i = 0; i < task.write_count; i++) versions[i] = writes[i]->version;
    fl_status status = fl_engine_push(&task);
    for (int i = 0; i < task.write_count; i++) {
        writes[i]->version = versions[i];
        if (status != FL_OK && !writes[i]->poison) fl_var_poison(writes[i], payload.name);
    }
}

/* Computes what is wanted; stores the results of `also` with it, where there is memory for them. */
static void compute_together(struct chain *chain, uint64_t wanted, uint64_t also)
{
    struct work work;
    fl_tiles tiles;
    bool has_memory = work_begin(&work, chain, to_store(chain, wanted | also));
    if (!has_memory && also) {
        forcing--;
        has_memory = work_begin(&work, chain, to_store(chain, wanted));
    }
    if (work.store) {
        work_tiles(&work, &tiles, 0);
        if (chain->device) issue(&work, &tiles);
        else fl_tiles_run(&tiles);
    }
    for (uint64_t left = has_memory ? 0 : wanted & chain->pending; left; left &= left - 1)
        value_failed(chain, __builtin_ctzll(left));
    work_end(&work, NULL);
}

/* The same; each of its own where operands may be poisoned. */
static void compute(struct chain *chain, uint64_t wanted, uint64_t also)
{
    if (!doubtful(chain, (wanted | also) & chain->pending)) {
        compute_together(chain, wanted, also);
        return;
    }
    for (; wanted; wanted &= wanted - 1)
        if (wanted & -wanted & chain->pending) compute_together(chain, wanted & -wanted, 0);
}

/* The pending results that are computed from the variable's storage. */
static uint64_t readers_of(const struct chain *chain, const fl_var *var)
{
    uint64_t readers = 0;
    for (int i = 0; i < chain->count; i++) {
        if (chain->values[i].role != INPUT || &chain->values[i].storage->var != var) continue;
        for (uint64_t left = chain->pending; left; left &= left - 1)
            if (chain->values[__builtin_ctzll(left)].needs >> i & 1u) readers |= left & -left;
    }
    return readers;
}

static int64_t bytes_of(const struct chain *chain, uint64_t results)
{
    int64_t bytes = 0;
    for (; results; results &= results - 1)
        bytes += chain->numel * (int64_t)fl_dtype_size(chain->values[__builtin_ctzll(results)].dtype);
    return bytes;
}

/* Lets go of garbage among the results that are computed from the variable's storage, or among all (NULL). */
static void drop_garbage(const fl_var *var)
{
    for (int tries = 0; tries < 2 && fl_chain_collect; tries++) {
        int64_t bytes = 0;
        for (int i = 0; i < CHAINS; i++)
            bytes += bytes_of(&chains[i], var ? readers_of(&chains[i], var) : chains[i].pending);
        if (bytes) fl_chain_collect(tries == 0 ? 0 : bytes);
    }
}

/* The pending results that take steps which the value takes too, and do not lie on the way to it. In a chain that takes
** no more steps they are the variables of a loop, and one pass for all computes those steps once. */
static uint64_t siblings_of(const struct chain *chain, int value)
{
    uint64_t needs = chain->values[value].needs, steps = 0, siblings = 0;
    for (uint64_t left = needs; left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].role == RESULT) steps |= left & -left;
    for (uint64_t left = chain->pending & ~needs; left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].needs & steps) siblings |= left & -left;
    return siblings;
}

static void compute_stamp(fl_stamp stamp)
{
    int value;
    if (stamp != FL_STAMP_ALL) {
        struct chain *c = chain_of(stamp, &value);
        compute(c, 1ull << value, c->open ? 0 : siblings_of(c, value));
        return;
    }
    drop_garbage(NULL);
    for (int i = 0; i < CHAINS; i++)
        if (chains[i].pending && !chains[i].busy) compute(&chains[i], chains[i].pending, 0);
}

static void before_write(fl_var *var)
{
    drop_garbage(var);
    for (int i = 0; i < CHAINS; i++) {
        uint64_t readers = readers_of(&chains[i], var);
        if (readers) compute(&chains[i], readers, 0);
    }
    fl_var_unmark_deferred_read(var);
}

/* ---- adding a step ---- */

static bool has_shape(const struct chain *chain, const fl_meta *meta)
{
    return chain->ndim == meta->shape.ndim
        && memcmp(chain->size, meta->window.size, sizeof *chain->size * (size_t)chain->ndim) == 0;
}

/* A chain without values; the one that was used longest ago is computed if there is no other. */
static struct chain *chain_take(void)
{
    struct chain *oldest = NULL;
    for (int i = 0; i < CHAINS; i++) {
        if (chains[i].count == 0 && !chains[i].busy) return &chains[i];
        if (!chains[i].busy && (!oldest || chains[i].age < oldest->age)) oldest = &chains[i];
    }
    if (!oldest) return NULL;
    compute(oldest, oldest->pending, 0);
    return oldest;
}

/* The open chain for results of this plan: of their local shape and device. */
static struct chain *chain_for(const fl_plan *plan)
{
    const fl_meta *meta = plan->out[0];
    int index = plan->device ? plan->device_index : -1;
    for (int i = 0; i < CHAINS; i++)
        if (chains[i].open && has_shape(&chains[i], meta) && chains[i].device == plan->device
            && chains[i].device_index == index)
            return &chains[i];
    struct chain *c = chain_take();
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
static bool broadcast_strides(int64_t *strides, const struct chain *chain, const fl_tensor *tensor)
{
    int ndim = tensor->meta->shape.ndim, last = chain->ndim - 1;
    memset(strides, 0, sizeof *strides * FL_MAX_NDIM);
    for (int i = 0; i < ndim; i++)
        strides[chain->ndim - ndim + i] = fl_tensor_local_shape(tensor)[i] == 1 ? 0 : tensor->strides[i];
    while (last > 0 && chain->size[last] == 1) last--;
    return last < 0 || strides[last] == 0 || strides[last] == 1;
}

static int value_find(const struct chain *chain, const fl_tensor *tensor, const int64_t *strides)
{
    int64_t offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype);
    for (int i = 0; i < chain->count; i++) {
        const struct chain_value *v = &chain->values[i];
        if (v->role == INPUT && v->storage == tensor->storage && v->offset == offset && v->dtype == tensor->meta->dtype
            && memcmp(v->stride, strides, sizeof v->stride) == 0)
            return i;
    }
    return -1;
}

/* True where the strides are neither those of a result nor 0, nor those of another operand. */
static bool is_new_pattern(const struct chain *chain, const int64_t *strides)
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
        if (chain->values[i].role == INPUT
            && memcmp(chain->values[i].stride, strides, sizeof chain->values[i].stride) == 0)
            return false;
    return true;
}

/* The pending value of the chain that the tensor is as a whole, or -1. */
static int pending_value(const struct chain *chain, const fl_tensor *tensor)
{
    int i;
    if (!fl_var_is_deferred(&tensor->storage->var) || chain_of(tensor->storage->var.write, &i) != chain) return -1;
    bool whole = tensor->contiguous && has_shape(chain, tensor->meta) && tensor->meta->dtype == chain->values[i].dtype;
    return whole ? i : -1;
}

/* Is the operand's value there, or a step of this chain? Others that are deferred are computed. */
static bool is_at_hand(const struct chain *chain, const fl_tensor *tensor)
{
    fl_var *var = &tensor->storage->var;
    if (pending_value(chain, tensor) >= 0) return true;
    if (fl_var_is_deferred(var)) fl_var_computer(var->write);
    if (chain->device) return true; /* what is on its way is waited for in the device's queue */
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

/* Has the chain room for one more step and its operands? */
static bool has_room(const struct chain *chain, const fl_chain_call *call)
{
    int inputs = chain->inputs, patterns = chain->patterns;
    int64_t strides[FL_MAX_NDIM];
    for (int k = 0; k < call->nin; k++) {
        if (!call->tensors[k] || pending_value(chain, call->tensors[k]) >= 0) continue;
        broadcast_strides(strides, chain, call->tensors[k]);
        if (value_find(chain, call->tensors[k], strides) >= 0) continue;
        inputs++;
        patterns += is_new_pattern(chain, strides);
    }
    return inputs <= MAX_INPUTS && patterns < FL_TILES_PATTERNS && chain->count + call->nin + 1 <= MAX_VALUES
        && chain->room + room_of(call) <= MAX_ROOM;
}

/* What the chain's values take of its room. */
static void count_again(struct chain *chain)
{
    int count = chain->count;
    chain->inputs = chain->patterns = chain->room = 0;
    for (chain->count = 0; chain->count < count; chain->count++) {
        const struct chain_value *v = &chain->values[chain->count];
        chain->inputs += v->role == INPUT;
        if (v->role == INPUT) chain->patterns += is_new_pattern(chain, v->stride);
        if (v->role == RESULT) chain->room += v->room;
    }
}

/* Values that nothing pending needs leave the chain, and the others move up: it has room again. */
static void compact(struct chain *chain)
{
    tidy(chain);
    uint8_t places[MAX_VALUES];
    uint64_t needed = needed_by(chain, chain->pending);
    int count = 0;
    chain->pending = 0;
    for (int i = 0; i < chain->count; i++) {
        if (!(needed >> i & 1u)) continue;
        struct chain_value *v = &chain->values[count];
        places[i] = (uint8_t)count;
        if (count < i) *v = chain->values[i];
        for (int k = 0; v->role == RESULT && k < v->nin; k++) v->in[k] = places[v->in[k]];
        if (v->pending) {
            chain->pending |= 1ull << count;
            v->storage->var.write = stamp_of(chain, count);
        }
        count++;
    }
    chain->count = count;
    refresh_needs(chain);
    count_again(chain);
}

static int add_number(struct chain *chain, const fl_view *view)
{
    struct chain_value *v = &chain->values[chain->count];
    *v = (struct chain_value){
        .role = NUMBER, .dtype = view->dtype, .needs = 1ull << chain->count, .number = {view->scalar[0]}};
    return chain->count++;
}

static int add_input(struct chain *chain, fl_tensor *tensor)
{
    int64_t strides[FL_MAX_NDIM];
    broadcast_strides(strides, chain, tensor);
    int found = value_find(chain, tensor, strides);
    if (found >= 0) return found;
    chain->patterns += is_new_pattern(chain, strides);
    struct chain_value *v = &chain->values[chain->count];
    *v = (struct chain_value){.role = INPUT,
                              .dtype = tensor->meta->dtype,
                              .needs = 1ull << chain->count,
                              .storage = fl_storage_ref(tensor->storage),
                              .offset = tensor->offset * (int64_t)fl_dtype_size(tensor->meta->dtype)};
    memcpy(v->stride, strides, sizeof strides);
    chain->inputs++;
    return chain->count++;
}

/* How kernels see the operands, but for their data. */
static void views_of(fl_view *views, const fl_chain_call *call)
{
    for (int k = 0; k < call->nin; k++) {
        fl_view *view = &views[k];
        if (!call->tensors[k]) fl_view_of_number(view, &call->in[k], call->plan->number_dtype);
        else *view = (fl_view){.dtype = call->tensors[k]->meta->dtype, .ndim = call->tensors[k]->meta->shape.ndim};
    }
}

/* The logical index of the part's first element, where its elements follow each other in the whole; -1: they do not. */
static int64_t first_of(const fl_meta *meta)
{
    int64_t first = 0, unit = 1;
    bool whole = true; /* all axes after this one */
    for (int i = meta->shape.ndim - 1; i >= 0; i--) {
        int64_t size = meta->window.size[i];
        if (!whole && size != 1) return -1;
        whole = whole && size == meta->shape.dims[i];
        first += meta->window.start[i] * unit;
        unit *= meta->shape.dims[i];
    }
    return first;
}

/* What the value is computed by. */
static void set_step(struct chain_value *value, const fl_chain_call *call, fl_view *views)
{
    const fl_op *op = call->plan->op;
    fl_kernel kernel = {.row = op->row, .attrs = call->attrs, .in = views, .nin = call->nin};
    value->row = (uint8_t)op->row;
    if (op->row) {
        value->compute = fl_ew_compute_dtype(&kernel);
        fl_ew_attributes(value->attributes, &kernel);
    }
    if (!op->draw) return;
    if (op->flags & FL_OP_RANDOM) {
        fl_generator generator = fl_dispatch_draw(call->plan->out[0]);
        kernel.seed = generator.seed;
        kernel.counter = generator.counter;
    }
    value->draws = true;
    value->first = (uint64_t)first_of(call->plan->out[0]);
    op->draw(&value->draw, &kernel);
}

static fl_tensor *add_step(struct chain *chain, const fl_chain_call *call)
{
    fl_view views[FL_EW_MAX_IN];
    uint8_t in[FL_EW_MAX_IN];
    uint64_t needs = 0;
    views_of(views, call);
    for (int k = 0; k < call->nin; k++) {
        fl_tensor *tensor = call->tensors[k];
        int value = tensor ? pending_value(chain, tensor) : add_number(chain, &views[k]);
        if (value < 0) value = add_input(chain, tensor);
        in[k] = (uint8_t)value;
        needs |= chain->values[value].needs;
    }
    fl_tensor *out;
    int i = chain->count;
    if (fl_tensor_deferred(&out, call->plan->out[0], chain->device_index, stamp_of(chain, i)) != FL_OK) return NULL;
    struct chain_value *v = &chain->values[chain->count++];
    *v = (struct chain_value){.role = RESULT, .pending = true, .dtype = out->meta->dtype, .needs = needs | 1ull << i};
    v->storage = out->storage;
    v->name = call->plan->op->name;
    if (fl_chain_reports() && fl_engine_where) fl_engine_where(v->line, sizeof v->line);
    v->nin = (uint8_t)call->nin;
    memcpy(v->in, in, sizeof in);
    set_step(v, call, views);
    v->room = (uint8_t)room_of(call);
    chain->room += v->room;
    chain->pending |= 1ull << i;
    chain->age = ++clock_ticks;
    return out;
}

/* Marks what the values read; false: some operand has too many readers already. */
static bool mark_reads(const fl_chain_call *call)
{
    for (int k = 0; k < call->nin; k++)
        if (call->tensors[k] && !fl_var_is_deferred(&call->tensors[k]->storage->var)
            && !fl_var_mark_deferred_read(&call->tensors[k]->storage->var))
            return false;
    return true;
}

static void start(void)
{
    fl_var_computer = compute_stamp;
    fl_var_before_write = before_write;
    fl_storage_dropped = value_dropped;
}

fl_tensor *fl_chain_add(const fl_chain_call *call)
{
    const fl_meta *out = call->plan->out[0];
    int64_t strides[FL_MAX_NDIM];
    if (!fl_var_computer) start();
    if (forcing || fl_fault_armed || fl_engine_mode_get() != FL_ENGINE_AUTO) return NULL;
    if (call->plan->op->draw && first_of(out) < 0) return NULL;
    for (int tries = 0; tries < 2; tries++) {
        struct chain *c = chain_for(call->plan);
        if (!c) return NULL;
        for (int k = 0; k < call->nin; k++)
            if (call->tensors[k]
                && (!broadcast_strides(strides, c, call->tensors[k]) || !is_at_hand(c, call->tensors[k]))) {
                tidy(c);
                return NULL;
            }
        if (has_room(c, call)) {
            fl_tensor *result = mark_reads(call) ? add_step(c, call) : NULL;
            if (!result) tidy(c);
            return result;
        }
        if (fl_chain_collect) fl_chain_collect(0);
        compact(c);
        c->open = c->count <= MAX_VALUES / 2 && has_room(c, call);
    }
    return NULL;
}

/* ---- folds ---- */

/* The chain and value of a tensor that is a pending result as a whole; NULL: it is none. */
static struct chain *whole_result(const fl_tensor *tensor, int *value)
{
    if (!fl_var_is_deferred(&tensor->storage->var)) return NULL;
    struct chain *chain = chain_of(tensor->storage->var.write, value);
    return pending_value(chain, tensor) >= 0 && !chain->busy ? chain : NULL;
}

bool fl_chain_has(const fl_tensor *tensor)
{
    int value;
    return whole_result(tensor, &value) != NULL;
}

/* What a fold takes its elements from. */
struct fold {
    fl_source source; /* first */
    fl_tensor *tensor;
    bool begun;
    struct work work;
};

static bool give_tiles(fl_source *source, fl_tiles *tiles, int *slot)
{
    struct fold *fold = (struct fold *)source;
    int value = 0;
    struct chain *chain = whole_result(fold->tensor, &value);
    uint64_t store = to_store(chain, 1ull << value);
    if (!chain->values[value].kept && !chain->values[value].computed) store &= ~(1ull << value);
    fold->begun = true;
    if (!work_begin(&fold->work, chain, store)) return false;
    work_tiles(&fold->work, tiles, 1ull << value);
    *slot = fold->work.slots[value];
    return true;
}

static void *give_data(fl_source *source)
{
    struct fold *fold = (struct fold *)source;
    if (fold->begun) work_end(&fold->work, NULL);
    fold->begun = false;
    return fl_storage_computed_data(fold->tensor->storage);
}

fl_status fl_chain_fold(fl_tensor *tensor, fl_kernel *kernel, fl_kernel_fn run)
{
    struct fold fold = {.source = {give_tiles, give_data}, .tensor = tensor};
    kernel->source = &fold.source;
    fl_status status = run(kernel);
    if (fold.begun) work_end(&fold.work, kernel->name);
    return status;
}

void fl_chain_keep(fl_tensor *tensor)
{
    int i;
    if (!fl_var_is_deferred(&tensor->storage->var)) return;
    struct chain *c = chain_of(tensor->storage->var.write, &i);
    c->values[i].kept = true;
}
