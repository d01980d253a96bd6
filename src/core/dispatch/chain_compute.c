/*
** chain_compute.c -- deferred results are computed: which steps run, which results are stored.
**
** A computation takes the steps that the wanted results need and stores those results, what was marked to be kept, and
** what is computed for the second time, so nothing is computed more than twice.
*/
#include "base/clock.h"
#include "chain_internal.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "engine/loss.h"

#include <assert.h>

/* ---- the results to store ---- */

/* The operands that `results` need and that are poisoned or may be: a task passes that on to all it writes. */
static uint64_t uncertain(const fl_chain *chain, uint64_t results)
{
    uint64_t operands = 0;
    for (uint64_t left = chain->device ? fl_chain_needed_by(chain, results) : 0; left; left &= left - 1) {
        const fl_chain_value *v = &chain->values[__builtin_ctzll(left)];
        if (v->role == FL_VALUE_INPUT && v->storage->var.poison) operands |= left & -left;
    }
    return operands;
}

/* The results to store so that those of `wanted` are there. */
static uint64_t to_store(const fl_chain *chain, uint64_t wanted)
{
    uint64_t store = wanted & chain->pending, poisoned = uncertain(chain, store);
    for (uint64_t left = fl_chain_needed_by(chain, store) & chain->pending; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        if ((chain->values[i].kept || chain->values[i].computed) && uncertain(chain, 1ull << i) == poisoned)
            store |= 1ull << i;
    }
    return store;
}

static int slot_of(const fl_chain *chain, fl_tiles *tiles, const fl_chain_value *value, const int *slots)
{
    fl_view view = {.dtype = value->dtype, .ndim = chain->ndim, .size = chain->size, .stride = value->stride};
    switch (value->role) {
    case FL_VALUE_INPUT:
        view.data = (char *)value->storage->data + value->offset;
        return fl_tiles_operand(tiles, &view);
    case FL_VALUE_NUMBER:
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
static void build(const fl_chain *chain, fl_tiles *tiles, uint64_t results, int *slots)
{
    fl_tiles_begin(tiles, chain->ndim, chain->size, NULL);
    tiles->on_cpu = !chain->device;
    for (uint64_t left = fl_chain_needed_by(chain, results); left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        slots[i] = slot_of(chain, tiles, &chain->values[i], slots);
        assert(slots[i] != FL_TILES_FULL);
    }
}

/* Memory for the results of `store`, of which some may be gone afterwards: garbage is collected where it is short. */
static fl_status blocks_new(fl_storage **blocks, const fl_chain *chain, uint64_t store)
{
    fl_status status = FL_OK;
    for (uint64_t left = store; left && status == FL_OK; left &= left - 1) {
        int i = __builtin_ctzll(left);
        size_t bytes = (size_t)chain->numel * fl_dtype_size(chain->values[i].dtype);
        if (chain->values[i].home) {
            blocks[i] = fl_storage_ref(chain->values[i].home);
            continue;
        }
        status = fl_storage_new_for(&blocks[i], bytes, (fl_device_type)chain->values[i].storage->device,
                                    chain->device_index, FL_QUEUE_COMPUTE);
        if (status != FL_OK) blocks[i] = NULL;
    }
    return status;
}

/* The value is in memory; it becomes an operand where others are still computed from it. */
static void value_done(fl_chain *chain, int i)
{
    fl_chain_value *v = &chain->values[i];
    fl_chain_set_done(chain, i);
    if (!(fl_chain_needed_by(chain, chain->pending) >> i & 1u) || !fl_var_mark_deferred_read(&v->storage->var)) {
        v->storage = NULL;
        return;
    }
    v->role = FL_VALUE_INPUT;
    chain->inputs++;
    v->storage = fl_storage_ref(v->storage);
    v->offset = 0;
    int64_t stride = 1;
    for (int a = chain->ndim - 1; a >= 0; a--) v->stride[a] = stride, stride *= chain->size[a];
}

/* The result gets the block of the value that it is written over; readers of that value read it there. */
static void come_home(fl_chain *chain, fl_chain_value *value)
{
    fl_storage *home = value->home;
    for (int i = 0; i < chain->count; i++) {
        fl_chain_value *v = &chain->values[i];
        if (v->role != FL_VALUE_INPUT || v->storage != home) continue;
        v->storage = fl_storage_ref(value->storage);
        fl_storage_unref(home);
    }
    value->home = NULL;
    assert(home->refs == 1);
    fl_storage_move_data(value->storage, home);
}

/* There is no memory: the results are poisoned with the message. */
static void value_failed(fl_chain *chain, int i)
{
    fl_storage *storage = chain->values[i].storage;
    if (chain->values[i].home) come_home(chain, &chain->values[i]);
    storage->var.write = 0;
    fl_var_poison(&storage->var, chain->values[i].name);
    fl_chain_set_done(chain, i);
    chain->values[i].storage = NULL;
}

/* A computation under way: which results are stored where. */
struct work {
    fl_chain *chain;
    uint64_t store, computed; /* results, and all that they are computed from */
    uint64_t started;         /* base/clock.h */
    fl_storage *blocks[FL_CHAIN_MAX_VALUES];
    int slots[FL_CHAIN_MAX_VALUES];
};

/* Finds memory for the results of `store`; false: there is none, with the message. Some may be gone afterwards, because
** garbage was collected. */
static bool work_begin(struct work *work, fl_chain *chain, uint64_t store)
{
    *work = (struct work){.chain = chain, .started = fl_now()};
    chain->busy = true;
    fl_chain_forcing++;
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
    work->computed = fl_chain_needed_by(work->chain, work->store | also);
    for (uint64_t left = work->store; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        fl_chain_value *v = &work->chain->values[i];
        if (v->home) {
            fl_storage_unref(work->blocks[i]);
            come_home(work->chain, v);
        } else fl_storage_move_data(v->storage, work->blocks[i]);
        v->storage->var.write = 0;
    }
    build(work->chain, tiles, work->store | also, work->slots);
    for (uint64_t left = work->store; left; left &= left - 1) {
        int i = __builtin_ctzll(left);
        fl_tiles_store(tiles, work->slots[i], work->chain->values[i].storage->data);
    }
}

/* fold: the op that took the elements, or NULL. */
static void report(const struct work *work, const char *fold)
{
    const fl_chain *chain = work->chain;
    fl_chain_step steps[FL_CHAIN_MAX_VALUES + 1];
    fl_chain_pass pass = {.steps = steps, .stored = __builtin_popcountll(work->store), .numel = chain->numel};
    char line[FL_CHAIN_LINE] = "";
    for (uint64_t left = work->computed; left; left &= left - 1) {
        const fl_chain_value *v = &chain->values[__builtin_ctzll(left)];
        if (v->role == FL_VALUE_RESULT) steps[pass.count++] = (fl_chain_step){v->name, v->line};
    }
    if (fold && fl_engine_where) fl_engine_where(line, sizeof line);
    if (fold) steps[pass.count++] = (fl_chain_step){fold, line}, pass.stored++;
    if (pass.count) fl_chain_report(&pass, work->started);
}

/* The value is stored: for its second use, or on a guess that there will be one. */
static void learn(const fl_chain *chain, const fl_chain_value *value)
{
    uint8_t *lesson = &fl_chain_lessons[value->lesson];
    if (value->computed && fl_chain_is_costly(chain, value)) *lesson = FL_CHAIN_LESSON;
    else if (value->guessed && *lesson) --*lesson;
}

/* The operands that were read, one after the other; NULL: no more. */
static const fl_var *next_operand(uint64_t *left, const struct work *work)
{
    for (; *left; *left &= *left - 1) {
        const fl_chain_value *v = &work->chain->values[__builtin_ctzll(*left)];
        if (v->role != FL_VALUE_INPUT) continue;
        *left &= *left - 1;
        return &v->storage->var;
    }
    return NULL;
}

/* Poisons what was stored, where the memory of an operand was lost meanwhile. */
static void pass_losses(const struct work *work)
{
    const fl_var *operand;
    for (uint64_t operands = work->computed; (operand = next_operand(&operands, work));)
        for (uint64_t left = work->store; left; left &= left - 1)
            fl_loss_pass(&work->chain->values[__builtin_ctzll(left)].storage->var, operand);
}

/* The tiles have run. */
static void work_end(struct work *work, const char *fold)
{
    fl_chain *chain = work->chain;
    if (fl_loss_any() && !chain->device) pass_losses(work);
    if (fl_chain_reports()) report(work, fold);
    for (uint64_t left = work->store; left; left &= left - 1) learn(chain, &chain->values[__builtin_ctzll(left)]);
    for (uint64_t left = work->computed; left; left &= left - 1) chain->values[__builtin_ctzll(left)].computed = true;
    for (uint64_t left = work->store; left; left &= left - 1) value_done(chain, __builtin_ctzll(left));
    fl_chain_refresh_needs(chain);
    chain->busy = false;
    fl_chain_forcing--;
    fl_chain_tidy(chain);
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
    const fl_chain *chain = issued->work->chain;
    FL_TRY(chain->device->enter(chain->device_index, FL_QUEUE_COMPUTE));
    return chain->device->tiles(issued->tiles, issued->name);
}

/* One task, which the engine orders among all others that read or write its variables. */
static void issue(const struct work *work, const fl_tiles *tiles)
{
    fl_var *reads[FL_CHAIN_MAX_VALUES], *writes[FL_CHAIN_MAX_VALUES];
    uint32_t
        versions[FL_CHAIN_MAX_VALUES]; /* a result has its value from the start: this write is none of the script's */
    fl_chain *chain = work->chain;
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
        if (chain->values[i].role != FL_VALUE_INPUT) continue;
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
static void compute_together(fl_chain *chain, uint64_t wanted, uint64_t also)
{
    struct work work;
    fl_tiles tiles;
    bool has_memory = work_begin(&work, chain, to_store(chain, wanted | also));
    if (!has_memory && also) {
        fl_chain_forcing--;
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
void fl_chain_compute(fl_chain *chain, uint64_t wanted, uint64_t also)
{
    if (!uncertain(chain, (wanted | also) & chain->pending)) {
        compute_together(chain, wanted, also);
        return;
    }
    for (; wanted; wanted &= wanted - 1)
        if (wanted & -wanted & chain->pending) compute_together(chain, wanted & -wanted, 0);
}

uint64_t fl_chain_readers_of(const fl_chain *chain, const fl_var *var)
{
    uint64_t readers = 0;
    for (int i = 0; i < chain->count; i++) {
        if (chain->values[i].role != FL_VALUE_INPUT || &chain->values[i].storage->var != var) continue;
        for (uint64_t left = chain->pending; left; left &= left - 1)
            if (chain->values[__builtin_ctzll(left)].needs >> i & 1u) readers |= left & -left;
    }
    return readers;
}

/* Bytes of the results that may be garbage. Results written in place are not counted: their value was wanted. */
static int64_t bytes_of(const fl_chain *chain, uint64_t results)
{
    int64_t bytes = 0;
    for (; results; results &= results - 1) {
        const fl_chain_value *v = &chain->values[__builtin_ctzll(results)];
        if (!v->home) bytes += chain->numel * (int64_t)fl_dtype_size(v->dtype);
    }
    return bytes;
}

/* Lets go of garbage among the results that are computed from the variable's storage, or among all (NULL). */
static void drop_garbage(const fl_var *var)
{
    for (int tries = 0; tries < 2 && fl_chain_collect; tries++) {
        int64_t bytes = 0;
        for (int i = 0; i < FL_CHAINS; i++)
            bytes += bytes_of(&fl_chains[i], var ? fl_chain_readers_of(&fl_chains[i], var) : fl_chains[i].pending);
        if (bytes) fl_chain_collect(tries == 0 ? 0 : bytes);
    }
}

/* The pending results that take steps which the value takes too, and do not lie on the way to it. In a chain that takes
** no more steps they are the variables of a loop, and one pass for all computes those steps once. */
static uint64_t siblings_of(const fl_chain *chain, int value)
{
    uint64_t needs = chain->values[value].needs, steps = 0, siblings = 0;
    for (uint64_t left = needs; left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].role == FL_VALUE_RESULT) steps |= left & -left;
    for (uint64_t left = chain->pending & ~needs; left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].needs & steps) siblings |= left & -left;
    return siblings;
}

void fl_chain_compute_stamp(fl_stamp stamp)
{
    int value;
    if (stamp != FL_STAMP_ALL) {
        fl_chain *c = fl_chain_of_stamp(stamp, &value);
        fl_chain_compute(c, 1ull << value, c->open ? 0 : siblings_of(c, value));
        return;
    }
    drop_garbage(NULL);
    for (int i = 0; i < FL_CHAINS; i++)
        if (fl_chains[i].pending && !fl_chains[i].busy) fl_chain_compute(&fl_chains[i], fl_chains[i].pending, 0);
}

void fl_chain_before_write(fl_var *var)
{
    drop_garbage(var);
    for (int i = 0; i < FL_CHAINS; i++) {
        uint64_t readers = fl_chain_readers_of(&fl_chains[i], var);
        if (readers) fl_chain_compute(&fl_chains[i], readers, 0);
    }
    fl_var_unmark_deferred_read(var);
}

/* ---- folds ---- */

/* The chain and value of a tensor that is a pending result as a whole; NULL: it is none. */
static fl_chain *whole_result(const fl_tensor *tensor, int *value)
{
    if (!fl_var_is_deferred(&tensor->storage->var)) return NULL;
    fl_chain *chain = fl_chain_of_stamp(tensor->storage->var.write, value);
    return fl_chain_pending_value(chain, tensor) >= 0 && !chain->busy ? chain : NULL;
}

bool fl_chain_has(const fl_tensor *tensor)
{
    int value;
    return whole_result(tensor, &value) != NULL;
}

/* The source of a fold's elements. */
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
    fl_chain *chain = whole_result(fold->tensor, &value);
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
    const fl_var *operand;
    uint64_t operands = fold.begun && fl_loss_any() ? fold.work.computed : 0;
    while (status == FL_OK && (operand = next_operand(&operands, &fold.work))) status = fl_loss_check(operand);
    if (status == FL_OK && fl_loss_any()) status = fl_loss_check(&tensor->storage->var);
    if (fold.begun) work_end(&fold.work, kernel->name);
    return status;
}
