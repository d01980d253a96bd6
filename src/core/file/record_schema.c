/*
** record_schema.c -- fields of records: their descriptions in a file, and what all items of it have in common.
*/
#include "record_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *fl_record_kind_name(fl_record_kind kind)
{
    static const char *const names[] = {"", "tensor", "integer", "number", "string", "boolean"};
    return names[kind];
}

const char *fl_record_type_text(char *buffer, fl_record_kind kind, fl_dtype dtype)
{
    bool tensor = kind == FL_RECORD_TENSOR;
    const char *word = tensor ? fl_dtype_name(dtype) : fl_record_kind_name(kind);
    snprintf(buffer, FL_RECORD_TYPE, "%s %s%s", word[0] == 'i' ? "an" : "a", word, tensor ? " tensor" : "");
    return buffer;
}

/* ---- descriptions ---- */

void record_describe(unsigned char *at, const fl_record_field *field)
{
    bool tensor = field->kind == FL_RECORD_TENSOR;
    int ndim = tensor ? field->shape.ndim : 0;
    record_description d = {
        (uint8_t)field->kind,  tensor ? (uint8_t)field->dtype : 0, (uint8_t)ndim, (uint8_t)field->name_bytes, 0,
        (uint64_t)field->bytes};
    memset(at, 0, (size_t)record_description_bytes(ndim, field->name_bytes));
    memcpy(at, &d, sizeof d);
    memcpy(at + sizeof d, field->shape.dims, 8 * (size_t)ndim);
    memcpy(at + sizeof d + 8 * (size_t)ndim, field->name, (size_t)field->name_bytes);
}

/* Sizes whose elements can be counted, as fl_shape_make has it. */
static bool shape_read(fl_shape *out, const unsigned char *at, int ndim)
{
    int64_t numel = 1;
    *out = (fl_shape){.ndim = ndim};
    memcpy(out->dims, at, 8 * (size_t)ndim);
    for (int i = 0; i < ndim; i++) {
        int64_t size = out->dims[i];
        if (size < 0 || (size > 0 && numel >= FL_MAX_NUMEL / size)) return false;
        numel *= size > 0 ? size : 1;
    }
    return true;
}

const char *record_described(fl_record_field *out, const unsigned char **at, const unsigned char *end)
{
    record_description d;
    if (end - *at < (ptrdiff_t)sizeof d) return "the descriptions of its fields are cut off";
    memcpy(&d, *at, sizeof d);
    if (d.kind < FL_RECORD_TENSOR || d.kind >= FL_RECORD_KIND_END) return "a field is of an unknown kind";
    if (d.dtype >= FL_DTYPE_COUNT) return "a field has an unknown dtype";
    if (d.ndim > (d.kind == FL_RECORD_TENSOR ? FL_MAX_NDIM : 0)) return "a field has too many axes";
    if (d.bytes > INT64_MAX) return "a field is longer than a file can be";
    if (end - *at < record_description_bytes(d.ndim, d.name_bytes)) return "the descriptions of its fields are cut off";
    const unsigned char *name = *at + sizeof d + 8 * (size_t)d.ndim;
    if (memchr(name, 0, d.name_bytes)) return "the name of a field contains a NUL";
    *out = (fl_record_field){.name = (const char *)name,
                             .name_bytes = d.name_bytes,
                             .kind = (fl_record_kind)d.kind,
                             .dtype = (fl_dtype)d.dtype,
                             .bytes = (int64_t)d.bytes};
    if (!shape_read(&out->shape, *at + sizeof d, d.ndim)) return "the shape of a field has impossible sizes";
    *at += record_description_bytes(d.ndim, d.name_bytes);
    return NULL;
}

const char *record_value_fault(const fl_record_field *field)
{
    const unsigned char *value = field->value;
    int64_t size = (int64_t)fl_dtype_size(field->dtype);
    switch (field->kind) {
    case FL_RECORD_TENSOR:
        if (field->bytes % size != 0 || field->bytes / size != fl_shape_numel(&field->shape))
            return "the bytes of a tensor do not fit its shape";
        for (int64_t i = 0; field->dtype == FL_BOOL && i < field->bytes; i++)
            if (value[i] > 1) return "an element of a bool tensor is neither 0 nor 1";
        return NULL;
    case FL_RECORD_BOOLEAN: return field->bytes == 1 && value[0] <= 1 ? NULL : "a boolean is neither 0 nor 1";
    case FL_RECORD_STRING: return NULL;
    default: return field->bytes == 8 ? NULL : "a number does not have 8 bytes";
    }
}

/* ---- schemas ---- */

const char *fl_record_column_text(char *buffer, const fl_record_schema *schema, int index)
{
    char name[FL_SHOWN_TEXT];
    if (schema->list) snprintf(buffer, FL_RECORD_SHOWN, "field %d", index + 1);
    else snprintf(buffer, FL_RECORD_SHOWN, "field '%s'", fl_text_name(name, schema->columns[index].name));
    return buffer;
}

static bool same_name(const fl_record_column *column, const char *name, int bytes)
{
    return column->name_bytes == bytes && memcmp(column->name, name, (size_t)bytes) == 0;
}

/* Names of a first item: none twice, none empty. */
static fl_status names_check(const fl_record_schema *schema)
{
    char shown[FL_RECORD_SHOWN];
    for (int i = 0; i < schema->count && !schema->list; i++) {
        if (schema->columns[i].name_bytes == 0) return fl_fail(FL_ERR_VALUE, "a field has an empty name");
        for (int k = 0; k < i; k++)
            if (same_name(&schema->columns[k], schema->columns[i].name, schema->columns[i].name_bytes))
                return fl_fail(FL_ERR_VALUE, "%s is there twice", fl_record_column_text(shown, schema, i));
    }
    return FL_OK;
}

static fl_status schema_begin(fl_record_schema *schema, const fl_record_field *fields, int count, bool list)
{
    if (count < 1 || count > FL_RECORD_FIELDS)
        return fl_fail(FL_ERR_VALUE, "an item has 1 to %d fields, got %d", FL_RECORD_FIELDS, count);
    fl_record_schema fresh = {count, list, calloc((size_t)count, sizeof *fresh.columns)};
    if (!fresh.columns) return fl_fail(FL_ERR_MEMORY, "out of memory");
    for (int i = 0; i < count; i++) {
        fl_record_column *c = &fresh.columns[i];
        c->name_bytes = list ? 0 : fields[i].name_bytes;
        memcpy(c->name, fields[i].name, (size_t)c->name_bytes);
        c->kind = fields[i].kind;
        c->dtype = c->kind == FL_RECORD_TENSOR ? fields[i].dtype : FL_BOOL;
        c->shape = fields[i].shape;
        c->fixed = true;
    }
    fl_status status = names_check(&fresh);
    if (status != FL_OK) fl_record_schema_free(&fresh);
    else *schema = fresh;
    return status;
}

static bool is_number(fl_record_kind kind) { return kind == FL_RECORD_INTEGER || kind == FL_RECORD_NUMBER; }

static bool kinds_fit(const fl_record_column *column, fl_record_kind kind, fl_dtype dtype)
{
    if (is_number(column->kind) && is_number(kind)) return true;
    return column->kind == kind && (kind != FL_RECORD_TENSOR || column->dtype == dtype);
}

static fl_status column_add(fl_record_schema *schema, int index, const fl_record_field *field)
{
    fl_record_column *c = &schema->columns[index];
    char shown[FL_RECORD_SHOWN], is[FL_RECORD_TYPE], was[FL_RECORD_TYPE];
    if (!schema->list && !same_name(c, field->name, field->name_bytes))
        return fl_fail(FL_ERR_VALUE, "%s is missing, or not in its place", fl_record_column_text(shown, schema, index));
    if (!kinds_fit(c, field->kind, field->dtype))
        return fl_fail(FL_ERR_VALUE, "%s is %s, not %s as before", fl_record_column_text(shown, schema, index),
                       fl_record_type_text(is, field->kind, field->dtype), fl_record_type_text(was, c->kind, c->dtype));
    if (field->kind == FL_RECORD_NUMBER) c->kind = FL_RECORD_NUMBER;
    if (c->kind == FL_RECORD_TENSOR && !fl_shape_equal(&c->shape, &field->shape)) c->fixed = false;
    return FL_OK;
}

fl_status fl_record_schema_add(fl_record_schema *schema, const fl_record_field *fields, int count, bool list)
{
    if (schema->count == 0) return schema_begin(schema, fields, count, list);
    if (schema->list != list || schema->count != count)
        return fl_fail(FL_ERR_VALUE, "it has %d fields%s, those before have %d%s", count, list ? " without names" : "",
                       schema->count, schema->list ? " without names" : "");
    for (int i = 0; i < count; i++) FL_TRY(column_add(schema, i, &fields[i]));
    return FL_OK;
}

fl_status fl_record_schema_merge(fl_record_schema *schema, const fl_record_schema *other)
{
    fl_record_field fields[FL_RECORD_FIELDS];
    if (other->count == 0) return FL_OK;
    for (int i = 0; i < other->count; i++) {
        const fl_record_column *c = &other->columns[i];
        fields[i] = (fl_record_field){c->name, c->name_bytes, c->kind, c->dtype, c->shape, NULL, 0};
    }
    FL_TRY(fl_record_schema_add(schema, fields, other->count, other->list));
    for (int i = 0; i < other->count; i++)
        if (!other->columns[i].fixed) schema->columns[i].fixed = false;
    return FL_OK;
}

bool record_fits(const fl_record_schema *schema, const fl_record_field *fields, int count, bool list)
{
    if (schema->list != list || schema->count != count) return false;
    for (int i = 0; i < count; i++) {
        const fl_record_column *c = &schema->columns[i];
        if (!same_name(c, fields[i].name, fields[i].name_bytes) || !kinds_fit(c, fields[i].kind, fields[i].dtype))
            return false;
        if (c->kind == FL_RECORD_INTEGER && fields[i].kind != FL_RECORD_INTEGER) return false;
        if (c->kind == FL_RECORD_TENSOR && c->fixed && !fl_shape_equal(&c->shape, &fields[i].shape)) return false;
    }
    return true;
}

void fl_record_schema_free(fl_record_schema *schema)
{
    free(schema->columns);
    *schema = (fl_record_schema){0};
}
