/*
** suggest.h -- "did you mean": how far apart two names are, by edits that typing errors make, or by what one has more
** than the other.
*/
#ifndef FL_SUGGEST_H
#define FL_SUGGEST_H

/* How far it is from `word` to `name`; -1: too far for one to be meant by the other. Capitals count as small ones. */
int fl_suggest_distance(const char *word, const char *name);

#endif
