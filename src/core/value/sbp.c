/*
** sbp.c -- SBPs as text, and made from others.
*/
#include "sbp.h"
#include "base/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fl_nd_sbp fl_nd_sbp_fill(fl_sbp sbp, int n)
{
    fl_nd_sbp all = {.n = (uint8_t)n};
    for (int k = 0; k < n; k++) all.at[k] = sbp;
    return all;
}

fl_nd_sbp fl_nd_sbp_reduced(fl_nd_sbp nd_sbp)
{
    for (int k = 0; k < nd_sbp.n; k++)
        if (fl_sbp_is_partial(nd_sbp.at[k])) nd_sbp.at[k] = FL_B;
    return nd_sbp;
}

bool fl_sbp_parse(fl_sbp *out, const char *text, int ndim)
{
    static const struct {
        const char *text;
        fl_sbp sbp;
    } words[] = {
        {"B", FL_B}, {"P", FL_PSUM}, {"P(sum)", FL_PSUM}, {"P(max)", FL_PMAX}, {"P(min)", FL_PMIN},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i].text) == 0) {
            *out = words[i].sbp;
            return true;
        }
    if (text[0] != 'S' || text[1] != '(') return false;
    char *end;
    long axis = strtol(text + 2, &end, 10);
    if (end == text + 2 || strcmp(end, ")") != 0) return false;
    if (axis < 0 && ndim > 0) axis += ndim;
    if (axis < 0 || axis >= FL_MAX_NDIM) return false;
    *out = FL_S((int)axis);
    return true;
}

const char *fl_sbp_text(char *buffer, fl_sbp sbp)
{
    if (fl_sbp_is_split(sbp)) snprintf(buffer, FL_SBP_TEXT, "S(%d)", sbp);
    else
        snprintf(buffer, FL_SBP_TEXT, "%s",
                 sbp == FL_B          ? "B"
                     : sbp == FL_PSUM ? "P"
                     : sbp == FL_PMAX ? "P(max)"
                                      : "P(min)");
    return buffer;
}

const char *fl_nd_sbp_text(char *buffer, fl_nd_sbp nd_sbp)
{
    if (nd_sbp.n == 1) return fl_sbp_text(buffer, nd_sbp.at[0]);
    size_t n = (size_t)snprintf(buffer, FL_ND_SBP_TEXT, "(");
    for (int k = 0; k < nd_sbp.n; k++) {
        char one[FL_SBP_TEXT];
        n += (size_t)snprintf(buffer + n, FL_ND_SBP_TEXT - n, k ? ", %s" : "%s", fl_sbp_text(one, nd_sbp.at[k]));
    }
    snprintf(buffer + n, FL_ND_SBP_TEXT - n, ")");
    return buffer;
}

const char *fl_nd_sbp_source(char *buffer, fl_nd_sbp nd_sbp)
{
    size_t n = 0;
    for (int k = 0; k < nd_sbp.n; k++) {
        char one[FL_SBP_TEXT];
        n += (size_t)snprintf(buffer + n, FL_ND_SBP_SOURCE - n, "%s\"%s\"%s",
                              k                  ? ", "
                                  : nd_sbp.n > 1 ? "{"
                                                 : "",
                              fl_sbp_text(one, nd_sbp.at[k]), nd_sbp.n > 1 && k + 1 == nd_sbp.n ? "}" : "");
    }
    return buffer;
}

fl_nd_sbp fl_nd_sbp_fit(fl_nd_sbp nd_sbp, int n)
{
    fl_nd_sbp fit = fl_nd_sbp_fill(FL_B, n);
    memcpy(fit.at, nd_sbp.at, (size_t)(nd_sbp.n < n ? nd_sbp.n : n) * sizeof *nd_sbp.at);
    return fit;
}
