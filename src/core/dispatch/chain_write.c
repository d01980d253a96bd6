/*
** chain_write.c -- steps that write in place: memory that may wait, values to compute before, the way a storage gets
** a value that is not computed.
*/
#include "chain_internal.h"
#include "file/mapping.h"

enum { HELD = 64 << 20 }; /* bytes of operands that always may wait to be read */

/* ---- values computed from a value ---- */

/* The chain and the value of a storage that is pending; NULL: it is not, or waits for something else. */
static fl_chain *chain_of(const fl_storage *storage, int *value)
{
    if (!fl_var_is_deferred(&storage->var)) return NULL;
    fl_chain *chain = fl_chain_of_stamp(storage->var.write, value);
    bool known = chain < fl_chains + FL_CHAINS && *value >= 0 && *value < chain->count;
    return known && chain->values[*value].storage == storage ? chain : NULL;
}

/* The other pending results that are computed from a pending one. */
static uint64_t dependents(const fl_chain *chain, int value)
{
    uint64_t found = 0;
    for (uint64_t left = chain->pending & ~(1ull << value); left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].needs >> value & 1u) found |= left & -left;
    return found;
}

bool fl_chain_is_unread(fl_storage *storage)
{
    int i;
    if (!fl_var_is_deferred(&storage->var)) return fl_var_writable(&storage->var);
    fl_chain *chain = chain_of(storage, &i);
    return chain && !chain->busy && !dependents(chain, i);
}

/* A pending value that others are computed from is computed with them. */
static void compute_dependents(fl_storage *storage)
{
    int i;
    fl_chain *chain = chain_of(storage, &i);
    if (chain && !chain->busy) fl_chain_compute(chain, 1ull << i | dependents(chain, i), 0);
    else if (!chain) fl_var_computer(storage->var.write);
}

/* ---- whose memory may wait ---- */

static bool is_whole(const fl_tensor *tensor)
{
    return tensor->contiguous && tensor->offset == 0
        && (size_t)tensor->meta->local_numel * fl_dtype_size(tensor->meta->dtype) == tensor->storage->bytes;
}

/* True if every access to the memory passes through the engine, and the tensor is all of it. */
static bool may_wait(const fl_tensor *target)
{
    const fl_storage *storage = target->storage;
    return storage->device == FL_CPU && !storage->var.exposed && !storage->var.poison && is_whole(target)
        && !fl_storage_is_foreign(storage);
}

bool fl_chain_make_writable(const fl_tensor *target)
{
    fl_storage *storage = target->storage;
    if (!may_wait(target)) return false;
    if (fl_chain_is_unread(storage)) return true;
    if (fl_var_is_deferred(&storage->var)) {
        if (fl_chain_collect) fl_chain_collect(0);
        if (fl_chain_is_unread(storage)) return true;
        if (fl_var_is_deferred(&storage->var)) compute_dependents(storage);
    }
    if (!fl_var_settle(&storage->var) && storage->var.write == 0) fl_chain_before_write(&storage->var);
    return fl_chain_is_unread(storage);
}

/* True if a pending result is written to the storage. */
static bool is_home(const fl_chain *chain, const fl_storage *storage)
{
    for (uint64_t left = chain->pending; left; left &= left - 1)
        if (chain->values[__builtin_ctzll(left)].home == storage) return true;
    return false;
}

bool fl_chain_holds_much(const fl_chain *chain)
{
    size_t held = 0, widest = 1;
    for (int i = 0; i < chain->count; i++) {
        const fl_chain_value *v = &chain->values[i];
        if (fl_dtype_size(v->dtype) > widest) widest = fl_dtype_size(v->dtype);
        if (v->role == FL_VALUE_INPUT && !is_home(chain, v->storage)) held += v->storage->bytes;
    }
    return held > HELD && held > 2 * widest * (size_t)chain->numel;
}

bool fl_chain_may_lose(const fl_chain *chain, uint64_t values)
{
    for (uint64_t left = fl_chain_needed_by(chain, values); left; left &= left - 1) {
        const fl_chain_value *v = &chain->values[__builtin_ctzll(left)];
        if (v->role == FL_VALUE_INPUT && fl_mapping_is_watched(v->storage->data)) return true;
    }
    return false;
}

/* ---- the target of a step ---- */

bool fl_chain_target_open(fl_chain_target *target, const fl_chain *chain, const fl_tensor *tensor)
{
    *target = (fl_chain_target){tensor->storage, NULL, fl_chain_pending_value(chain, tensor)};
    return target->before >= 0 || fl_storage_park(&target->home, tensor->storage, 0) == FL_OK;
}

void fl_chain_target_close(fl_chain_target *target, fl_chain *chain, int i)
{
    fl_chain_value *value = &chain->values[i];
    if (target->before >= 0) {
        fl_chain_value *before = &chain->values[target->before];
        fl_chain_set_done(chain, target->before);
        target->home = before->home;
        value->kept |= before->kept;
        before->storage = before->home = NULL;
    } else
        for (int k = 0; k < chain->count; k++) {
            fl_chain_value *v = &chain->values[k];
            if (v->role != FL_VALUE_INPUT || v->storage != target->storage) continue;
            v->storage = fl_storage_ref(target->home);
            fl_storage_unref(target->storage);
        }
    value->storage = target->storage;
    value->home = target->home;
    value->kept |= value->home != NULL;
    target->storage->var.write = fl_chain_stamp(chain, i);
}

/* ---- results of other ops that become the value ---- */

/* True if all operands in the storage's memory have the layout of results. */
static bool lies_plain(const fl_chain *chain, const fl_storage *storage, fl_dtype dtype)
{
    for (int i = 0; i < chain->count; i++) {
        const fl_chain_value *v = &chain->values[i];
        int64_t expected = 1;
        if (v->role != FL_VALUE_INPUT || v->storage != storage) continue;
        if (v->offset != 0 || v->dtype != dtype) return false;
        for (int a = chain->ndim - 1; a >= 0; a--) {
            if (chain->size[a] != 1 && v->stride[a] != expected) return false;
            expected *= chain->size[a];
        }
    }
    return true;
}

/* True if no pending result but this one is computed from the storage's value. */
static bool reads_alone(fl_storage *storage, const fl_chain *chain, int result)
{
    int i;
    uint64_t alone = 1ull << result;
    if (fl_var_is_deferred(&storage->var)) return chain_of(storage, &i) == chain && !(dependents(chain, i) & ~alone);
    fl_var_settle(&storage->var);
    for (int k = 0; k < storage->var.reader_count; k++)
        if (!fl_stamp_is_deferred(storage->var.reads[k])) return false;
    for (int k = 0; k < FL_CHAINS; k++)
        if (fl_chain_readers_of(&fl_chains[k], &storage->var) & ~(&fl_chains[k] == chain ? alone : 0)) return false;
    return storage->var.write == 0 && lies_plain(chain, storage, chain->values[result].dtype);
}

bool fl_chain_give(fl_tensor *target, fl_tensor *result)
{
    int i;
    fl_storage *from = result->storage;
    fl_chain_target taken;
    if (!fl_chain_may_wait() || !may_wait(target) || result->meta != target->meta) return false;
    fl_chain *chain = chain_of(from, &i);
    if (!chain || fl_chain_pending_value(chain, result) != i || result->refs != 1 || from->refs != 1) return false;
    if (fl_chain_may_lose(chain, 1ull << i)) return false;
    if (!reads_alone(target->storage, chain, i)) {
        if (fl_chain_collect) fl_chain_collect(0);
        if (chain_of(from, &i) != chain || !reads_alone(target->storage, chain, i)) return false;
    }
    if (!fl_chain_target_open(&taken, chain, target)) return false;
    fl_chain_target_close(&taken, chain, i);
    fl_var_unmark_deferred_read(&target->storage->var);
    from->var.write = 0;
    return true;
}
