/*
** file.c -- tensors by name in safetensors files, for hosts.
*/
#include "api.h"
#include "dispatch/mapped.h"

#include <stdlib.h>

/* ---- writing ---- */

static fl_status check_names(const char *const *names, flow_tensor *const *tensors, int count)
{
    char shown[FL_SHOWN_TEXT];
    if (count < 0) return fl_fail(FL_ERR_VALUE, "flow_save: %d tensors", count);
    if (count > 0) FL_TRY(fl_api_need(names, "flow_save", "names"));
    if (count > 0) FL_TRY(fl_api_need(tensors, "flow_save", "tensors"));
    for (int i = 0; i < count; i++) {
        if (!names[i] || !*names[i]) return fl_fail(FL_ERR_VALUE, "flow_save: tensor %d has no name", i);
        if (!tensors[i]) return fl_fail(FL_ERR_VALUE, "flow_save: tensor '%s' is NULL", fl_text_name(shown, names[i]));
        FL_TRY(fl_mapped_check_task("flow_save", "tensors", fl_api_in(tensors[i]), false));
        for (int j = 0; j < i; j++)
            if (strcmp(names[i], names[j]) == 0)
                return fl_fail(FL_ERR_VALUE, "flow_save: two tensors are called '%s'", fl_text_name(shown, names[i]));
    }
    return FL_OK;
}

/* Large elements first, so that all of them are aligned in the file. */
static void fill_job(fl_save_job *job, const char *const *names, flow_tensor *const *tensors, int count)
{
    for (size_t size = 8; size > 0; size /= 2)
        for (int i = 0; i < count; i++) {
            fl_tensor *t = fl_api_in(tensors[i]);
            if (fl_dtype_size(t->meta->dtype) != size) continue;
            job->entries[job->count] = (fl_safetensors_entry){names[i], t->meta->dtype, t->meta->shape, 0, 0};
            job->tensors[job->count++] = t;
        }
}

flow_status flow_save(const char *path, const char *const *names, flow_tensor *const *tensors, int count)
{
    FL_API_ENTER("flow_save");
    FL_API_TRY(fl_api_need(path, "flow_save", "path"));
    FL_API_TRY(check_names(names, tensors, count));
    fl_save_job job = {.path = path};
    job.entries = calloc((size_t)count + 1, sizeof *job.entries);
    job.tensors = calloc((size_t)count + 1, sizeof *job.tensors);
    fl_status status = job.entries && job.tensors ? FL_OK : fl_fail(FL_ERR_MEMORY, "flow_save: out of memory");
    if (status == FL_OK) {
        bool recording = fl_record_pause();
        fill_job(&job, names, tensors, count);
        status = fl_save_together(&job, NULL);
        fl_record_resume(recording);
    }
    free(job.entries);
    free(job.tensors);
    return fl_api_leave(status);
}

/* ---- reading ---- */

struct flow_file {
    fl_safetensors *reader; /* owned */
};

flow_status flow_file_open(flow_file **out, const char *path)
{
    FL_API_ENTER("flow_file_open");
    FL_API_TRY(fl_api_need(out, "flow_file_open", "out"));
    FL_API_TRY(fl_api_need(path, "flow_file_open", "path"));
    flow_file *file = calloc(1, sizeof *file);
    if (!file) return (flow_status)fl_fail(FL_ERR_MEMORY, "flow_file_open: out of memory");
    fl_status status = fl_safetensors_open(&file->reader, path);
    if (status != FL_OK) {
        free(file);
        return (flow_status)status;
    }
    *out = file;
    return FLOW_OK;
}

const char *flow_file_name(const flow_file *file, int index)
{
    return file && index >= 0 && index < file->reader->count ? file->reader->entries[index].name : NULL;
}

static fl_status find_entry(int *out, const fl_safetensors *reader, const char *name)
{
    char shown[FL_SHOWN_TEXT], best_shown[FL_SHOWN_TEXT];
    const char *best = NULL;
    for (int i = 0, least = 99; i < reader->count; i++) {
        const char *known = reader->entries[i].name;
        if (strcmp(known, name) == 0) {
            *out = i;
            return FL_OK;
        }
        int distance = fl_suggest_distance(name, known);
        if (distance < 0 || distance >= least) continue;
        least = distance;
        best = known;
    }
    return fl_fail(FL_ERR_VALUE, "flow_file_read: the file has no tensor '%s'%s%s%s", fl_text_name(shown, name),
                   best ? "; did you mean '" : "", best ? fl_text_name(best_shown, best) : "", best ? "'?" : "");
}

static fl_status read_tensor(fl_tensor **out, fl_safetensors *reader, const char *name, const flow_spec *where)
{
    int index = 0;
    fl_api_place place;
    const flow_spec here = {0};
    FL_TRY(find_entry(&index, reader, name));
    if (!where) where = &here;
    FL_TRY(fl_api_place_of(&place, "flow_file_read", where->device, where->placement, where->sbp,
                           reader->entries[index].shape.ndim));
    if (!place.is_local) return fl_load_global(out, reader, index, place.placement, place.nd_sbp);
    FL_TRY(fl_load_local(out, reader, index));
    if (place.placement->type == FL_CPU) return FL_OK;
    fl_tensor *host = *out;
    fl_status status = fl_to_device(out, host, place.placement);
    fl_tensor_unref(host);
    return status;
}

flow_status flow_file_read(flow_tensor **out, flow_file *file, const char *name, const flow_spec *where)
{
    fl_tensor *read = NULL;
    FL_API_ENTER("flow_file_read");
    FL_API_TRY(fl_api_need(out, "flow_file_read", "out"));
    FL_API_TRY(fl_api_need(file, "flow_file_read", "file"));
    FL_API_TRY(fl_api_need(name, "flow_file_read", "name"));
    FL_API_TRY(read_tensor(&read, file->reader, name, where));
    *out = fl_api_out(read);
    return FLOW_OK;
}

void flow_file_close(flow_file *file)
{
    if (!file) return;
    fl_safetensors_close(file->reader);
    free(file);
}
