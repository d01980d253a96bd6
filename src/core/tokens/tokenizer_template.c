/*
** tokenizer_template.c -- reading the template of a tokenizer.json: the tokens around a text.
*/
#include "tokenizer_json.h"

#include <string.h>

/* Adds the ids of a special token of a template. */
static fl_status template_ids(fl_ids *out, const fl_tokenizer *tokenizer, json_t *specials, json_t *name)
{
    const char *word;
    size_t i, size;
    json_t *list = json_is_string(name) ? json_object_get(json_object_get(specials, json_string_value(name)), "ids")
                                        : NULL;
    json_t *id;
    if (!json_is_array(list)) return fl_fail(FL_ERR_IO, "post_processor: a special token has no list of ids");
    json_array_foreach(list, i, id)
    {
        if (!json_is_integer(id) || !fl_tokenizer_token(tokenizer, json_integer_value(id), &word, &size))
            return fl_fail(FL_ERR_IO, "post_processor: the id of a special token is not that of a token");
        FL_TRY(fl_ids_add(out, (int32_t)json_integer_value(id)));
    }
    return FL_OK;
}

static fl_status read_template(fl_tokenizer *tokenizer, json_t *step)
{
    size_t i;
    json_t *piece, *list = json_object_get(step, "single"), *specials = json_object_get(step, "special_tokens");
    bool text = false;
    if (!json_is_array(list)) return fl_fail(FL_ERR_IO, "post_processor.single must be a list");
    json_array_foreach(list, i, piece)
    {
        json_t *special = json_object_get(piece, "SpecialToken");
        if (special) {
            FL_TRY(template_ids(text ? &tokenizer->behind : &tokenizer->before, tokenizer, specials,
                                json_object_get(special, "id")));
        } else if (json_object_get(piece, "Sequence") && !text) text = true;
        else return fl_fail(FL_ERR_IO, "post_processor.single must hold special tokens and the text once");
    }
    return text ? FL_OK : fl_fail(FL_ERR_IO, "post_processor.single does not hold the text");
}

/* ["</s>", 2] */
static fl_status pair_id(fl_ids *out, const fl_tokenizer *tokenizer, json_t *step, const char *key)
{
    const char *word;
    size_t size;
    json_t *id = json_array_get(json_object_get(step, key), 1);
    if (!json_is_integer(id) || !fl_tokenizer_token(tokenizer, json_integer_value(id), &word, &size))
        return fl_fail(FL_ERR_IO, "post_processor.%s must be a token and its id", key);
    return fl_ids_add(out, (int32_t)json_integer_value(id));
}

fl_status fl_tokenizer_read_processor(fl_tokenizer *tokenizer, json_t *step)
{
    const char *type = NULL;
    size_t i;
    json_t *list, *one;
    if (is_missing(step)) return FL_OK;
    FL_TRY(step_type(&type, step, "post_processor"));
    if (strcmp(type, "ByteLevel") == 0) return FL_OK; /* concerns places in the text */
    if (strcmp(type, "Sequence") == 0) {
        FL_TRY(read_list(&list, step, "processors", "post_processor"));
        json_array_foreach(list, i, one) FL_TRY(fl_tokenizer_read_processor(tokenizer, one));
        return FL_OK;
    }
    if (tokenizer->before.list || tokenizer->behind.list)
        return fl_fail(FL_ERR_IO, "two templates in post_processor are not supported");
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(tokenizer, step);
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return refuse_type("a post_processor", type);
    FL_TRY(pair_id(&tokenizer->before, tokenizer, step, "cls"));
    return pair_id(&tokenizer->behind, tokenizer, step, "sep");
}
