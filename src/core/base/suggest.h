/*
** suggest.h -- "did you mean": the distance of two names, by edits that typing errors make, or by what one has more
** than the other.
*/
#ifndef FL_SUGGEST_H
#define FL_SUGGEST_H

/* The edit distance from `word` to `name`; -1: too far for a typing error. Upper and lower case are equal. */
int fl_suggest_distance(const char *word, const char *name);

#endif
