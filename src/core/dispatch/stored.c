/*
** stored.c -- files of tensors, written and read by all ranks of the world together.
**
** Rank 0 makes the file and puts it in its place, every rank writes what it holds of the global tensors (of copies the
** first holder's), rank 0 the local ones. Whatever fails on one rank ends the save on all: each step ends with
** fl_agree, and no rank leaves between two of them. A rank that is alone (flow.on_rank) saves and loads alone.
*/
#include "stored.h"
#include "base/hash.h"
#include "dispatch.h"
#include "ranks/agree.h"
#include "to_global.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- saving ---- */

/* The facts that ranks exchange before anything is written. */
struct save_facts {
    uint64_t layout;   /* hash of all tensors' names, dtypes, shapes, placements and SBPs */
    uint64_t metadata; /* hash of it */
    int64_t count;
    fl_safetensors_ticket ticket; /* of rank 0 */
};

/* "w, float32[2, 3] on placement("cpu", {0, 1}) as S(0)" */
enum { ITEM_TEXT = FL_META_TEXT + 64 };
static const char *item_text(char *buffer, const fl_save_job *job, int i)
{
    char meta[FL_META_TEXT];
    snprintf(buffer, ITEM_TEXT, "'%.48s', %s", job->entries[i].name, fl_meta_text(meta, job->tensors[i]->meta));
    return buffer;
}

static uint64_t item_hash(const fl_save_job *job, int i)
{
    const fl_meta *m = job->tensors[i]->meta;
    const char *name = job->entries[i].name;
    uint64_t hash = fl_hash_bytes(FL_HASH_START, name, strlen(name) + 1);
    hash = fl_hash_bytes(hash, &m->dtype, sizeof m->dtype);
    hash = fl_hash_bytes(hash, m->shape.dims, sizeof(int64_t) * (size_t)m->shape.ndim);
    if (m->is_local) return fl_hash_bytes(hash, "local", 5);
    return fl_hash_bytes(fl_hash_bytes(hash, &m->placement->hash, sizeof m->placement->hash), &m->nd_sbp,
                         sizeof m->nd_sbp);
}

/* The ranks' tensors differ: finds the first one that does; the error is the same on all ranks. count: the smallest. */
static fl_status layout_fail(const fl_save_job *job, int count)
{
    int world = fl_agree_count(), at = count, rank = 0;
    uint64_t *own = malloc(sizeof *own * ((size_t)world + 1) * (size_t)(count + 1)), *all = own + count;
    char *texts = malloc((size_t)ITEM_TEXT * ((size_t)world + 1)),
         *mine = texts ? texts + (size_t)ITEM_TEXT * (size_t)world : NULL;
    fl_status status = own && texts ? FL_OK : fl_fail(FL_ERR_MEMORY, "save: out of memory");
    for (int i = 0; status == FL_OK && i < count; i++) own[i] = item_hash(job, i);
    status = fl_agree("save", status, all, own, sizeof *own * (size_t)count);
    for (int i = count - 1; status == FL_OK && i >= 0; i--)
        for (int r = world - 1; r > 0; r--)
            if (all[(size_t)r * (size_t)count + (size_t)i] != all[i]) at = i, rank = r;
    if (status == FL_OK && at < job->count) item_text(mine, job, at);
    else if (mine) snprintf(mine, ITEM_TEXT, "missing");
    status = fl_agree("save", status, texts, mine, ITEM_TEXT);
    for (int r = 1; r < world && status == FL_OK && rank == 0; r++)
        if (strcmp(texts, texts + (size_t)r * ITEM_TEXT) != 0) rank = r;
    if (status == FL_OK)
        status = fl_fail(FL_ERR_VALUE,
                         "save: every rank must save the same tensors; tensor %d is %s on rank 0 and %s on rank %d",
                         at + 1, texts, texts + (size_t)rank * ITEM_TEXT, rank);
    free(own);
    free(texts);
    return status;
}

/* FL_OK if all ranks save the same tensors. */
static fl_status layout_check(fl_save_job *job, const struct save_facts *all)
{
    bool same = true;
    int64_t least = job->count;
    for (int i = 0; i < fl_agree_count(); i++) {
        job->differs = job->differs || all[i].metadata != all[0].metadata;
        same = same && all[i].layout == all[0].layout && all[i].count == all[0].count;
        if (all[i].count < least) least = all[i].count;
    }
    return same ? FL_OK : layout_fail(job, (int)least);
}

/* nd_sbp without partials, so that every element has an owner: P becomes S of the first axis long enough that no later
** hierarchy axis splits (one reduce-scatter), B where there is none. */
static fl_nd_sbp without_partials(const fl_meta *meta)
{
    fl_nd_sbp s = meta->nd_sbp;
    for (int k = s.n - 1; k >= 0; k--) {
        if (!fl_sbp_is_partial(s.at[k])) continue;
        s.at[k] = FL_B;
        for (int axis = 0; axis < meta->shape.ndim && s.at[k] == FL_B; axis++) {
            bool free_axis = meta->shape.dims[axis] >= meta->placement->hierarchy[k];
            for (int l = k + 1; l < s.n; l++) free_axis = free_axis && meta->nd_sbp.at[l] != FL_S(axis);
            if (free_axis) s.at[k] = FL_S(axis);
        }
    }
    return s;
}

/* The SBP in which a global tensor is written: without partials; and whole rows where the parts would lie in the file
** in many short stretches, which moving the tensor first is cheaper than. */
static fl_nd_sbp written_as(const fl_meta *meta, const fl_safetensors_entry *entry)
{
    fl_window first;
    fl_nd_sbp s = without_partials(meta), rows = s;
    int64_t parts = 1;
    fl_window_of(&first, &meta->shape, meta->placement, s, 0); /* the largest */
    int64_t stretch = fl_safetensors_stretch(entry, &first);
    for (int k = 0; k < s.n; k++) {
        if (!fl_sbp_is_split(s.at[k])) continue;
        rows.at[k] = FL_S(0);
        parts *= meta->placement->hierarchy[k];
    }
    bool few = meta->numel * (int64_t)fl_dtype_size(meta->dtype) / parts < 16 * FL_SHORT_STRETCH;
    return stretch >= FL_SHORT_STRETCH || few || meta->shape.dims[0] < parts ? s : rows;
}

/* True if this rank writes its part. Of equal copies only the first holder writes. */
static bool writes_part(const fl_meta *meta)
{
    if (meta->is_local) return fl_agree_rank() == 0;
    if (!meta->holds || meta->local_numel == 0) return false;
    int coords[FL_MAX_HIERARCHY];
    fl_placement_coords(coords, meta->placement, meta->placement->my_index);
    for (int k = 0; k < meta->nd_sbp.n; k++)
        if (meta->nd_sbp.at[k] == FL_B && coords[k] > 0) return false;
    return true;
}

static fl_status write_part(fl_save_job *job, int i, fl_tensor *tensor)
{
    fl_tensor *host, *part;
    FL_TRY(fl_host_part(&host, tensor));
    fl_status status = FL_CALL(&part, contiguous, fl_of(host));
    fl_tensor_unref(host);
    FL_TRY(status);
    status = fl_tensor_wait(part);
    if (status == FL_OK && part->meta->numel > 0)
        status = fl_safetensors_write_window(job->writer, &job->entries[i], fl_tensor_data(part),
                                             &tensor->meta->window);
    fl_tensor_unref(part);
    return status;
}

/* Partials are added up by all ranks, also by those for which `write` is false. */
static fl_status save_tensor(fl_save_job *job, int i, bool write)
{
    fl_tensor *t = job->tensors[i], *owned = NULL;
    const fl_meta *m = t->meta;
    if (!m->is_local) {
        fl_nd_sbp nd_sbp = written_as(m, &job->entries[i]);
        if (!fl_nd_sbp_equal(nd_sbp, m->nd_sbp)) FL_TRY(fl_to_global(&owned, t, m->placement, nd_sbp, NULL));
    }
    if (owned) t = owned;
    fl_status status = write && writes_part(t->meta) ? write_part(job, i, t) : FL_OK;
    fl_tensor_unref(owned);
    return status;
}

/* Goes on to the last tensor whatever fails: the other ranks add up their partials. Returns the first failure. */
static fl_status save_tensors(fl_save_job *job, fl_status status)
{
    char *message = status == FL_OK ? NULL : strdup(fl_message());
    for (int i = 0; i < job->count; i++) {
        fl_status now = save_tensor(job, i, status == FL_OK);
        if (now == FL_OK || status != FL_OK) continue;
        status = now;
        message = strdup(fl_message());
    }
    if (status != FL_OK) fl_fail(status, "%s", message ? message : "save: out of memory");
    free(message);
    return status;
}

/* A rank that is alone (flow.on_rank) has no part of a global tensor that it could call the tensor. */
static fl_status check_alone(const fl_save_job *job)
{
    for (int i = 0; fl_agree_count() < fl_world_get()->size && i < job->count; i++)
        if (!job->tensors[i]->meta->is_local)
            return fl_fail(FL_ERR_COMM,
                           "save: '%s' is a global tensor, but only one rank runs here; save its part, x:to_local(), "
                           "or save on all ranks",
                           job->entries[i].name);
    return FL_OK;
}

static fl_status check_values(const fl_save_job *job)
{
    for (int i = 0; i < job->count; i++)
        if (fl_meta_check_values(job->tensors[i]->meta) != FL_OK)
            return fl_fail_prefix(FL_ERR_STATE, "save: '%s': ", job->entries[i].name);
    return FL_OK;
}

/* All ranks agree on what is written, and rank 0 has made the file. */
static fl_status save_begin(fl_save_job *job, const char *failure, struct save_facts *all)
{
    struct save_facts facts = {.layout = FL_HASH_START, .metadata = FL_HASH_START, .count = job->count};
    fl_status status = failure ? fl_fail(FL_ERR_VALUE, "%s", failure) : check_alone(job);
    if (status == FL_OK) status = check_values(job);
    for (int i = 0; i < job->count; i++) {
        uint64_t hash = item_hash(job, i);
        facts.layout = fl_hash_bytes(facts.layout, &hash, sizeof hash);
    }
    for (int i = 0; i < 2 * job->metadata_count; i++)
        facts.metadata = fl_hash_bytes(facts.metadata, job->metadata[i], strlen(job->metadata[i]) + 1);
    if (status == FL_OK && fl_agree_rank() == 0)
        status = fl_safetensors_create(&job->writer, job->path, job->entries, job->count, job->metadata,
                                       job->metadata_count);
    if (job->writer) fl_safetensors_ticket_get(&facts.ticket, job->writer);
    FL_TRY(fl_agree("save", status, all, &facts, sizeof facts));
    return layout_check(job, all);
}

static fl_status save_run(fl_save_job *job, const char *failure)
{
    struct save_facts *all = calloc((size_t)fl_agree_count(), sizeof *all);
    if (!all) return fl_fail(FL_ERR_MEMORY, "save: out of memory");
    fl_status status = save_begin(job, failure, all);
    fl_safetensors_ticket ticket = all[0].ticket;
    free(all);
    FL_TRY(status);
    if (job->differs) return FL_OK;
    if (!job->writer) status = fl_safetensors_join(&job->writer, job->path, job->entries, job->count, &ticket);
    status = save_tensors(job, status);
    if (status == FL_OK) status = fl_safetensors_flush(job->writer);
    FL_TRY(fl_agree("save", status, NULL, NULL, 0));
    status = fl_safetensors_commit(job->writer);
    job->writer = NULL;
    return fl_agree("save", status, NULL, NULL, 0);
}

fl_status fl_save_together(fl_save_job *job, const char *failure)
{
    job->differs = false;
    job->writer = NULL;
    fl_status status = save_run(job, failure);
    fl_safetensors_abandon(job->writer);
    job->writer = NULL;
    return status;
}

/* ---- loading ---- */

fl_status fl_load_agree(fl_status status, const fl_safetensors *reader, const char *path)
{
    int count = fl_agree_count();
    uint64_t hash = reader ? reader->hash : 0, *all = malloc(sizeof *all * (size_t)count);
    if (!all) return fl_fail(FL_ERR_MEMORY, "load: out of memory");
    status = fl_agree("load", status, all, &hash, sizeof hash);
    for (int i = 1; i < count && status == FL_OK; i++)
        if (all[i] != all[0])
            status = fl_fail(FL_ERR_IO,
                             "load: %s is not the same file on rank %d as on rank 0; every rank reads its own part, so "
                             "all ranks need the same file",
                             path, i);
    free(all);
    return status;
}

/* This rank's part of an entry, in host memory. */
static fl_status read_part(fl_tensor **out, fl_safetensors *file, int index, const fl_meta *meta)
{
    fl_tensor *t;
    FL_TRY(fl_tensor_empty(&t, meta));
    if (meta->local_numel > 0) {
        unsigned char *bytes = fl_tensor_data(t);
        fl_status status = fl_safetensors_read_window(file, index, bytes, &meta->window);
        if (status != FL_OK) {
            fl_tensor_unref(t);
            return status;
        }
        for (int64_t i = 0; meta->dtype == FL_BOOL && i < meta->local_numel; i++) bytes[i] = bytes[i] != 0;
    }
    *out = t;
    return FL_OK;
}

/* Read on the same ranks' host memory, in the SBP in which each of them can read its part: P is made of B. */
fl_status fl_load_global(fl_tensor **out, fl_safetensors *file, int index, const fl_placement *placement,
                         fl_nd_sbp nd_sbp)
{
    const fl_safetensors_entry *entry = &file->entries[index];
    const fl_placement *host;
    const fl_meta *meta = NULL;
    fl_tensor *part = NULL;
    fl_nd_sbp readable = nd_sbp;
    for (int k = 0; k < nd_sbp.n; k++)
        if (fl_sbp_is_partial(nd_sbp.at[k])) readable.at[k] = FL_B;
    fl_status status = fl_placement_on_cpu(&host, placement);
    if (status == FL_OK) status = fl_meta_get(&meta, entry->dtype, &entry->shape, host, readable, false);
    if (status == FL_OK) status = read_part(&part, file, index, meta);
    if (status == FL_OK) status = fl_to_global(out, part, placement, nd_sbp, NULL);
    if (meta) fl_meta_unref(meta);
    fl_tensor_unref(part);
    return status;
}

fl_status fl_load_local(fl_tensor **out, fl_safetensors *file, int index)
{
    const fl_meta *meta;
    FL_TRY(fl_meta_local(&meta, file->entries[index].dtype, &file->entries[index].shape));
    fl_status status = read_part(out, file, index, meta);
    fl_meta_unref(meta);
    return status;
}
