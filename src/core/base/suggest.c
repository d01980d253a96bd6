/*
** suggest.c -- distances of names: one for a letter too many or missing, swapped or mistyped, two for another letter,
** none for a missing number of dimensions; farther than all of these, a name that begins as the word does and goes on,
** or the other way round.
*/
#include "suggest.h"

#include <stdbool.h>
#include <string.h>

enum { WORD_LIMIT = 40, FAR = 99, PREFIX = 50, SHORT_PREFIX = 3 };

static char folded(char c) { return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* Letters that are mistaken for each other: vowels, digits, neighbours on the keyboard. */
static bool alike(char a, char b)
{
    static const char *const rows[] = {"qwertyuiop", "asdfghjkl", "zxcvbnm"};
    if (strchr("aeiouy", a) && strchr("aeiouy", b)) return true;
    if (a >= '0' && a <= '9' && b >= '0' && b <= '9') return true;
    for (int i = 0; i < 3; i++) {
        const char *p = strchr(rows[i], a), *q = strchr(rows[i], b);
        if (p && q) return p - q == 1 || q - p == 1;
    }
    return false;
}

/* Edits between a and b: one for a letter too many or missing, neighbours swapped or a letter like it, two for another
** letter; FAR when the lengths differ too much. Capitals count as small letters. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= WORD_LIMIT || m >= WORD_LIMIT || n - m > 3 || m - n > 3) return FAR;
    int rows[3][WORD_LIMIT];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    for (int j = 0; j <= m; j++) last[j] = j;
    for (int i = 1; i <= n; i++) {
        char c = folded(a[i - 1]);
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            char d = folded(b[j - 1]);
            int best = last[j - 1] + (c == d ? 0 : alike(c, d) ? 1 : 2);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && c == folded(b[j - 2]) && folded(a[i - 2]) == d && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

/* One edit for every three letters; a word with another first letter is hardly the one that was meant. */
static int distance_limit(const char *word, const char *name)
{
    int length = (int)strlen(word), limit = length / 3;
    bool same_start = folded(word[0]) == folded(name[0]);
    if (!same_start && length < 5) return 0;
    if (!same_start) return 1;
    return limit < 1 ? 1 : limit > 3 ? 3 : limit;
}

/* True if the name is the word and a number of dimensions, as conv2d is conv. */
static bool adds_dimensions(const char *word, const char *name)
{
    size_t n = strlen(word);
    return n > 1 && strncmp(word, name, n) == 0 && name[n] >= '1' && name[n] <= '9' && strcmp(name + n + 1, "d") == 0;
}

/* If one of both begins with the other: the letters of the name beyond the word, or twice those of the word beyond
** the name; FAR if neither does, or if they share so little that anything could have been meant:
** "mean_squared_error" is not a spelling of "mean". */
static int letters_beyond_prefix(const char *word, const char *name)
{
    int n = (int)strlen(word), m = (int)strlen(name), shared = n < m ? n : m;
    bool enough = n < m ? n >= SHORT_PREFIX : 2 * m >= n;
    if (!enough || n >= WORD_LIMIT || m >= WORD_LIMIT) return FAR;
    for (int i = 0; i < shared; i++)
        if (folded(word[i]) != folded(name[i])) return FAR;
    return n > m ? 2 * (n - m) : m - n;
}

int fl_suggest_distance(const char *word, const char *name)
{
    if (adds_dimensions(word, name)) return 0;
    int distance = edit_distance(word, name);
    if (distance <= distance_limit(word, name)) return distance;
    int beyond = letters_beyond_prefix(word, name);
    return beyond == FAR ? -1 : PREFIX + beyond;
}
