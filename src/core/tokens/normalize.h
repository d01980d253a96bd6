/*
** normalize.h -- what a tokenizer does to a text before it cuts it: Unicode normal forms, lower case, replacing.
**
** Normal forms, lower case and accents come from utf8proc, which is opened when a tokenizer asks for one of them.
*/
#ifndef FL_NORMALIZE_H
#define FL_NORMALIZE_H

#include "regex.h"
#include "growing.h"

typedef enum fl_normalize_kind {
    FL_NORMALIZE_NFC,
    FL_NORMALIZE_NFD,
    FL_NORMALIZE_NFKC,
    FL_NORMALIZE_NFKD,
    FL_NORMALIZE_LOWERCASE,
    FL_NORMALIZE_STRIP_ACCENTS, /* marks: categories Mn, Mc, Me */
    FL_NORMALIZE_STRIP,
    FL_NORMALIZE_PREPEND, /* `content`, before a text that is not empty */
    FL_NORMALIZE_REPLACE  /* `pattern`, or what `regex` matches, by `content` */
} fl_normalize_kind;

typedef struct fl_normalize {
    fl_normalize_kind kind;
    fl_text pattern, content; /* owned */
    fl_regex *regex;          /* owned; NULL: the pattern is plain */
    bool left, right;         /* ends that are stripped */
} fl_normalize;

void fl_normalize_free(fl_normalize *step);

/* Opens utf8proc where the kind needs it; FL_ERR_MISSING names the package. */
fl_status fl_normalize_open(fl_normalize_kind kind);

/* Writes the text, which is UTF-8, as the step makes it, in place of what `out` holds. begins: it is the beginning of
** what is encoded; else nothing is put in front of it. */
fl_status fl_normalize_run(fl_text *out, const fl_normalize *step, const unsigned char *text, size_t size, bool begins);

/* Writes the text with what matches replaced. regex: NULL: `pattern` is plain. */
fl_status fl_text_replace(fl_text *out, const unsigned char *text, size_t size, const fl_text *pattern,
                          const fl_regex *regex, const fl_text *content);

/* False: the step may change a text otherwise than its parts, cut between a letter or digit of ASCII and a space. */
bool fl_normalize_is_local(const fl_normalize *step);

#endif
