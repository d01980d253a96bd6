/*
** suggest.h -- "did you mean": how far apart two names are, by edits that typing errors make.
*/
#ifndef FL_SUGGEST_H
#define FL_SUGGEST_H

/* Edits from `word` to `name`; -1: too many for one to be meant by the other. Capitals count as small letters. */
int fl_suggest_distance(const char *word, const char *name);

#endif
