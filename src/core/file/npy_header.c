/*
** npy_header.c -- the header of a .npy file: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
**
** Of Python's literals it takes what NumPy writes: a dictionary of these three keys, strings, True and False, a tuple
** of whole numbers (with the L of Python 2).
*/
#include "npy_header.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 1 << 20, WORD = 64 };

struct literal {
    const fl_stream *stream;
    const char *at; /* of text that ends in NUL */
};

/* The keys, as they come. */
struct dictionary {
    bool has_descr, has_order, has_shape, is_list; /* is_list: descr is one, of the fields of a record */
    char descr[WORD];
    bool columns_first;
    int ndim;
    int64_t dims[FL_MAX_NDIM];
};

static fl_status fail(const fl_stream *stream, const char *what)
{
    return fl_fail(FL_ERR_IO, "%s: %s: %s", fl_stream_who(stream), fl_stream_path(stream), what);
}

static fl_status not_a_header(const struct literal *literal)
{
    char text[FL_SHOWN_TEXT], shown[24];
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn(literal->at, "\n"), literal->at);
    snprintf(text, sizeof text, "its header is damaged near '%s'", shown);
    return fail(literal->stream, text);
}

static void blanks_skip(struct literal *literal)
{
    while (*literal->at == ' ' || *literal->at == '\n' || *literal->at == '\t') literal->at++;
}

/* Takes a mark if it comes next. */
static bool take(struct literal *literal, char mark)
{
    blanks_skip(literal);
    if (*literal->at != mark) return false;
    literal->at++;
    return true;
}

static fl_status expect(struct literal *literal, char mark)
{
    return take(literal, mark) ? FL_OK : not_a_header(literal);
}

static fl_status string_read(struct literal *literal, char *out)
{
    blanks_skip(literal);
    char quote = *literal->at;
    const char *end = quote == '\'' || quote == '"' ? strchr(literal->at + 1, quote) : NULL;
    if (!end || end - literal->at > WORD) return not_a_header(literal);
    memcpy(out, literal->at + 1, (size_t)(end - literal->at - 1));
    out[end - literal->at - 1] = '\0';
    literal->at = end + 1;
    return FL_OK;
}

static fl_status boolean_read(struct literal *literal, bool *out)
{
    blanks_skip(literal);
    *out = strncmp(literal->at, "True", 4) == 0;
    if (!*out && strncmp(literal->at, "False", 5) != 0) return not_a_header(literal);
    literal->at += *out ? 4 : 5;
    return FL_OK;
}

static fl_status size_read(struct literal *literal, int64_t *out)
{
    int64_t value = 0;
    blanks_skip(literal);
    if (!isdigit((unsigned char)*literal->at)) return not_a_header(literal);
    for (; isdigit((unsigned char)*literal->at); literal->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *literal->at - '0', &value))
            return not_a_header(literal);
    if (*literal->at == 'L') literal->at++;
    *out = value;
    return FL_OK;
}

static fl_status shape_read(struct literal *literal, struct dictionary *dictionary)
{
    FL_TRY(expect(literal, '('));
    for (dictionary->ndim = 0; !take(literal, ')'); dictionary->ndim++) {
        if (dictionary->ndim == FL_MAX_NDIM) return fail(literal->stream, "more than 8 axes");
        FL_TRY(size_read(literal, &dictionary->dims[dictionary->ndim]));
        if (take(literal, ',')) continue;
        if (dictionary->ndim++ == 0) return not_a_header(literal); /* (3) is no tuple */
        return expect(literal, ')');
    }
    return FL_OK;
}

static fl_status entry_read(struct literal *literal, struct dictionary *dictionary)
{
    char key[WORD];
    FL_TRY(string_read(literal, key));
    FL_TRY(expect(literal, ':'));
    blanks_skip(literal);
    if (strcmp(key, "descr") == 0 && !dictionary->has_descr) {
        dictionary->has_descr = true;
        dictionary->is_list = *literal->at == '[';
        return dictionary->is_list ? FL_OK : string_read(literal, dictionary->descr);
    }
    if (strcmp(key, "fortran_order") == 0 && !dictionary->has_order) {
        dictionary->has_order = true;
        return boolean_read(literal, &dictionary->columns_first);
    }
    if (strcmp(key, "shape") == 0 && !dictionary->has_shape) {
        dictionary->has_shape = true;
        return shape_read(literal, dictionary);
    }
    return not_a_header(literal);
}

/* The types that no tensor has, by NumPy's letter, and the way out. */
static fl_status refuse(const fl_stream *stream, const char *descr, bool is_list)
{
    static const struct {
        char kind;
        const char *holds, *instead;
    } kinds[] = {
        {'[', "records of several fields", "save each field: numpy.save(path, a[\"field\"])"},
        {'O', "Python objects", "save numbers: numpy.save(path, numpy.array(a.tolist(), dtype=\"float32\"))"},
        {'c', "complex numbers", "save both parts: numpy.save(path, numpy.stack([a.real, a.imag], -1))"},
        {'M', "dates", "save numbers: numpy.save(path, a.astype(\"int64\"))"},
        {'m', "time differences", "save numbers: numpy.save(path, a.astype(\"int64\"))"},
        {'f', "floats of another width", "numpy.save(path, a.astype(\"float64\"))"},
        {'U', "text", "save numbers: numpy.save(path, numpy.unique(a, return_inverse=True)[1])"},
        {'S', "text", "save numbers: numpy.save(path, numpy.unique(a, return_inverse=True)[1])"},
        {'V', "bytes without a type", "save them with a type: numpy.save(path, a.view(\"uint8\"))"},
    };
    char kind = is_list ? '[' : strchr("<>|=", descr[0]) && descr[0] ? descr[1] : descr[0];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].kind == kind)
            return fl_fail(FL_ERR_IO, "%s: %s: holds %s%s%s%s, not elements of a tensor; in Python: %s",
                           fl_stream_who(stream), fl_stream_path(stream), kinds[i].holds, is_list ? "" : " (",
                           is_list ? "" : descr, is_list ? "" : ")", kinds[i].instead);
    return fl_fail(FL_ERR_IO, "%s: %s: its dtype '%s' is unknown", fl_stream_who(stream), fl_stream_path(stream),
                   descr);
}

/* "<f4": order, kind and width, and the tensor's dtype. */
static fl_status descr_read(fl_npy_header_facts *out, const fl_stream *stream, const char *descr)
{
    static const struct {
        char kind;
        int width;
        fl_dtype dtype;
    } known[] = {
        {'b', 1, FL_BOOL},  {'u', 1, FL_UINT8},   {'i', 1, FL_INT8},    {'i', 2, FL_INT32},
        {'u', 2, FL_INT32}, {'i', 4, FL_INT32},   {'u', 4, FL_INT64},   {'i', 8, FL_INT64},
        {'u', 8, FL_INT64}, {'f', 2, FL_FLOAT16}, {'f', 4, FL_FLOAT32}, {'f', 8, FL_FLOAT64},
    };
    uint16_t probe = 1;
    bool little = *(const unsigned char *)&probe == 1, has_order = descr[0] && strchr("<>|=", descr[0]);
    const char *kind = descr + has_order;
    char *end = NULL;
    long width = *kind ? strtol(kind + 1, &end, 10) : 0;
    for (size_t i = 0; end && !*end && i < sizeof known / sizeof known[0]; i++) {
        if (known[i].kind != *kind || known[i].width != width) continue;
        out->kind = *kind;
        out->width = (int)width;
        out->dtype = known[i].dtype;
        out->swapped = width > 1 && (little ? descr[0] == '>' : descr[0] == '<');
        return FL_OK;
    }
    return refuse(stream, descr, false);
}

static fl_status dictionary_read(struct dictionary *dictionary, const fl_stream *stream, const char *text)
{
    struct literal l = {stream, text};
    FL_TRY(expect(&l, '{'));
    while (!take(&l, '}')) {
        FL_TRY(entry_read(&l, dictionary));
        if (dictionary->is_list) return refuse(stream, "", true);
        if (take(&l, ',')) continue;
        FL_TRY(expect(&l, '}'));
        break;
    }
    blanks_skip(&l);
    if (*l.at) return not_a_header(&l);
    return dictionary->has_descr && dictionary->has_order && dictionary->has_shape
        ? FL_OK
        : fail(stream, "its header lacks one of 'descr', 'fortran_order' and 'shape'");
}

/* Magic, version, length. */
static fl_status head_read(int64_t *length, fl_stream *stream)
{
    unsigned char head[12] = {0};
    int64_t got;
    FL_TRY(fl_stream_read_some(&got, stream, head, 8));
    if (memcmp(head, "\x93NUMPY", got < 6 ? (size_t)got : 6) != 0 || got == 0) return fail(stream, "not a .npy file");
    if (got < 8) return fail(stream, "the file ends early");
    if (head[6] < 1 || head[6] > 3) {
        char text[64];
        snprintf(text, sizeof text, "version %d.%d of the format is unknown", head[6], head[7]);
        return fail(stream, text);
    }
    FL_TRY(fl_stream_read(stream, head + 8, head[6] == 1 ? 2 : 4));
    *length = (int64_t)head[8] | (int64_t)head[9] << 8 | (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    return *length <= MAX_HEADER ? FL_OK : fail(stream, "its header is longer than 1 MiB");
}

fl_status fl_npy_header_read(fl_npy_header_facts *out, fl_stream *stream)
{
    int64_t length = 0;
    struct dictionary d = {0};
    FL_TRY(head_read(&length, stream));
    FL_TRY(fl_stream_claim(stream, length));
    char *text = calloc(1, (size_t)length + 1);
    if (!text) return fail(stream, "out of memory");
    fl_status status = fl_stream_read(stream, text, length);
    if (status == FL_OK) status = dictionary_read(&d, stream, text);
    free(text);
    FL_TRY(status);
    FL_TRY(descr_read(out, stream, d.descr));
    out->columns_first = d.columns_first;
    status = fl_shape_make(&out->shape, fl_stream_path(stream), d.dims, d.ndim);
    return status == FL_OK ? FL_OK : fl_fail_prefix(FL_ERR_IO, "%s: ", fl_stream_who(stream));
}
