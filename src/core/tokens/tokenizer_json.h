/*
** tokenizer_json.h -- looking into a tokenizer.json: each function returns a value of the kind it names, or words an
** error with where, "model.vocab".
*/
#ifndef FL_TOKENIZER_JSON_H
#define FL_TOKENIZER_JSON_H

#include "tokenizer_parts.h"

#include <jansson.h>

static inline bool is_missing(json_t *value) { return !value || json_is_null(value); }

static inline fl_status read_text(fl_text *out, json_t *object, const char *key, const char *where)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return fl_fail(FL_ERR_IO, "%s.%s must be a string", where, key);
    out->size = 0;
    FL_TRY(fl_text_reserve(out, json_string_length(value) + 1));
    return fl_text_add(out, json_string_value(value), json_string_length(value));
}

/* missing: the value where there is none. */
static inline fl_status read_flag(bool *out, json_t *object, const char *key, bool missing, const char *where)
{
    json_t *value = json_object_get(object, key);
    if (!is_missing(value) && !json_is_boolean(value))
        return fl_fail(FL_ERR_IO, "%s.%s must be true or false", where, key);
    *out = is_missing(value) ? missing : json_is_true(value);
    return FL_OK;
}

/* The list of an object. */
static inline fl_status read_list(json_t **out, json_t *object, const char *key, const char *where)
{
    *out = json_object_get(object, key);
    if (!json_is_array(*out)) return fl_fail(FL_ERR_IO, "%s.%s must be a list", where, key);
    return FL_OK;
}

/* The name of a step, its "type". */
static inline fl_status step_type(const char **out, json_t *step, const char *where)
{
    json_t *type = json_object_get(step, "type");
    if (!json_is_string(type)) return fl_fail(FL_ERR_IO, "%s must be an object with a type", where);
    *out = json_string_value(type);
    return FL_OK;
}

static inline fl_status refuse_type(const char *where, const char *type)
{
    char shown[FL_SHOWN_TEXT];
    return fl_fail(FL_ERR_IO, "%s of type %s is not supported", where, fl_text_name(shown, type));
}

/* tokenizer_steps.c: null or missing is no step. */
fl_status fl_tokenizer_read_normalizer(fl_tokenizer *tokenizer, json_t *step);
fl_status fl_tokenizer_read_splits(fl_tokenizer *tokenizer, json_t *step);
/* tokenizer_template.c */
fl_status fl_tokenizer_read_processor(fl_tokenizer *tokenizer, json_t *step);
/* tokenizer_decode.c */
fl_status fl_tokenizer_read_decoder(fl_tokenizer *tokenizer, json_t *step);
/* {"String": text} as the text, {"Regex": pattern} as the expression. */
fl_status fl_tokenizer_read_pattern(fl_text *text, fl_regex **regex, json_t *step, const char *where);

/* The step that GPT-2 cuts by, and what byte level means. */
fl_status fl_tokenizer_add_bytes(fl_tokenizer *tokenizer, bool prefix, bool regex);

#endif
