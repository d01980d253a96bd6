/*
** launch.c -- joining the other ranks at the start, leaving them at the end.
**
** A program that a rank starts inherits the launcher's environment and would pass for that rank a second time. So a
** rank notes in FLOW_JOINED which process has joined which job: another process that reads the same job there runs
** alone, while the ranks of a job of its own (a nested mpirun) do not.
*/
#define _GNU_SOURCE
#include "launch.h"
#include "cpu/cpu.h"
#include "engine/control.h"
#include "engine/engine.h"
#include "output.h"
#include "base/plugin.h"
#include "value/random.h"
#include "journal.h"
#include "shared.h"
#include "testing.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the launcher's environment ---- */

static const char *given(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

bool fl_launched(int *ranks)
{
    const char *size = given("OMPI_COMM_WORLD_SIZE");
    if (ranks) *ranks = size ? atoi(size) : 0;
    return size != NULL || given("PMIX_RANK") != NULL;
}

static int parent_of(int pid)
{
    char path[32], text[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* A launcher puts each rank into a process group: it is the nearest ancestor outside of it. */
int fl_launcher(void)
{
    int pid = (int)getppid();
    while (pid > 1 && getpgid(pid) == getpgrp()) pid = parent_of(pid);
    return pid;
}

/* Launchers and the variables they set for each process: launchers without a protocol that Open MPI understands, and
** the mpirun of another Open MPI. The nearest one to the process is first, a count of one host's ranks last.
** SLURM_NTASKS is no sign: a batch script has it too. */
static const struct launcher {
    const char *size, *rank, *job, *instead;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid",
     "the mpirun of the Open MPI that flowlua runs with, or by flowlua --ranks N"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_ID", "mpirun, or by srun --mpi=pmix where Open MPI has PMIx"},
    {"PMI_SIZE", "PMI_RANK", "PMI_JOBID", "the mpirun of Open MPI"},
    {"PALS_NRANKS", "PALS_RANKID", "PALS_APID", "the mpirun of Open MPI"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "PMI_ID", "the mpirun of Open MPI"},
    {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_ID", "the mpirun of Open MPI"},
    {"MPI_LOCALNRANKS", "MPI_LOCALRANKID", "PMI_JOBID", "the mpirun of Open MPI"},
};

/* A PMIx server that Open MPI cannot reach gives no size; its rank 1 shows that there are several, and prints the
** warning. */
static const struct launcher pmix = {"PMIX_RANK", NULL, "PMIX_NAMESPACE",
                                     "the mpirun of Open MPI, or by srun --mpi=pmix where Open MPI has PMIx"};

/* The launcher that started several processes, of which this is one; NULL: none is known. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *size = given(launchers[i].size);
        if (size && atoi(size) > 1) return &launchers[i];
    }
    return given(pmix.size) && atoi(given(pmix.size)) == 1 ? &pmix : NULL;
}

/* "job/process" of this process */
enum { JOINED_TEXT = 256 };
static void joined_text(char *text, long process)
{
    const struct launcher *other = find_launcher();
    const char *job = given("PMIX_NAMESPACE");
    if (!job && other) job = given(other->job);
    snprintf(text, JOINED_TEXT, "%.200s/%ld", job ? job : "", process);
}

/* True if a process above this one has already joined the job as this rank. */
static bool joined_by_parent(void)
{
    char mine[JOINED_TEXT];
    const char *joined = given("FLOW_JOINED"), *slash = joined ? strrchr(joined, '/') : NULL;
    if (!slash) return false;
    joined_text(mine, (long)getpid());
    size_t job = (size_t)(slash - joined);
    return strncmp(joined, mine, job + 1) == 0 && strcmp(joined, mine) != 0;
}

static void note_joined(void)
{
    char text[JOINED_TEXT];
    joined_text(text, (long)getpid());
    setenv("FLOW_JOINED", text, 1);
}

/* A process's place as its launcher's environment has it. Open MPI changes the environment of one that it cannot join
** to others. */
struct start {
    const struct launcher *launcher; /* NULL: of several processes nothing is known */
    int size;
    bool warns; /* prints the warning: rank 0, or a process that was given no rank */
};

static struct start read_start(void)
{
    const struct launcher *l = find_launcher();
    if (!l) return (struct start){0};
    const char *rank = l->rank ? given(l->rank) : NULL;
    return (struct start){l, atoi(given(l->size)), !rank || atoi(rank) == 0};
}

/* Words what is wrong with these processes. */
enum { ALONE_TEXT = 512 };
static const char *alone_text(char *buffer, const struct start *start)
{
    snprintf(buffer, ALONE_TEXT,
             "%s is %d, but these processes cannot join each other and each runs alone as rank 0 of 1; start them by "
             "%s",
             start->launcher->size, start->size, start->launcher->instead);
    return buffer;
}

/* Prints that this process runs alone though a launcher started several: once for all of them, where they were given
** ranks, and in no program that one of them starts. */
static void warn_alone(const struct start *start)
{
    if (!start->launcher || joined_by_parent()) return;
    note_joined();
    char text[ALONE_TEXT];
    if (start->warns) fl_warn("%s", alone_text(text, start));
}

#ifdef __SANITIZE_ADDRESS__
/* Asked by the leak sanitizer at the end. Open MPI keeps memory until then, in modules that are no longer loaded. */
FL_EXPORT int __lsan_is_turned_off(void);
FL_EXPORT int __lsan_is_turned_off(void) { return getenv("OMPI_COMM_WORLD_SIZE") != NULL; }
#endif

/* ---- cores ---- */

enum { MAX_CORES = CPU_SETSIZE };

struct core {
    int package, number, cpu;
};

static int read_topology(int cpu, const char *what)
{
    char path[128];
    int value = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%d", &value) != 1) value = 0;
    fclose(file);
    return value;
}

/* Neighbours share as much as possible: threads of a core lie side by side, cores of a package too. */
static int compare_cores(const void *a, const void *b)
{
    const struct core *x = a, *y = b;
    if (x->package != y->package) return x->package < y->package ? -1 : 1;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

/* The cores that the machine and the cgroup allow, whatever the launcher bound this process to. */
static int allowed_cores(struct core *cores)
{
    cpu_set_t set;
    int count = 0;
    memset(&set, 0xff, sizeof set);
    if (sched_setaffinity(0, sizeof set, &set) != 0 || sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    for (int cpu = 0; cpu < MAX_CORES; cpu++)
        if (CPU_ISSET(cpu, &set))
            cores[count++] = (struct core){read_topology(cpu, "physical_package_id"), read_topology(cpu, "core_id"),
                                           cpu};
    qsort(cores, (size_t)count, sizeof *cores, compare_cores);
    return count;
}

void fl_launch_share(int *first, int *many, int cores, int count, int index)
{
    bool enough = count <= cores;
    *first = enough ? (int)((int64_t)cores * index / count) : 0;
    *many = enough ? (int)((int64_t)cores * (index + 1) / count) - *first : cores;
}

/* Binds this process to its share; returns the number of cores it has to itself, 0 when ranks must share cores. */
static int bind_cores(int ranks, int index)
{
    static struct core cores[MAX_CORES];
    cpu_set_t set;
    int first, many, count = allowed_cores(cores);
    if (ranks > count) return 0;
    fl_launch_share(&first, &many, count, ranks, index);
    CPU_ZERO(&set);
    for (int i = first; i < first + many; i++) CPU_SET(cores[i].cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    return many;
}

static bool in_host; /* another program's process: its cores and its streams are not touched */
static bool host_chose_threads;

/* Cores that a rank in a host has to itself: those the launcher bound it to, or its share of all; 0: none. */
static int host_cores(int ranks)
{
    static struct core cores[MAX_CORES];
    cpu_set_t bound, all;
    if (sched_getaffinity(0, sizeof bound, &bound) != 0) return 0;
    int count = allowed_cores(cores), own = CPU_COUNT(&bound); /* changes the set: it is put back */
    sched_getaffinity(0, sizeof all, &all);
    sched_setaffinity(0, sizeof bound, &bound);
    return own < CPU_COUNT(&all) ? own : count / ranks;
}

/* ---- agreeing ---- */

/* The facts that each rank sends to the others. */
struct offer {
    char handshake[FL_SHARED_HANDSHAKE];
    char host[64];
    uint64_t seed;
    int32_t level;
    bool shares; /* has an arena and a handshake */
};

struct rank_setting {
    int32_t threads;
    bool cannot_share; /* a peer of this host could not be attached */
};

static int own_cores = 1; /* number of cores that this process has to itself */

/* FLOW_SHARED=0 turns the memory that ranks of one host share off. */
static bool may_share(int rank)
{
    const char *text = given("FLOW_SHARED");
    if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0 && rank == 0)
        fl_warn("FLOW_SHARED=%s is neither 0 nor 1; using 1", text);
    return !text || strcmp(text, "0") != 0;
}

static void make_offer(struct offer *mine, const fl_transport *transport)
{
    memset(mine, 0, sizeof *mine);
    gethostname(mine->host, sizeof mine->host - 1);
    mine->seed = fl_generator_current()->seed;
    mine->level = fl_cpu_level();
    mine->shares = may_share(transport->rank) && fl_shared_create(mine->handshake, transport->rank, transport->size);
}

/* Ranks on this rank's host and its position among them. */
static void count_host(int *ranks, int *index, const struct offer *all, const fl_transport *transport)
{
    *ranks = *index = 0;
    for (int r = 0; r < transport->size; r++) {
        if (strcmp(all[r].host, all[transport->rank].host) != 0) continue;
        *index += r < transport->rank;
        ++*ranks;
    }
}

/* Maps the memory of the ranks of this host; false: some of them cannot be mapped. */
static bool attach_peers(const struct offer *all, const fl_transport *transport)
{
    bool good = true;
    for (int r = 0; r < transport->size && all[transport->rank].shares; r++) {
        bool same_host = strcmp(all[r].host, all[transport->rank].host) == 0;
        if (r == transport->rank) continue;
        if (!all[r].shares) good &= !same_host;
        else good &= fl_shared_attach(r, all[r].handshake, &same_host) || !same_host;
    }
    return good;
}

/* Threads this rank would use on its own: its cores, one where ranks share cores, FLOW_THREADS before both. */
static int wanted_threads(int cores)
{
    int most = fl_team_size();
    if (given("FLOW_THREADS") || host_chose_threads) return most;
    if (in_host && cores) return cores < most ? cores : most;
    return cores ? most : 1;
}

static void take_offers(struct rank_setting *mine, const struct offer *all, const fl_transport *transport)
{
    int ranks, index, cores;
    fl_level level = FL_LEVEL_COUNT;
    count_host(&ranks, &index, all, transport);
    cores = in_host ? host_cores(ranks) : bind_cores(ranks, index);
    own_cores = cores ? cores : 1;
    fl_comm_host_ranks = ranks;
    for (int r = 0; r < transport->size; r++)
        if (all[r].level < (int32_t)level) level = (fl_level)all[r].level;
    fl_cpu_level_limit(level);
    fl_manual_seed(all[0].seed);
    memset(mine, 0, sizeof *mine);
    mine->threads = wanted_threads(cores);
    mine->cannot_share = !attach_peers(all, transport);
    if (!in_host && ranks == transport->size && fl_shared_has(0)) fl_output_join(fl_journal_of(0)->pid);
}

static void take_settings(const struct rank_setting *all, const fl_transport *transport)
{
    int threads = all[0].threads;
    bool share = true;
    for (int r = 0; r < transport->size; r++) {
        if (all[r].threads < threads) threads = all[r].threads;
        share &= !all[r].cannot_share;
    }
    fl_team_set_size(threads);
    if (transport->one_thread || (own_cores < 2 && fl_engine_mode_get() != FL_ENGINE_QUEUED))
        fl_engine_lane_drive(FL_LANE_COMM);
    if (!share) fl_shared_stop();
}

static fl_status agree(const fl_transport *transport)
{
    struct offer mine, *offers = calloc((size_t)transport->size, sizeof *offers);
    struct rank_setting my_setting, *settings = calloc((size_t)transport->size, sizeof *settings);
    fl_status status = offers && settings ? FL_OK
                                          : fl_fail(FL_ERR_MEMORY, "out of memory for %d ranks", transport->size);
    if (status == FL_OK) {
        make_offer(&mine, transport);
        status = transport->gather(offers, &mine, sizeof mine);
    }
    if (status == FL_OK) {
        take_offers(&my_setting, offers, transport);
        status = transport->gather(settings, &my_setting, sizeof my_setting);
    }
    if (status == FL_OK) take_settings(settings, transport);
    free(offers);
    free(settings);
    return status;
}

/* ---- joining and leaving ---- */

static fl_status open_transport(fl_transport *out, const void *comm)
{
    void *entry;
    if (fl_plugin_open(&entry, "mpi", FL_TRANSPORT_ENTRY, "libopenmpi-dev") != FL_OK)
        return fl_fail_prefix(FL_ERR_MISSING, "the ranks of this job cannot work together: ");
    memset(out, 0, sizeof *out);
    out->host_comm = comm;
    FL_TRY(((fl_transport_entry)entry)(out));
    note_joined();
    return FL_OK;
}

static fl_status enter_world(const fl_transport *transport)
{
    FL_TRY(fl_world_set(transport->size, transport->rank));
    fl_comm_register(transport->comm);
    return agree(transport);
}

fl_status fl_launch_join(void)
{
    int ranks;
    fl_transport t;
    struct start at_start = read_start();
    if (given("FLOW_WORLD")) return FL_OK;
    if (!fl_launched(&ranks)) warn_alone(&at_start);
    if (!fl_launched(NULL) || joined_by_parent()) return FL_OK;
    if (ranks == 1) {
        own_cores = bind_cores(1, 0);
        return FL_OK;
    }
    FL_TRY(open_transport(&t, NULL));
    if (t.size > 1) return enter_world(&t);
    warn_alone(&at_start);
    return FL_OK;
}

/* A host's MPI would be called in place of Open MPI: its functions have the same names. */
static fl_status check_mpi(void)
{
    bool there = dlsym(RTLD_DEFAULT, "MPI_Initialized") != NULL;
    return !there || dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world")
        ? FL_OK
        : fl_fail(FL_ERR_COMM, "flow_join: this program uses another MPI than Open MPI, for which flowlua-mpi.so is");
}

/* Nobody to join: alone, by the launcher's words or by a rank that started this process. */
static fl_status stay_alone(const struct start *start)
{
    char text[ALONE_TEXT];
    if (start->launcher && !joined_by_parent()) return fl_fail(FL_ERR_COMM, "flow_join: %s", alone_text(text, start));
    return FL_OK;
}

static fl_status warn_and_stay(const struct start *start)
{
    warn_alone(start);
    return FL_OK;
}

static bool joined; /* for as long as the process lives */

static fl_status join_in_host(const void *comm, fl_status (*alone)(const struct start *start))
{
    int ranks;
    fl_transport t;
    struct start at_start = read_start();
    in_host = true;
    if (given("FLOW_WORLD")) return FL_OK;
    if (!comm && !fl_launched(&ranks)) return alone(&at_start);
    if (!comm && (joined_by_parent() || ranks == 1)) return FL_OK;
    FL_TRY(check_mpi());
    FL_TRY(open_transport(&t, comm));
    __atomic_store_n(&fl_journal_own->state, FL_RANK_STARTING, __ATOMIC_RELEASE);
    if (joined) return fl_world_set(t.size, t.rank); /* the same ranks: the transport has looked */
    if (t.size == 1) return comm ? FL_OK : alone(&at_start);
    joined = true;
    return enter_world(&t);
}

fl_status fl_launch_join_host(const void *comm, bool chose_threads)
{
    host_chose_threads = chose_threads;
    return join_in_host(comm, stay_alone);
}

fl_status fl_launch_join_module(void) { return join_in_host(NULL, warn_and_stay); }

void fl_launch_leave_host(void)
{
    if (!fl_comm_get()) return;
    __atomic_store_n(&fl_journal_own->state, FL_RANK_ENDED, __ATOMIC_RELEASE);
    fl_comm_get()->finish();
}

void fl_launch_leave(void)
{
    if (fl_comm_get()) fl_comm_get()->finish();
}
