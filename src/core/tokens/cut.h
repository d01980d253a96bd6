/*
** cut.h -- how a tokenizer cuts a normalised text into pieces: steps, of which each cuts the pieces of the one before.
*/
#ifndef FL_CUT_H
#define FL_CUT_H

#include "regex.h"
#include "scan.h"
#include "growing.h"

typedef enum fl_cut_kind {
    FL_CUT_SCAN,     /* at the matches of a pattern of scan.h */
    FL_CUT_REGEX,    /* at the matches of `regex` */
    FL_CUT_STRING,   /* at `string` */
    FL_CUT_CLASS,    /* at characters whose class has a bit of `class` */
    FL_CUT_PREFIX,   /* puts `string` before each piece that does not begin with it */
    FL_CUT_METASPACE /* replaces spaces by `string`, puts it in front, cuts before it */
} fl_cut_kind;

/* The treatment of a match. */
typedef enum fl_cut_behavior {
    FL_CUT_REMOVED,
    FL_CUT_ISOLATED,
    FL_CUT_MERGED_WITH_PREVIOUS,
    FL_CUT_MERGED_WITH_NEXT,
    FL_CUT_CONTIGUOUS /* matches in a row are one */
} fl_cut_behavior;

typedef enum fl_cut_prepend { FL_PREPEND_ALWAYS, FL_PREPEND_FIRST, FL_PREPEND_NEVER } fl_cut_prepend;

typedef struct fl_cut {
    fl_cut_kind kind;
    fl_cut_behavior behavior;
    bool invert; /* the text between matches is the match */
    bool cuts;   /* metaspace: cut before the string */
    fl_cut_prepend prepend;
    fl_scan scan;
    int class;
    fl_regex *regex; /* owned */
    fl_text string;  /* owned */
} fl_cut;

void fl_cut_free(fl_cut *step);

/* Room of a thread; starts as {0}. */
struct fl_mark;
typedef struct fl_cut_work {
    fl_text texts[2];
    fl_spans pieces[2];
    struct fl_mark *marks;
    size_t mark_count, mark_room;
} fl_cut_work;
void fl_cut_work_free(fl_cut_work *work);

/* Cuts the text, which is UTF-8. *out, *pieces: the text that steps have made of it, and its pieces, in order and not
** empty, borrowed from `work` (or `text`) until the next call. begins: at the beginning of what is encoded; first: this
** text is also the first of it. */
fl_status fl_cut_run(const fl_text **out, const fl_spans **pieces, fl_cut_work *work, const fl_cut *steps, int count,
                     const fl_text *text, bool begins, bool first);

/* True if each text is cut between a letter or digit of ASCII and a space, and parts are cut like the whole. */
bool fl_cut_is_local(const fl_cut *step);
bool fl_cut_cuts(const fl_cut *step);

#endif
