/*
** ranks.h -- ranks of a host as forked processes, for the tests of what they share.
*/
#ifndef RANKS_H
#define RANKS_H

#include "check.h"
#include "core/ranks/comm.h"
#include "core/ranks/shared.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4 };

typedef struct random_state {
    uint64_t x;
} random_state;
static inline uint64_t next_random(random_state *r)
{
    r->x += 0x9e3779b97f4a7c15u;
    uint64_t z = (r->x ^ (r->x >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static inline size_t below(random_state *r, size_t n) { return (size_t)(next_random(r) % n); }

/* ---- ranks as processes ---- */

static int pipes[MOST][MOST][2]; /* [from][to] */
static int rank, ranks;
static pid_t pids[MOST];
static unsigned char handshakes[MOST][FL_SHARED_HANDSHAKE];

/* An all-gather through pipes, around shared memory. */
static inline bool exchange(void *all, const void *mine, size_t bytes)
{
    bool good = true;
    for (int i = 0; i < ranks; i++) good &= write(pipes[rank][i][1], mine, bytes) == (ssize_t)bytes;
    for (int i = 0; i < ranks; i++)
        good &= read(pipes[i][rank][0], (char *)all + (size_t)i * bytes, bytes) == (ssize_t)bytes;
    return good;
}

static inline void barrier(void)
{
    char all[MOST], mine = 1;
    CHECK(exchange(all, &mine, 1));
}

static inline void share(void)
{
    unsigned char handshake[FL_SHARED_HANDSHAKE];
    CHECK(fl_shared_create(handshake, rank, ranks));
    CHECK(exchange(handshakes, handshake, sizeof handshake));
    for (int i = 0; i < ranks; i++) {
        bool same_host = false;
        CHECK(fl_shared_attach(i, handshakes[i], &same_host) && same_host && fl_shared_has(i));
    }
}

static inline int run_rank(void (*body)(void))
{
    fl_world_set(ranks, rank);
    fl_comm_host_ranks = ranks;
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) {
            if (i != rank) close(pipes[i][j][1]); /* so that the dead are not waited for */
            if (j != rank) close(pipes[i][j][0]);
        }
    alarm(60);
    body();
    fflush(stdout);
    return check_bad != 0;
}

static inline void start_ranks(int count, void (*body)(void))
{
    fflush(stdout);
    ranks = count;
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) CHECK(pipe(pipes[i][j]) == 0);
    for (rank = 0; rank < count; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) _exit(run_rank(body));
    }
    for (int i = 0; i < MOST; i++)
        for (int j = 0; j < MOST; j++) close(pipes[i][j][0]), close(pipes[i][j][1]);
}

static inline bool ended_well(int i)
{
    int status = 0;
    return waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline void with_ranks(int count, void (*body)(void))
{
    start_ranks(count, body);
    for (int i = 0; i < count; i++) CHECK(ended_well(i));
}

#endif
