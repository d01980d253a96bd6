/*
** tokenizer_steps.c -- reading the normalizers and pre-tokenizers of a tokenizer.json.
*/
#include "tokenizer_json.h"

#include <string.h>

fl_status fl_tokenizer_read_pattern(fl_text *text, fl_regex **regex, json_t *step, const char *where)
{
    json_t *pattern = json_object_get(step, "pattern"), *expression = json_object_get(pattern, "Regex");
    if (!expression) return read_text(text, pattern, "String", where);
    if (!json_is_string(expression)) return fl_fail(FL_ERR_IO, "%s: pattern.Regex must be a string", where);
    fl_status status = fl_regex_new(regex, json_string_value(expression), json_string_length(expression));
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "%s: ", where);
}

static fl_status too_many(const char *where)
{
    return fl_fail(FL_ERR_IO, "%s has more than %d steps", where, FL_TOKENIZER_STEPS);
}

/* ---- normalizers ---- */

static const struct {
    const char *type;
    fl_normalize_kind kind;
} normalizers[] = {
    {"NFC", FL_NORMALIZE_NFC},
    {"NFD", FL_NORMALIZE_NFD},
    {"NFKC", FL_NORMALIZE_NFKC},
    {"NFKD", FL_NORMALIZE_NFKD},
    {"Lowercase", FL_NORMALIZE_LOWERCASE},
    {"StripAccents", FL_NORMALIZE_STRIP_ACCENTS},
    {"Strip", FL_NORMALIZE_STRIP},
    {"Prepend", FL_NORMALIZE_PREPEND},
    {"Replace", FL_NORMALIZE_REPLACE},
};

static fl_status normalizer_fill(fl_normalize *normalize, json_t *step)
{
    FL_TRY(fl_normalize_open(normalize->kind));
    switch (normalize->kind) {
    case FL_NORMALIZE_STRIP:
        FL_TRY(fl_char_classes_open());
        FL_TRY(read_flag(&normalize->left, step, "strip_left", true, "normalizer"));
        return read_flag(&normalize->right, step, "strip_right", true, "normalizer");
    case FL_NORMALIZE_PREPEND: return read_text(&normalize->content, step, "prepend", "normalizer");
    case FL_NORMALIZE_REPLACE:
        FL_TRY(fl_tokenizer_read_pattern(&normalize->pattern, &normalize->regex, step, "normalizer"));
        return read_text(&normalize->content, step, "content", "normalizer");
    default: return FL_OK;
    }
}

fl_status fl_tokenizer_read_normalizer(fl_tokenizer *tokenizer, json_t *step)
{
    const char *type = NULL;
    size_t i;
    json_t *list, *one;
    if (is_missing(step)) return FL_OK;
    FL_TRY(step_type(&type, step, "normalizer"));
    if (strcmp(type, "Sequence") == 0) {
        FL_TRY(read_list(&list, step, "normalizers", "normalizer"));
        json_array_foreach(list, i, one) FL_TRY(fl_tokenizer_read_normalizer(tokenizer, one));
        return FL_OK;
    }
    for (i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
        if (strcmp(type, normalizers[i].type) != 0) continue;
        if (tokenizer->normalizer_count == FL_TOKENIZER_STEPS) return too_many("normalizer");
        fl_normalize *n = &tokenizer->normalizers[tokenizer->normalizer_count++];
        n->kind = normalizers[i].kind;
        return normalizer_fill(n, step);
    }
    return refuse_type("a normalizer", type);
}

/* ---- pre-tokenizers ---- */

static fl_status split_new(fl_cut **out, fl_tokenizer *tokenizer, fl_cut_kind kind, fl_cut_behavior behavior)
{
    if (tokenizer->split_count == FL_TOKENIZER_STEPS) return too_many("pre_tokenizer");
    *out = &tokenizer->splits[tokenizer->split_count++];
    **out = (fl_cut){.kind = kind, .behavior = behavior};
    return kind == FL_CUT_SCAN || kind == FL_CUT_CLASS ? fl_char_classes_open() : FL_OK;
}

static fl_status class_add(fl_tokenizer *tokenizer, int class, fl_cut_behavior behavior)
{
    fl_cut *split = NULL;
    FL_TRY(split_new(&split, tokenizer, FL_CUT_CLASS, behavior));
    split->class = class;
    return FL_OK;
}

fl_status fl_tokenizer_add_bytes(fl_tokenizer *tokenizer, bool prefix, bool regex)
{
    fl_cut *split = NULL;
    tokenizer->bpe.byte_level = true;
    if (prefix) {
        FL_TRY(split_new(&split, tokenizer, FL_CUT_PREFIX, FL_CUT_ISOLATED));
        FL_TRY(fl_text_add(&split->string, " ", 1));
    }
    if (!regex) return FL_OK;
    FL_TRY(split_new(&split, tokenizer, FL_CUT_SCAN, FL_CUT_ISOLATED));
    return fl_scan_known(&split->scan, fl_scan_gpt2, strlen(fl_scan_gpt2)) ? FL_OK : FL_ERR_VALUE;
}

static fl_status read_behavior(fl_cut_behavior *out, json_t *step, fl_cut_behavior missing)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    json_t *value = json_object_get(step, "behavior");
    *out = missing;
    if (is_missing(value)) return FL_OK;
    for (int i = 0; i < 5; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), names[i]) == 0) {
            *out = (fl_cut_behavior)i;
            return FL_OK;
        }
    return fl_fail(FL_ERR_IO,
                   "pre_tokenizer.behavior must be one of Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                   "Contiguous");
}

/* A pattern that matches every character, so that all matches are pieces, is one of those of scan.h. */
static bool is_scan(fl_scan *scan, const fl_cut *split, json_t *step)
{
    json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
    bool kept = split->invert ? split->behavior == FL_CUT_REMOVED : split->behavior == FL_CUT_ISOLATED;
    return kept && json_is_string(regex) && fl_scan_known(scan, json_string_value(regex), json_string_length(regex));
}

static fl_status read_split(fl_tokenizer *tokenizer, json_t *step)
{
    fl_cut *split = NULL;
    FL_TRY(split_new(&split, tokenizer, FL_CUT_REGEX, FL_CUT_ISOLATED));
    FL_TRY(read_behavior(&split->behavior, step, FL_CUT_ISOLATED));
    FL_TRY(read_flag(&split->invert, step, "invert", false, "pre_tokenizer"));
    if (is_scan(&split->scan, split, step)) {
        split->kind = FL_CUT_SCAN;
        split->behavior = FL_CUT_ISOLATED;
        split->invert = false;
        return fl_char_classes_open();
    }
    FL_TRY(fl_tokenizer_read_pattern(&split->string, &split->regex, step, "pre_tokenizer"));
    if (!split->regex) split->kind = FL_CUT_STRING;
    return FL_OK;
}

static fl_status read_metaspace(fl_tokenizer *tokenizer, json_t *step)
{
    static const char *const names[] = {"always", "first", "never"};
    fl_cut *split = NULL;
    bool prefix = true;
    json_t *scheme = json_object_get(step, "prepend_scheme");
    FL_TRY(split_new(&split, tokenizer, FL_CUT_METASPACE, FL_CUT_MERGED_WITH_NEXT));
    FL_TRY(read_text(&split->string, step, "replacement", "pre_tokenizer"));
    FL_TRY(read_flag(&split->cuts, step, "split", true, "pre_tokenizer"));
    FL_TRY(read_flag(&prefix, step, "add_prefix_space", true, "pre_tokenizer")); /* of older files */
    split->prepend = FL_PREPEND_NEVER + 1;
    for (int i = 0; i < 3; i++)
        if (json_is_string(scheme) && strcmp(json_string_value(scheme), names[i]) == 0)
            split->prepend = (fl_cut_prepend)i;
    if (is_missing(scheme)) split->prepend = FL_PREPEND_ALWAYS;
    if (split->prepend > FL_PREPEND_NEVER)
        return fl_fail(FL_ERR_IO, "pre_tokenizer.prepend_scheme must be always, first or never");
    if (!prefix) split->prepend = FL_PREPEND_NEVER;
    if (split->string.size == 0) return fl_fail(FL_ERR_IO, "pre_tokenizer.replacement is empty");
    return FL_OK;
}

static fl_status read_bytes(fl_tokenizer *tokenizer, json_t *step)
{
    bool prefix = true, regex = true;
    FL_TRY(read_flag(&prefix, step, "add_prefix_space", true, "pre_tokenizer"));
    FL_TRY(read_flag(&regex, step, "use_regex", true, "pre_tokenizer"));
    return fl_tokenizer_add_bytes(tokenizer, prefix, regex);
}

/* \w+|[^\w\s]+ are the pieces. */
static fl_status read_whitespace(fl_tokenizer *tokenizer, json_t *step)
{
    static const char pattern[] = FL_REGEX_WORD "+|(?:" FL_REGEX_SIGN ")+";
    fl_cut *split = NULL;
    (void)step;
    FL_TRY(split_new(&split, tokenizer, FL_CUT_REGEX, FL_CUT_REMOVED));
    split->invert = true;
    return fl_regex_new(&split->regex, pattern, sizeof pattern - 1);
}

static fl_status read_whitespace_split(fl_tokenizer *tokenizer, json_t *step)
{
    (void)step;
    return class_add(tokenizer, FL_CHAR_SPACE, FL_CUT_REMOVED);
}

static fl_status read_digits(fl_tokenizer *tokenizer, json_t *step)
{
    bool each = false;
    FL_TRY(read_flag(&each, step, "individual_digits", false, "pre_tokenizer"));
    return class_add(tokenizer, FL_CHAR_NUMBER, each ? FL_CUT_ISOLATED : FL_CUT_CONTIGUOUS);
}

static fl_status read_punctuation(fl_tokenizer *tokenizer, json_t *step)
{
    fl_cut_behavior behavior;
    FL_TRY(read_behavior(&behavior, step, FL_CUT_ISOLATED));
    return class_add(tokenizer, FL_CHAR_PUNCTUATION | FL_CHAR_SYMBOL, behavior);
}

static fl_status read_bert(fl_tokenizer *tokenizer, json_t *step)
{
    FL_TRY(read_whitespace_split(tokenizer, step));
    return class_add(tokenizer, FL_CHAR_PUNCTUATION | FL_CHAR_SYMBOL, FL_CUT_ISOLATED);
}

static fl_status read_delimiter(fl_tokenizer *tokenizer, json_t *step)
{
    fl_cut *split = NULL;
    FL_TRY(split_new(&split, tokenizer, FL_CUT_STRING, FL_CUT_REMOVED));
    return read_text(&split->string, step, "delimiter", "pre_tokenizer");
}

static fl_status read_sequence(fl_tokenizer *tokenizer, json_t *step)
{
    size_t i;
    json_t *list, *one;
    FL_TRY(read_list(&list, step, "pretokenizers", "pre_tokenizer"));
    json_array_foreach(list, i, one) FL_TRY(fl_tokenizer_read_splits(tokenizer, one));
    return FL_OK;
}

fl_status fl_tokenizer_read_splits(fl_tokenizer *tokenizer, json_t *step)
{
    static const struct {
        const char *type;
        fl_status (*read)(fl_tokenizer *, json_t *);
    } kinds[] = {
        {"ByteLevel", read_bytes},         {"Split", read_split},           {"Metaspace", read_metaspace},
        {"Digits", read_digits},           {"Whitespace", read_whitespace}, {"WhitespaceSplit", read_whitespace_split},
        {"Punctuation", read_punctuation}, {"BertPreTokenizer", read_bert}, {"CharDelimiterSplit", read_delimiter},
        {"Sequence", read_sequence},
    };
    const char *type = NULL;
    if (is_missing(step)) return FL_OK;
    FL_TRY(step_type(&type, step, "pre_tokenizer"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        if (tokenizer->bpe.byte_level && kinds[i].read != read_sequence)
            return fl_fail(FL_ERR_IO, "a pre_tokenizer of type %s behind one of type ByteLevel is not supported", type);
        return kinds[i].read(tokenizer, step);
    }
    return refuse_type("a pre_tokenizer", type);
}
