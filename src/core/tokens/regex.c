/*
** regex.c -- regular expressions by PCRE2 (see regex.h).
*/
#include "regex.h"
#include "base/on_demand.h"
#include "base/utf8.h"
#include "growing.h"

#include <pthread.h>
#include <stdlib.h>

/* The parts of pcre2.h (version 10) that are used, declared here so that building needs no package. */
enum {
    MULTILINE = 0x400,
    UCP = 0x20000,
    UTF = 0x80000,
    NO_UTF_CHECK = 0x40000000,
    JIT_COMPLETE = 1,
    NO_JIT = 0x2000,
    NO_MATCH = -1,
    JIT_STACK = -46, /* errors */
    MATCH_LIMIT = -47,
    DEPTH_LIMIT = -53,
    HEAP_LIMIT = -63
};

static struct {
    void *(*compile)(const unsigned char *, size_t, uint32_t, int *, size_t *, void *);
    int (*jit_compile)(void *, uint32_t);
    void (*code_free)(void *);
    void *(*data_create)(uint32_t, void *);
    void (*data_free)(void *);
    int (*match)(const void *, const unsigned char *, size_t, size_t, uint32_t, void *, void *);
    size_t *(*ovector)(void *);
    void *(*context_create)(void *);
    void (*context_free)(void *);
    int (*set_match_limit)(void *, uint32_t);
    int (*set_heap_limit)(void *, uint32_t);
    int (*error_text)(int, unsigned char *, size_t);
} pcre;

static fl_on_demand library = {
    {"libpcre2-8.so.0", "libpcre2-8.so"},
    "libpcre2-8-0",
    FL_ON_DEMAND_TABLE(pcre, "pcre2_compile_8", "pcre2_jit_compile_8", "pcre2_code_free_8", "pcre2_match_data_create_8",
                       "pcre2_match_data_free_8", "pcre2_match_8", "pcre2_get_ovector_pointer_8",
                       "pcre2_match_context_create_8", "pcre2_match_context_free_8", "pcre2_set_match_limit_8",
                       "pcre2_set_heap_limit_8", "pcre2_get_error_message_8")};

static fl_status pcre_open(void)
{
    fl_status status = fl_on_demand_open(&library);
    return status == FL_OK ? FL_OK : fl_fail_prefix(status, "regular expressions: ");
}

/* ---- from Oniguruma's meaning to PCRE2's ---- */

#define SPACES "\\t-\\r\\x{85}\\p{Z}"
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define OLDER_WORDS "\\p{L}\\p{M}\\p{N}\\p{Pc}" /* before version 10.40 */

struct translation {
    fl_text out;
    const char *words;
    bool in_set;
};

static fl_status put(struct translation *translation, const char *text)
{
    return fl_text_add(&translation->out, text, strlen(text));
}

/* A set of characters, or (not) all others. */
static fl_status put_set(struct translation *translation, const char *set, bool others)
{
    if (!translation->in_set) FL_TRY(put(translation, others ? "[^" : "["));
    FL_TRY(put(translation, set));
    return translation->in_set ? FL_OK : put(translation, "]");
}

/* The escape whose letter is at `at`. Negated sets within a set keep PCRE2's meaning, which is nearly the same. */
static fl_status put_escape(struct translation *translation, const char *at, size_t left)
{
    char plain[3] = {'\\', *at, 0};
    bool others = *at >= 'A' && *at <= 'Z';
    if (!(others && translation->in_set)) {
        if (*at == 's' || *at == 'S') return put_set(translation, SPACES, others);
        if (*at == 'w' || *at == 'W') return put_set(translation, translation->words, others);
        if (*at == 'h' || *at == 'H') return put_set(translation, "0-9A-Fa-f", others);
    }
    if (*at == 'u' && left > 4) return put(translation, "\\x"); /* the caller copies four digits in braces */
    return put(translation, plain);
}

static fl_status refuse(size_t at, const char *what)
{
    return fl_fail(FL_ERR_VALUE, "the pattern is not supported: %s at byte %zu", what, at + 1);
}

/* A character of a set, other than an escape. */
static fl_status check_set(const char *pattern, size_t size, size_t i)
{
    if (pattern[i] == '&' && i + 1 < size && pattern[i + 1] == '&') return refuse(i, "an intersection of sets");
    if (pattern[i] == '[' && !(i + 1 < size && pattern[i + 1] == ':')) return refuse(i, "a set within a set");
    return FL_OK;
}

/* True if the pattern's byte i ends an interval, as {1,3}; \x{85} is none. */
static bool ends_interval(const char *pattern, size_t i)
{
    size_t at = i;
    if (pattern[i] != '}') return false;
    while (at > 0 && ((pattern[at - 1] >= '0' && pattern[at - 1] <= '9') || pattern[at - 1] == ',')) at--;
    return at > 1 && at < i && pattern[at - 1] == '{'
        && !(at > 2 && pattern[at - 3] == '\\' && pattern[at - 2] != '\\');
}

static fl_status translate(struct translation *translation, const char *pattern, size_t size)
{
    size_t set_start = 0;
    for (size_t i = 0; i < size; i++) {
        char c = pattern[i];
        if (c == '\\' && i + 1 < size) {
            i++;
            FL_TRY(put_escape(translation, pattern + i, size - i));
            if (pattern[i] != 'u' || size - i <= 4) continue;
            FL_TRY(put(translation, "{"));
            FL_TRY(fl_text_add(&translation->out, pattern + i + 1, 4));
            FL_TRY(put(translation, "}"));
            i += 4;
            continue;
        }
        if (translation->in_set) {
            FL_TRY(check_set(pattern, size, i));
            if (c == '[') { /* [:alpha:] */
                const char *end = memchr(pattern + i, ']', size - i);
                size_t length = end ? (size_t)(end + 1 - (pattern + i)) : 1;
                FL_TRY(fl_text_add(&translation->out, pattern + i, length));
                i += length - 1;
                continue;
            }
            if (c == ']' && i > set_start) translation->in_set = false;
        } else if (c == '[') {
            translation->in_set = true;
            set_start = i + 1 + (i + 1 < size && pattern[i + 1] == '^');
        } else if (c == '+' && i > 0 && ends_interval(pattern, i - 1)) return refuse(i, "an interval followed by +");
        FL_TRY(fl_text_add(&translation->out, &c, 1));
    }
    return FL_OK;
}

/* ---- expressions ---- */

struct fl_regex {
    void *code;
};

static fl_status fail_compile(int code, size_t at)
{
    unsigned char text[160];
    if (pcre.error_text(code, text, sizeof text) < 0) text[0] = 0;
    return fl_fail(FL_ERR_VALUE, "the pattern is wrong: %s (at byte %zu of it)", (char *)text, at);
}

/* NULL: it does not compile, with the code of the error. */
static void *compile(const fl_text *text, int *code, size_t *at)
{
    void *made = pcre.compile(text->data, text->size, UTF | UCP | MULTILINE, code, at, NULL);
    if (made) (void)pcre.jit_compile(made, JIT_COMPLETE); /* without it matches are only slower */
    return made;
}

static fl_status regex_compile(void **made, const char *pattern, size_t size)
{
    int code = 0;
    size_t at = 0;
    const char *const words[] = {WORDS, OLDER_WORDS};
    *made = NULL;
    for (int i = 0; i < 2 && !*made; i++) {
        struct translation t = {.words = words[i]};
        fl_status status = translate(&t, pattern, size);
        if (status == FL_OK) status = fl_text_add(&t.out, "", 1);
        t.out.size -= t.out.size > 0;
        if (status == FL_OK) *made = compile(&t.out, &code, &at);
        fl_text_free(&t.out);
        FL_TRY(status);
    }
    return *made ? FL_OK : fail_compile(code, at);
}

fl_status fl_regex_new(fl_regex **out, const char *pattern, size_t size)
{
    void *code;
    FL_TRY(pcre_open());
    FL_TRY(regex_compile(&code, pattern, size));
    fl_regex *regex = malloc(sizeof *regex);
    if (!regex) {
        pcre.code_free(code);
        return fl_fail(FL_ERR_MEMORY, "out of memory");
    }
    regex->code = code;
    *out = regex;
    return FL_OK;
}

void fl_regex_free(fl_regex *regex)
{
    if (regex) pcre.code_free(regex->code);
    free(regex);
}

/* Of a thread: where a match is written, and the limits of matching. */
struct matcher {
    void *data, *context;
};
static pthread_key_t matcher_key;
static pthread_once_t matcher_once = PTHREAD_ONCE_INIT;

static void matcher_free(void *value)
{
    struct matcher *m = value;
    if (m->data) pcre.data_free(m->data);
    if (m->context) pcre.context_free(m->context);
    free(m);
}

static void matcher_make_key(void) { (void)pthread_key_create(&matcher_key, matcher_free); }

enum { HEAP_KIB = 256 << 10 };

static struct matcher *matcher(void)
{
    pthread_once(&matcher_once, matcher_make_key);
    struct matcher *m = pthread_getspecific(matcher_key);
    if (m) return m;
    if (!(m = calloc(1, sizeof *m))) return NULL;
    m->data = pcre.data_create(1, NULL);
    m->context = pcre.context_create(NULL);
    if (!m->data || !m->context || pthread_setspecific(matcher_key, m) != 0) {
        matcher_free(m);
        return NULL;
    }
    (void)pcre.set_heap_limit(m->context, HEAP_KIB);
    return m;
}

/* Most steps of backtracking in a match: usual patterns take a few per byte. */
static uint32_t match_limit(size_t size) { return 1000000 + (size < 100000000 ? 8 * (uint32_t)size : 800000000); }

fl_status fl_regex_find(size_t *begin, size_t *end, const fl_regex *regex, const unsigned char *text, size_t size,
                        size_t from)
{
    struct matcher *m = matcher();
    if (!m) return fl_fail(FL_ERR_MEMORY, "out of memory");
    (void)pcre.set_match_limit(m->context, match_limit(size));
    int code = pcre.match(regex->code, text, size, from, NO_UTF_CHECK, m->data, m->context);
    if (code == JIT_STACK) code = pcre.match(regex->code, text, size, from, NO_UTF_CHECK | NO_JIT, m->data, m->context);
    if (code == MATCH_LIMIT || code == DEPTH_LIMIT || code == HEAP_LIMIT)
        return fl_fail(FL_ERR_VALUE, "the pattern backtracks too much on this text, at byte %zu", from + 1);
    if (code < 0 && code != NO_MATCH) return fl_fail(FL_ERR_VALUE, "the pattern cannot be matched (PCRE2: %d)", code);
    *begin = *end = size + 1;
    if (code < 0) return FL_OK;
    const size_t *found = pcre.ovector(m->data);
    *begin = found[0];
    *end = found[1] < found[0] ? found[0] : found[1]; /* \K may set the beginning behind the end */
    return FL_OK;
}

/* ---- classes of characters ---- */

enum { PAGES = 0x110000 / 256, PAGE_TEXT = 256 * 4 };

static const struct {
    const char *pattern;
    uint8_t class;
} classes[] = {
    {"\\p{L}+", FL_CHAR_LETTER},      {"\\p{N}+", FL_CHAR_NUMBER},       {"\\s+", FL_CHAR_SPACE},
    {"\\p{P}+", FL_CHAR_PUNCTUATION}, {FL_REGEX_WORD "+", FL_CHAR_WORD},
};
enum { CLASSES = sizeof classes / sizeof *classes };

static fl_regex *class_regex[CLASSES];
static uint8_t *pages[PAGES]; /* atomic */

static void classes_make(void)
{
    for (int i = 0; i < CLASSES; i++)
        if (fl_regex_new(&class_regex[i], classes[i].pattern, strlen(classes[i].pattern)) != FL_OK) return;
}

fl_status fl_char_classes_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    FL_TRY(pcre_open());
    pthread_once(&once, classes_make);
    return class_regex[CLASSES - 1] ? FL_OK : fl_fail(FL_ERR_MEMORY, "out of memory");
}

/* The characters of a page as text, with the number within the page of the one that begins at each byte. */
static size_t page_text(unsigned char *text, uint8_t *number, int page)
{
    size_t size = 0;
    for (int i = 0; i < 256; i++) {
        int32_t code = page * 256 + i;
        if (code >= 0xd800 && code < 0xe000) continue;
        number[size] = (uint8_t)i;
        size += (size_t)fl_utf8_write(text + size, code);
    }
    return size;
}

static bool page_fill(uint8_t *page, int index)
{
    unsigned char text[PAGE_TEXT];
    uint8_t number[PAGE_TEXT];
    size_t size = page_text(text, number, index), begin, end;
    for (int i = 0; i < CLASSES; i++)
        for (size_t at = 0; at < size; at = end) {
            if (fl_regex_find(&begin, &end, class_regex[i], text, size, at) != FL_OK) return false;
            for (size_t j = begin; j < end && j < size; j++)
                if ((text[j] & 0xc0) != 0x80) page[number[j]] |= classes[i].class;
        }
    return true;
}

const uint8_t *fl_char_page(int index)
{
    uint8_t *page = __atomic_load_n(&pages[index], __ATOMIC_ACQUIRE), *other = NULL;
    if (page) return page;
    page = calloc(1, 256);
    if (!page || !page_fill(page, index)) {
        free(page);
        return NULL;
    }
    if (__atomic_compare_exchange_n(&pages[index], &other, page, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return page;
    free(page);
    return other;
}

#define P FL_CHAR_PUNCTUATION
#define W FL_CHAR_WORD
#define S FL_CHAR_SPACE
#define Y FL_CHAR_SYMBOL
#define N (FL_CHAR_NUMBER | W)
#define L (FL_CHAR_LETTER | W)
const uint8_t fl_char_ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* controls */
    S, P, P, P, Y, P, P, P, P, P, P, Y, P, P, P, P, N, N, N, N, N, N, N, N, N, N, P, P, Y, Y, Y, P, /* space, digits */
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, P, P, Y, P | W, /* A to _ */
    Y, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, Y, P, Y, 0,     /* a to ~ */
};
