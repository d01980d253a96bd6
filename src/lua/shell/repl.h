/*
** repl.h -- what the files of the interactive session share: the terminal, its colours, the line editor, and lines that
** several ranks evaluate.
*/
#ifndef FL_REPL_H
#define FL_REPL_H

#include "core/script.h"

#include <lua.h>
#include <stdio.h>

/* ---- the terminal (terminal.c) ---- */

/* True if this process can read keys: its standard input, or that of the launcher which gave it a pipe instead, is the
** terminal they both belong to, and the launcher is in the foreground. */
bool fl_terminal_is_there(void);

/* Standard input becomes a terminal that this process reads in place of its launcher, and output and errors go to it
** where the launcher has it there. Ctrl-C comes to this process alone. It is as before after give_back and however this
** process ends. */
fl_status fl_terminal_take(void);
void fl_terminal_give_back(void);

/* True if that descriptor, 1 or 2, of a session that has begun is a terminal with a reader. A launcher gives its ranks
** pseudo terminals, whatever its own output is. */
bool fl_terminal_shows(int descriptor);

/* For a process that does not take it: errors go straight to the terminal where the launcher has it there. Returns
** where output goes: a descriptor of the terminal, else standard output. */
int fl_terminal_join(void);

/* ---- appearance (style.c) ---- */

typedef enum fl_style { FL_BOLD, FL_DIM, FL_RED } fl_style;

/* Finds out what the terminal can show, when standard output and errors are what they will be. */
void fl_style_open(void);
/* True if standard output is a terminal; if it is one that understands control sequences. */
bool fl_style_on_terminal(void);
bool fl_style_has_codes(void);
bool fl_style_has_colours(FILE *to);
/* The codes before and after a text; "" if there are no colours. */
const char *fl_style_begin(FILE *to, fl_style style);
const char *fl_style_end(FILE *to);
/* An error with its traceback, and an end of line, coloured as on stderr. */
void fl_style_print_error(FILE *to, const char *text, size_t size);

/* ---- the line editor (editor.c) ---- */

/* False: there is none, for input or output is no terminal or libedit is missing; lines are then read without an
** editor. */
bool fl_editor_open(lua_State *L);
void fl_editor_close(void);

/* Reads an input, of several lines when it was pasted or comes from the history, and pushes it without its last
** newline. False at the end of input. *cancelled: by Ctrl-C; the text is empty then. In a prompt, \1 stands around what
** takes no room. */
bool fl_editor_read(lua_State *L, const char *prompt, bool *cancelled);

/* Adds a text, read in one input or several, as one entry to the history. */
void fl_editor_remember(const char *text);

/* ---- lines and their evaluation (repl_ranks.c) ---- */

/* The ranks that evaluate a line: one alone ("@2 x"), or all of them; of "@* x" each rank's answer is shown. */
enum { FL_AT_ALL = -1, FL_AT_EACH = -2 };

typedef struct fl_line {
    int at;   /* FL_AT_ALL, FL_AT_EACH or a rank */
    bool end; /* there is none: the session is over */
} fl_line;

typedef enum fl_outcome {
    FL_DONE,       /* nothing more to show */
    FL_ANSWERED,   /* with a text: the answer */
    FL_FAILED,     /* with a text: the error */
    FL_DESERTED,   /* the same, but only because another rank had stopped */
    FL_INTERRUPTED /* the same, by Ctrl-C */
} fl_outcome;

/* All ranks call these together; with one rank they do nothing or what is left to do. Errors: another rank is lost. */
fl_status fl_session_start(lua_State *L);
void fl_session_stop(void);

/* Rank 0's line goes to all ranks: its text, at the top of rank 0's stack, is pushed by the others. */
fl_status fl_session_share(lua_State *L, fl_line *line);

/* This rank is through with the line; pops the text, if there is one. Rank 0 shows what became of it on all ranks, and
** all groups are reset: the next line finds groups and random numbers in step. */
fl_status fl_session_finish(lua_State *L, const fl_line *line, fl_outcome mine);

#endif
