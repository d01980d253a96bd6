/*
** suggest.c -- "did you mean": the known name nearest to an unknown one.
*/
#include "errors.h"

#include <stdio.h>
#include <string.h>

void fl_suggest_offer(fl_suggestion *suggestion, const char *name)
{
    bool renamed = fl_lua_is_renamed(suggestion->word, name);
    int distance = renamed ? -1 : fl_suggest_distance(suggestion->word, name);
    if (!renamed && distance < 0) return;
    if (!suggestion->best || distance < suggestion->distance
        || (distance == suggestion->distance && strcmp(name, suggestion->best) < 0)) {
        suggestion->best = name;
        suggestion->distance = distance;
    }
}

const char *fl_suggest_text(char *buffer, const fl_suggestion *suggestion)
{
    const char *advice = suggestion->place ? fl_lua_advice(suggestion->place, suggestion->word) : NULL;
    const char *best = suggestion->best, *elsewhere = suggestion->elsewhere;
    buffer[0] = 0;
    if (advice) snprintf(buffer, FL_SUGGEST_TEXT, "%s%s", *advice ? "; " : "", advice);
    else if (best && suggestion->distance < 0) snprintf(buffer, FL_SUGGEST_TEXT, "; it is called '%s' here", best);
    else if (best && elsewhere) snprintf(buffer, FL_SUGGEST_TEXT, "; did you mean '%s', or %s?", best, elsewhere);
    else if (elsewhere) snprintf(buffer, FL_SUGGEST_TEXT, "; write %s", elsewhere);
    else if (best) snprintf(buffer, FL_SUGGEST_TEXT, "; did you mean '%s'?", best);
    return buffer;
}
