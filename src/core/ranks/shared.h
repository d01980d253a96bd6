/*
** shared.h -- memory that all ranks of a host map.
**
** Every rank makes one arena (memory/arena.h) of which all other ranks of the host have a mapping. Host storage comes
** from it, so a collective reads and writes the peers' tensors where they are. The first page of the arena holds the
** rank's journal (journal.h) and its directory of channels (channel.h). Nothing is left behind when the processes end,
** however they end. Knows no MPI: the transport exchanges the handshakes.
**
** Without shared memory (world size 1, other hosts, FLOW_SHARED=0) fl_shared_has is false for all ranks and
** storage comes from private memory as ever.
*/
#ifndef FL_SHARED_H
#define FL_SHARED_H

#include <stdbool.h>
#include <stdint.h>

/* ---- starting ---- */

enum { FL_SHARED_HANDSHAKE = 128 };

/* Makes this rank's arena and writes a handshake by which ranks of the same host find it. false: not possible here. */
bool fl_shared_create(void *handshake, int rank, int world_size);

/* Maps the arena of another rank. false: it is on another host or cannot be opened; *same_host: which of the two. */
bool fl_shared_attach(int rank, const void *handshake, bool *same_host);

/* Gives all of it up again (not all ranks of the host could attach). Before any storage was taken from the arena. */
void fl_shared_stop(void);

/* True if the arena of the rank is mapped here; also for this rank itself, if it has one. */
bool fl_shared_has(int rank);

/* True if the process of a rank of this host has ended. Async-signal-safe. */
bool fl_rank_is_dead(int rank);

/* ---- a lock among the ranks of this host ---- */

/* false: not held, because nothing is shared, this thread holds it already, or another rank has held it for five
** seconds (it was stopped). A rank that dies releases it. */
bool fl_shared_lock(void);
void fl_shared_unlock(void);

/* ---- addresses ---- */

/* The offset of `data` in this rank's arena, as peers use it; the address here of an offset in rank's arena. */
uint64_t fl_shared_offset(const void *data);
void *fl_shared_address(int rank, uint64_t offset);

#endif
