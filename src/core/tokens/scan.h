/*
** scan.h -- the patterns by which GPT-2, LLaMA 3 and Qwen cut a text into pieces, without regular expressions.
*/
#ifndef FL_SCAN_H
#define FL_SCAN_H

#include "base/status.h"

#include <stdbool.h>

typedef struct fl_scan {
    bool gpt2;   /* a space may lead letters, digits and others; else any mark may lead letters, as LLaMA 3 has it */
    int numbers; /* at most in a row; 0: any number */
} fl_scan;

/* False: the pattern is none of those known here. */
bool fl_scan_known(fl_scan *scan, const char *pattern, size_t size);

extern const char fl_scan_gpt2[];

/* End of the piece that begins at `at` < size: the pattern's match there. The text is UTF-8. */
size_t fl_scan_next(const fl_scan *scan, const unsigned char *text, size_t size, size_t at);

#endif
