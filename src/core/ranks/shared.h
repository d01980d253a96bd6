/*
** shared.h -- memory that all ranks of a host map: arenas, journals, channels.
**
** Every rank makes one arena: a sparse anonymous file (memfd) of which all other ranks of the host have a mapping.
** Host storage comes from it (storage.c), so a collective reads and writes the peers' tensors where they are. The
** first pages of the arena hold the rank's journal and its directory of channels. Nothing is left behind when the
** processes end, however they end. Knows no MPI: the transport exchanges the handshakes.
**
** Without shared memory (world size 1, other hosts, FLOW_SHARED=0) fl_shared_has is false for all ranks and
** storage comes from private memory as ever.
*/
#ifndef FL_SHARED_H
#define FL_SHARED_H

#include "comm.h"

/* ---- starting ---- */

enum { FL_SHARED_HANDSHAKE = 128 };

/* Makes this rank's arena and writes a handshake by which ranks of the same host find it. false: not possible here. */
bool fl_shared_create(void *handshake, int rank, int world_size);

/* Maps the arena of another rank. false: it is on another host or cannot be opened; *same_host tells which. */
bool fl_shared_attach(int rank, const void *handshake, bool *same_host);

/* Gives all of it up again (not all ranks of the host could attach). Before any storage was taken from the arena. */
void fl_shared_stop(void);

/* Is rank's memory mapped here? True for this rank itself when it has an arena. */
bool fl_shared_has(int rank);

/* An anonymous file that only this user can open and that cannot be executed, closed on exec; -1 and errno. */
int fl_shared_memfd(const char *name);

/* ---- a lock among the ranks of this host ---- */

/* false: not held, because nothing is shared, this thread holds it already, or another rank has held it for five
** seconds (it was stopped). A rank that dies releases it. */
bool fl_shared_lock(void);
void fl_shared_unlock(void);

/* ---- the arena (script's thread) ---- */

/* 64-byte aligned (2 MiB from 2 MiB on); NULL when there is no arena or no room. Zero-filled only when fresh. Has its
** pages already where the kernel can make huge ones. */
void *fl_arena_take(size_t bytes);

/* Back to the arena, with the bytes asked for; huge pages that are free as a whole go back to the system. */
void fl_arena_give(void *data, size_t bytes);

/* Does data lie in this rank's arena? */
bool fl_arena_owns(const void *data);

/* Where what lies at `data` in this rank's arena is found by peers, and where rank's is found here. */
uint64_t fl_shared_offset(const void *data);
void *fl_shared_address(int rank, uint64_t offset);

/* ---- journals: what each rank is doing, readable by its peers even when it is dead ---- */

typedef enum fl_rank_state {
    FL_RANK_STARTING,
    FL_RANK_RUNNING,
    FL_RANK_ENDED,  /* the script is through */
    FL_RANK_FAILED, /* `message` says how */
    FL_RANK_STOPPED /* the launcher ends it, because the job ends */
} fl_rank_state;

typedef struct fl_journal {
    int32_t rank, pid;
    int32_t state; /* fl_rank_state */
    int32_t reporter,
        reported;             /* atomic; of the host's first rank: who tells the user how the job failed (failure.c) */
    int64_t op;               /* of the last op dispatched: FL_JOURNAL_PLACE of its descriptor; 0: none yet */
    uint64_t ops;             /* dispatched so far: progress that a wait can see */
    uint64_t meetings;        /* collectives entered so far, of all groups */
    uint64_t evaluations;     /* lines of a session that this rank is through with */
    fl_collective collective; /* the last collective entered */
    int32_t listens;          /* SIGUSR2 asks this rank for its line */
    uint32_t answers;         /* atomic: given so far */
    char line[FL_WHERE_TEXT]; /* the last answer */
    uint64_t meeting;         /* atomic; it waits there for the others: its number, of `meetings`; 0: it does not */
    uint64_t sequence;        /* of that meeting in its group */
    uint64_t
        /* atomic; offset of this rank's side of the channel it waits in; 0: it is not in shared memory, or the
        ** others may take any time */
        channel;
    uint64_t stuck;     /* atomic; its last meeting that it found to be in a deadlock */
    char message[1024]; /* when failed: what follows "rank 2": ": train.lua:31: attempt to ..." */
} fl_journal;

/* This rank's, never NULL (a private one when there is no arena). */
extern fl_journal *fl_journal_own;

/* Where a descriptor lies in the program: the same number on all ranks, wherever the program was loaded. */
#define FL_JOURNAL_PLACE(op) ((const char *)(op) - (const char *)&fl_journal_own)

/* Another rank's; NULL when it is on another host. */
const fl_journal *fl_journal_of(int rank);

/* That of the first rank on this host, which keeps what concerns them all. Never NULL: without shared memory this
** rank's. */
fl_journal *fl_journal_first(void);

/* Name of the last op that a journal's rank dispatched, NULL before the first. All ranks run the same program file, so
** a descriptor lies at the same distance from the program's start. */
const char *fl_journal_op(const fl_journal *j);

/* Where a journal's rank is: ", in all-gather of float32[8], S(0) -> B (train.lua:44); its last op is matmul"; "" when
** it tells nothing. A signal handler may ask. */
enum { FL_RANK_PLACE_TEXT = FL_COLLECTIVE_TEXT + 64 };
const char *fl_rank_place_text(char *buffer, const fl_journal *j);

/* Has the process of a rank of this host ended? A signal handler may ask. */
bool fl_rank_is_dead(int rank);

/* ---- channels: where a group meets ---- */

typedef struct fl_channel fl_channel;

/* A wait that fails is the end of its channel: whoever waits in it or comes later gets the same error, word for
** word. */

/* The channel of a group whose members are all mapped here; `out` is &g->channel. Waits until every member has opened
** it. */
fl_status fl_channel_open(fl_channel **out, fl_group *g);

/* Publishes the entry with its data (copied) and returns when every member has entered its meeting of the same
** number (mine->sequence). */
fl_status fl_channel_enter(fl_channel *c, const fl_entry *mine, const void *data, size_t bytes, unsigned flags);

/* What member i showed: valid until this rank enters the next meeting, even when i is there already. */
const fl_entry *fl_channel_entry(const fl_channel *c, int i);
const void *fl_channel_data(const fl_channel *c, int i);

/* Waits until every member has called it after the last enter (and after each leave before): whatever was read or
** written in between is finished. Ctrl-C does not end that. May be called several times in one meeting: steps of an
** algorithm. */
fl_status fl_channel_leave(fl_channel *c);

/* What a rank waits in, as its journal says. */
typedef struct fl_standing {
    uint64_t meeting;        /* its number on that rank; 0: it waits in none, or in one that is not in shared memory */
    uint64_t hash, sequence; /* of the group, and of the meeting in it */
    const int32_t *ranks;    /* [count], of the group; in that rank's arena */
    int count;
    fl_collective collective;
} fl_standing;
void fl_channel_standing(fl_standing *out, int rank);

/* Has a member of that group not entered that meeting? */
bool fl_channel_lacks(const fl_standing *s, int rank);

/* How many leaves this rank has counted; from now on it counts from `number`, as all members do before they meet
** again. */
uint64_t fl_channel_counted(const fl_channel *c);
void fl_channel_reset(fl_channel *c, uint64_t number);

#endif
