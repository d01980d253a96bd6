/*
** style.c -- colours of the session, where a terminal shows them: not where NO_COLOR is set (no-color.org), TERM is
** "dumb" or missing, or output is no terminal.
*/
#define _GNU_SOURCE
#include "repl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool out_is_terminal, out_has_codes, out_has_colours, err_has_colours;

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && *value;
}

void fl_style_open(void)
{
    bool smart = is_set("TERM") && strcmp(getenv("TERM"), "dumb") != 0, wanted = !is_set("NO_COLOR");
    out_is_terminal = fl_terminal_shows(STDOUT_FILENO);
    out_has_codes = smart && out_is_terminal;
    out_has_colours = out_has_codes && wanted;
    err_has_colours = smart && wanted && fl_terminal_shows(STDERR_FILENO);
}

bool fl_style_on_terminal(void) { return out_is_terminal; }

bool fl_style_has_codes(void) { return out_has_codes; }

bool fl_style_has_colours(FILE *to) { return to == stderr ? err_has_colours : to == stdout && out_has_colours; }

const char *fl_style_begin(FILE *to, fl_style style)
{
    static const char *const codes[] = {[FL_BOLD] = "\033[1m", [FL_DIM] = "\033[2m", [FL_RED] = "\033[31m"};
    return fl_style_has_colours(to) ? codes[style] : "";
}

const char *fl_style_end(FILE *to) { return fl_style_has_colours(to) ? "\033[0m" : ""; }

static void print_part(FILE *to, fl_style style, const char *text, size_t size)
{
    fputs(fl_style_begin(stderr, style), to);
    fwrite(text, 1, size, to);
    fputs(fl_style_end(stderr), to);
}

void fl_style_print_error(FILE *to, const char *text, size_t size)
{
    static const char mark[] = "\nstack traceback:";
    const char *traceback = memmem(text, size, mark, sizeof mark - 1);
    size_t head = traceback ? (size_t)(traceback - text) : size;
    print_part(to, FL_RED, text, head);
    if (traceback) print_part(to, FL_DIM, traceback, size - head);
    fputc('\n', to);
}
