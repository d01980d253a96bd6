/*
** plan_cache.c -- plans remembered: keys, the table, eviction of the least recently used.
**
** A key is a row of words: op, operands (meta pointers or kinds of number), then the attributes: of a shape attribute
** its value, of a value attribute only its kind. Entries own the metas in their keys, so a pointer in a key cannot come
** to mean another meta. A hit writes one thing, the time of use; the heap that finds the oldest plan learns of it only
** when a plan must go.
*/
#include "infer_internal.h"

#include <stdlib.h>

enum { BUCKETS = 2 * FL_INFER_CAPACITY };

struct entry {
    struct entry *next; /* of its bucket */
    uint64_t hash;
    uint64_t used;       /* time of the last use */
    uint64_t known_used; /* the same as the heap knows it: never later */
    fl_plan plan;
    int count;        /* of words */
    uint64_t words[]; /* those from the second on are the operands: metas owned */
};

static struct entry *buckets[BUCKETS];
static struct entry *heap[FL_INFER_CAPACITY]; /* heap by known_used, the oldest first */
static int size;
static uint64_t now;
static int64_t hits, misses;

static uint64_t *words; /* the key being looked up */
static size_t word_capacity;

/* ---- keys ---- */

/* Number of values in a shape attribute. An empty list has none, everything else at least one. */
static int values_of(const fl_signature *signature, const fl_attr *attr, int slot)
{
    if (attr->count > 0) return attr->count;
    for (int i = 0; i < signature->param_count; i++) {
        const fl_param *p = &signature->params[i];
        if (!p->is_tensor && p->slot == slot)
            return p->type != FL_ATTR_AXES && p->type != FL_ATTR_INTS && p->type != FL_ATTR_SIZES;
    }
    return 1;
}

enum { OPTION_WORDS = 3 };

static inline bool has_options(const fl_attrs *attrs)
{
    return attrs->has_dtype || attrs->is_local || attrs->has_placement;
}

/* Appends a word of the key. */
static inline uint64_t *add_word(uint64_t *at, uint64_t *hash, uint64_t word)
{
    *hash = fl_hash_mix(*hash, word);
    *at = word;
    return at + 1;
}

/* Appends the attributes' words and mixes them into the hash; returns the end. */
static inline uint64_t *add_attrs(uint64_t *at, uint64_t *hash, const fl_op *op, const fl_attrs *attrs)
{
    const fl_signature *s = fl_op_signature(op);
    for (int i = 0; i < attrs->count; i++) {
        const fl_attr *a = &attrs->at[i];
        bool valued = a->given && (s->shape_mask >> i & 1u);
        int n = valued ? values_of(s, a, i) : 0;
        at = add_word(at, hash, (uint64_t)a->given | (uint64_t)a->kind << 8 | (uint64_t)n << 16);
        for (int k = 0; k < n; k++) at = add_word(at, hash, (uint64_t)a->list[k]);
    }
    if (!has_options(attrs)) return at;
    at = add_word(at, hash,
                  (uint64_t)attrs->has_dtype | (uint64_t)attrs->is_local << 1 | (uint64_t)attrs->has_placement << 2
                      | (attrs->has_dtype ? (uint64_t)attrs->option_dtype << 8 : 0));
    at = add_word(at, hash, attrs->has_placement ? (uint64_t)(uintptr_t)attrs->placement : 0);
    return add_word(at, hash, attrs->has_placement ? fl_nd_sbp_bits(attrs->nd_sbp) : 0);
}

static fl_status reserve_words(size_t n)
{
    uint64_t *more = realloc(words, n * sizeof *words);
    if (!more) return fl_fail(FL_ERR_MEMORY, "out of memory for a call of %zu operands", n);
    words = more;
    word_capacity = n;
    return FL_OK;
}

/* ---- eviction ---- */

static void sift_down(int at)
{
    struct entry *e = heap[at];
    for (int child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && heap[child + 1]->known_used < heap[child]->known_used) child++;
        if (e->known_used <= heap[child]->known_used) break;
        heap[at] = heap[child];
    }
    heap[at] = e;
}

static void entry_free(struct entry *entry)
{
    for (int i = 0; i < entry->plan.nin; i++)
        if (entry->words[1 + i] > FL_NUM_FLOAT) fl_meta_unref((const fl_meta *)(uintptr_t)entry->words[1 + i]);
    fl_plan_release(&entry->plan);
    free(entry);
}

static void evict_oldest(void)
{
    while (heap[0]->known_used != heap[0]->used) {
        heap[0]->known_used = heap[0]->used;
        sift_down(0);
    }
    struct entry *oldest = heap[0];
    struct entry **link = &buckets[oldest->hash % BUCKETS];
    while (*link != oldest) link = &(*link)->next;
    *link = oldest->next;
    heap[0] = heap[--size];
    if (size > 0) sift_down(0);
    entry_free(oldest);
}

/* The newest entry is a leaf of the heap as it is. */
static void insert(struct entry *entry)
{
    if (size == FL_INFER_CAPACITY) evict_oldest();
    entry->next = buckets[entry->hash % BUCKETS];
    buckets[entry->hash % BUCKETS] = entry;
    heap[size++] = entry;
}

void fl_infer_clear(void)
{
    for (int i = 0; i < size; i++) entry_free(heap[i]);
    memset(buckets, 0, sizeof buckets);
    size = 0;
}

void fl_infer_set_default_dtype(fl_dtype dtype)
{
    if (dtype == fl_dtype_default) return;
    fl_dtype_default = dtype;
    fl_infer_clear();
}

void fl_infer_stats_get(fl_infer_stats *out) { *out = (fl_infer_stats){hits, misses, size}; }

/* ---- lookup ---- */

void (*fl_infer_observer)(const fl_plan *plan, const fl_operand *in, const fl_attrs *attrs, bool in_place);

/* A new plan. Of the key's words `attr_words`, behind the operands, are attributes that mean the same on all ranks. */
static fl_status remember(const fl_plan **out, uint64_t hash, int count, int attr_words, const fl_op *op,
                          const fl_operand *in, int nin, const fl_attrs *attrs, bool in_place)
{
    struct entry *e = malloc(sizeof *e + (size_t)count * sizeof *words);
    if (!e) return fl_fail(FL_ERR_MEMORY, "%s: out of memory", op->name);
    misses++;
    memcpy(e->words, words, (size_t)count * sizeof *words);
    e->count = count;
    e->hash = hash;
    fl_status status = fl_plan_build(&e->plan, op, in, nin, attrs, in_place);
    if (status == FL_OK && (status = fl_plan_note(&e->plan, in, attrs, e->words + 1 + nin, attr_words)) != FL_OK)
        fl_plan_release(&e->plan);
    if (status != FL_OK) {
        free(e);
        return status;
    }
    for (int i = 0; i < nin; i++)
        if (in[i].kind == FL_TENSOR) fl_meta_ref(in[i].tensor->meta);
    e->used = e->known_used = ++now;
    insert(e);
    *out = &e->plan;
    return FL_OK;
}

static inline bool words_equal(const uint64_t *a, const uint64_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return false;
    return true;
}

/* The words of a call. */
static inline uint64_t call_word(const fl_op *op, int nin, bool in_place)
{
    return (uint64_t)(uintptr_t)op ^ (uint64_t)nin << 48 ^ in_place;
}

static inline uint64_t operand_word(const fl_operand *in)
{
    return in->kind == FL_TENSOR ? (uint64_t)(uintptr_t)in->tensor->meta : (uint64_t)in->kind;
}

static inline void hit(const fl_plan **out, struct entry *entry, const fl_operand *in, const fl_attrs *attrs,
                       bool in_place)
{
    entry->used = ++now;
    hits++;
    *out = &entry->plan;
    if (FL_UNLIKELY(fl_infer_observer != NULL)) fl_infer_observer(&entry->plan, in, attrs, in_place);
}

/* Any call. */
static __attribute__((noinline)) fl_status find_or_make(const fl_plan **out, const fl_op *op, const fl_operand *in,
                                                        int nin, const fl_attrs *attrs, bool in_place)
{
    enum { ATTR_WORDS = FL_MAX_ATTRS * (1 + FL_MAX_NDIM) + OPTION_WORDS };
    if (FL_UNLIKELY((size_t)nin + 1 + ATTR_WORDS > word_capacity))
        FL_TRY(reserve_words(2 * (size_t)nin + 64 + ATTR_WORDS));
    uint64_t hash = 0, *at = add_word(words, &hash, call_word(op, nin, in_place));
    for (int i = 0; i < nin; i++) at = add_word(at, &hash, operand_word(&in[i]));
    bool options = attrs && has_options(attrs);
    if (attrs && (attrs->count || options)) at = add_attrs(at, &hash, op, attrs);
    int count = (int)(at - words);
    for (struct entry *e = buckets[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && e->count == count && words_equal(e->words, words, count)) {
            hit(out, e, in, attrs, in_place);
            return FL_OK;
        }
    FL_TRY(remember(out, hash, count, count - 1 - nin - (options ? OPTION_WORDS : 0), op, in, nin, attrs, in_place));
    if (fl_infer_observer) fl_infer_observer(*out, in, attrs, in_place);
    return FL_OK;
}

/* A call of one or two operands without attributes, if it is known. */
static inline struct entry *find_plain(const fl_op *op, const fl_operand *in, int nin, bool in_place)
{
    uint64_t first = call_word(op, nin, in_place), a = operand_word(&in[0]), b = nin > 1 ? operand_word(&in[1]) : 0;
    uint64_t hash = fl_hash_mix(fl_hash_mix(0, first), a);
    if (nin > 1) hash = fl_hash_mix(hash, b);
    for (struct entry *e = buckets[hash % BUCKETS]; e; e = e->next)
        if (e->words[0] == first && e->count == 1 + nin && e->words[1] == a && (nin < 2 || e->words[2] == b)) return e;
    return NULL;
}

fl_status fl_infer_plan(const fl_plan **out, const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs,
                        bool in_place)
{
    struct entry *known = NULL;
    if ((nin == 1 || nin == 2) && !(attrs && (attrs->count || has_options(attrs))))
        known = find_plain(op, in, nin, in_place);
    if (FL_UNLIKELY(!known)) return find_or_make(out, op, in, nin, attrs, in_place);
    hit(out, known, in, attrs, in_place);
    return FL_OK;
}

const fl_meta *fl_infer_result(const fl_op *op, const fl_operand *in, int nin, const fl_attrs *attrs)
{
    const fl_plan *plan;
    void (*observer)(const fl_plan *, const fl_operand *, const fl_attrs *, bool) = fl_infer_observer;
    fl_infer_observer = NULL;
    fl_status status = fl_infer_plan(&plan, op, in, nin, attrs, false);
    fl_infer_observer = observer;
    return status == FL_OK ? plan->out[0] : NULL;
}
