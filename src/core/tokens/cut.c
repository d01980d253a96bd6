/*
** cut.c -- cutting a text into pieces (see cut.h).
*/
#define _GNU_SOURCE /* memmem */
#include "cut.h"
#include "char_class.h"
#include "normalize.h"

#include <stdlib.h>

struct fl_mark {
    size_t begin, end;
    bool match;
};

void fl_cut_free(fl_cut *step)
{
    fl_regex_free(step->regex);
    fl_text_free(&step->string);
}

void fl_cut_work_free(fl_cut_work *work)
{
    for (int i = 0; i < 2; i++) {
        fl_text_free(&work->texts[i]);
        fl_spans_free(&work->pieces[i]);
    }
    free(work->marks);
    *work = (fl_cut_work){0};
}

/* ---- matches of a step ---- */

static fl_status mark(fl_cut_work *work, size_t begin, size_t end, bool match)
{
    if (work->mark_count == work->mark_room)
        FL_TRY(fl_grow((void **)&work->marks, &work->mark_room, work->mark_count, 1, sizeof *work->marks));
    work->marks[work->mark_count++] = (struct fl_mark){begin, end, match};
    return FL_OK;
}

/* Marks what lies between the last match and this one, and this one. */
static fl_status mark_match(fl_cut_work *work, size_t *done, size_t begin, size_t end)
{
    if (*done < begin) FL_TRY(mark(work, *done, begin, false));
    FL_TRY(mark(work, begin, end, true));
    *done = end;
    return FL_OK;
}

/* The next match in the piece from `from` on, relative to the piece. */
static fl_status find(size_t *begin, size_t *end, const fl_cut *step, const unsigned char *text, size_t size,
                      size_t from)
{
    *begin = *end = size + 1;
    if (from > size) return FL_OK;
    if (step->kind == FL_CUT_REGEX) return fl_regex_find(begin, end, step->regex, text, size, from);
    if (step->kind == FL_CUT_STRING || step->kind == FL_CUT_METASPACE) {
        const fl_text *s = &step->string;
        const unsigned char *at = s->size ? memmem(text + from, size - from, s->data, s->size) : NULL;
        if (at) *begin = (size_t)(at - text), *end = *begin + s->size;
        return FL_OK;
    }
    if (from == size) return FL_OK;
    if (step->kind == FL_CUT_SCAN) {
        *begin = from;
        *end = fl_scan_next(&step->scan, text, size, from);
        return FL_OK;
    }
    for (size_t length; from < size; from += length)
        if (char_class(&length, text + from, size - from) & step->class) {
            *begin = from;
            *end = from + length;
            return FL_OK;
        }
    return FL_OK;
}

static fl_status marks_find(fl_cut_work *work, const fl_cut *step, const unsigned char *text, fl_span piece)
{
    size_t done = 0, size = piece.end - piece.begin, begin, end, from = 0;
    const unsigned char *data = text + piece.begin;
    work->mark_count = 0;
    for (;;) {
        FL_TRY(find(&begin, &end, step, data, size, from));
        if (begin > size) break;
        bool empty = end == begin;
        if (!(empty && end == done && from > 0 && from == done)) FL_TRY(mark_match(work, &done, begin, end));
        from = empty ? end + 1 : end;
        while (empty && from < size && (data[from] & 0xc0) == 0x80) from++;
    }
    return done < size ? mark(work, done, size, false) : FL_OK;
}

/* ---- the treatment of matches ---- */

/* Joins a match with the mark before it (or behind it, when the marks are turned round); of matches in a row only the
** first one. */
static size_t marks_merge(struct fl_mark *marks, size_t count, bool all)
{
    size_t n = 0;
    bool previous = false;
    for (size_t i = 0; i < count; i++) {
        bool match = marks[i].match, joins = all ? match == previous : match && !previous;
        if (joins && n > 0) {
            if (marks[i].end > marks[n - 1].end) marks[n - 1].end = marks[i].end;
            if (marks[i].begin < marks[n - 1].begin) marks[n - 1].begin = marks[i].begin;
        } else marks[n++] = marks[i];
        previous = match;
    }
    return n;
}

static void marks_turn(struct fl_mark *marks, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        struct fl_mark other = marks[i];
        marks[i] = marks[count - 1 - i];
        marks[count - 1 - i] = other;
    }
}

static fl_status marks_cut(fl_spans *out, fl_cut_work *work, fl_cut_behavior behavior, size_t start)
{
    struct fl_mark *marks = work->marks;
    size_t count = work->mark_count;
    if (behavior == FL_CUT_MERGED_WITH_NEXT) marks_turn(marks, count);
    if (behavior >= FL_CUT_MERGED_WITH_PREVIOUS) count = marks_merge(marks, count, behavior == FL_CUT_CONTIGUOUS);
    if (behavior == FL_CUT_MERGED_WITH_NEXT) marks_turn(marks, count);
    for (size_t i = 0; i < count; i++)
        if (marks[i].begin < marks[i].end && !(behavior == FL_CUT_REMOVED && marks[i].match))
            FL_TRY(fl_spans_add(out, start + marks[i].begin, start + marks[i].end));
    return FL_OK;
}

static fl_status cut(fl_spans *out, fl_cut_work *work, const fl_cut *step, const fl_text *text, const fl_spans *pieces)
{
    fl_cut_behavior behavior = step->kind == FL_CUT_METASPACE ? FL_CUT_MERGED_WITH_NEXT : step->behavior;
    for (size_t i = 0; i < pieces->count; i++) {
        FL_TRY(marks_find(work, step, text->data, pieces->list[i]));
        for (size_t j = 0; step->invert && j < work->mark_count; j++) work->marks[j].match = !work->marks[j].match;
        FL_TRY(marks_cut(out, work, behavior, pieces->list[i].begin));
    }
    return FL_OK;
}

/* ---- steps that change the text ---- */

static bool begins_with(const unsigned char *text, size_t size, const fl_text *start)
{
    return size >= start->size && memcmp(text, start->data, start->size) == 0;
}

static fl_status piece_rewrite(fl_text *out, const fl_cut *step, const unsigned char *text, size_t size, bool prepend)
{
    bool spaces = step->kind == FL_CUT_METASPACE;
    bool led = begins_with(text, size, &step->string) || (spaces && text[0] == ' ');
    if (prepend && !led) FL_TRY(fl_text_add(out, step->string.data, step->string.size));
    if (!spaces) return fl_text_add(out, text, size);
    static const fl_text space = {(unsigned char *)" ", 1, 1};
    return fl_text_replace(out, text, size, &space, NULL, &step->string);
}

static fl_status rewrite(fl_text *out, fl_spans *out_pieces, const fl_cut *step, const fl_text *text,
                         const fl_spans *pieces, bool begins, bool first)
{
    for (size_t i = 0; i < pieces->count; i++) {
        size_t start = out->size, begin = pieces->list[i].begin;
        bool prepend = i > 0 || begin > 0 || begins;
        if (step->prepend == FL_PREPEND_NEVER) prepend = false;
        if (step->prepend == FL_PREPEND_FIRST) prepend = i == 0 && begin == 0 && begins && first;
        FL_TRY(piece_rewrite(out, step, text->data + begin, pieces->list[i].end - begin, prepend));
        FL_TRY(fl_spans_add(out_pieces, start, out->size));
    }
    return FL_OK;
}

/* ---- all steps ---- */

fl_status fl_cut_run(const fl_text **out, const fl_spans **pieces, fl_cut_work *work, const fl_cut *steps, int count,
                     const fl_text *text, bool begins, bool first)
{
    int side = 0, text_side = 0;
    work->pieces[0].count = 0;
    if (text->size > 0) FL_TRY(fl_spans_add(&work->pieces[0], 0, text->size));
    for (int i = 0; i < count; i++) {
        const fl_cut *step = &steps[i];
        if (step->kind == FL_CUT_PREFIX || step->kind == FL_CUT_METASPACE) {
            fl_text *to = &work->texts[text_side];
            to->size = work->pieces[!side].count = 0;
            FL_TRY(fl_text_reserve(to, text->size + 8));
            FL_TRY(rewrite(to, &work->pieces[!side], step, text, &work->pieces[side], begins, first));
            first &= work->pieces[side].count > 0 && work->pieces[side].list[0].begin == 0;
            text = to;
            text_side = !text_side;
            side = !side;
            if (step->kind == FL_CUT_PREFIX || !step->cuts) continue;
        }
        work->pieces[!side].count = 0;
        FL_TRY(cut(&work->pieces[!side], work, step, text, &work->pieces[side]));
        side = !side;
    }
    *out = text;
    *pieces = &work->pieces[side];
    return FL_OK;
}

bool fl_cut_is_local(const fl_cut *step)
{
    if (step->kind == FL_CUT_REGEX) return false;
    if (step->kind != FL_CUT_STRING) return true;
    return step->string.size == 1 && step->string.data[0] < 128 && step->behavior != FL_CUT_MERGED_WITH_PREVIOUS;
}

bool fl_cut_cuts(const fl_cut *step)
{
    switch (step->kind) {
    case FL_CUT_SCAN: return true;
    case FL_CUT_STRING: return fl_cut_is_local(step) && step->string.data[0] == ' ' && !step->invert;
    case FL_CUT_CLASS: return (step->class & FL_CHAR_SPACE) != 0;
    case FL_CUT_METASPACE: return step->cuts;
    default: return false;
    }
}
