/*
** test_launch.c -- what can be known about the start of ranks without starting any.
*/
#include "check.h"

#include "core/ranks/launch.h"
#include "core/ranks/testing.h"
#include "core/base/plugin.h"

#include <stdlib.h>
#include <unistd.h>

/* Every core belongs to exactly one rank, ranks differ by at most one core; too many ranks share all of them. */
static void test_cores_are_shared_out(void)
{
    for (int cores = 1; cores <= 9; cores++)
        for (int count = 1; count <= 12; count++) {
            int end = 0, first, many;
            for (int i = 0; i < count; i++) {
                fl_launch_share(&first, &many, cores, count, i);
                CHECK(first == (count > cores ? 0 : end));
                CHECK(count > cores ? many == cores : many == cores / count || many == cores / count + 1);
                end = first + many;
            }
            CHECK(end == cores);
        }
}

static void forget_launcher(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK",  "PMIX_NAMESPACE",
                                        "FLOW_JOINED",          "FLOW_WORLD", "FLOW_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void test_the_launcher_is_known_by_its_environment(void)
{
    int ranks;
    forget_launcher();
    CHECK(!fl_launched(&ranks));
    setenv("OMPI_COMM_WORLD_SIZE", "", 1);
    CHECK(!fl_launched(&ranks) && !fl_launched(NULL));
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    CHECK(fl_launched(&ranks) && ranks == 4 && fl_launched(NULL));
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("PMIX_RANK", "0", 1);
    CHECK(fl_launched(&ranks) && ranks == 0);
    forget_launcher();
}

/* No plug-in lies beside a test program: joining is possible only where none is needed. */
static void test_who_needs_a_transport(void)
{
    char joined[64];
    forget_launcher();
    CHECK(fl_launch_join() == FL_OK && fl_world_get()->size == 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("PMIX_NAMESPACE", "job", 1);
    CHECK(fl_launch_join() == FL_ERR_MISSING);
    CHECK_TEXT(fl_message(),
               "the ranks of this job cannot work together: flowlua-mpi.so is neither beside the program nor in "
               "../lib/flowlua; install the package libopenmpi-dev and run make, or name its folder in FLOW_PLUGINS");
    setenv("FLOW_JOINED", "job/1", 1); /* a rank of this job has started this program */
    CHECK(fl_launch_join() == FL_OK);
    setenv("FLOW_JOINED", "another/1", 1); /* a rank has started the mpirun of this job */
    CHECK(fl_launch_join() == FL_ERR_MISSING);
    snprintf(joined, sizeof joined, "job/%ld", (long)getpid());
    setenv("FLOW_JOINED", joined, 1); /* the number of the rank's process is this one's by chance */
    CHECK(fl_launch_join() == FL_ERR_MISSING);
    setenv("FLOW_WORLD", "4", 1);
    CHECK(fl_launch_join() == FL_OK);
    forget_launcher();
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    CHECK(fl_launch_join() == FL_OK && fl_comm_get() == NULL);
    forget_launcher();
}

static void test_a_real_world_is_not_dry(void)
{
    CHECK(fl_world_set(4, 3) == FL_OK);
    CHECK(fl_world_get()->size == 4 && fl_world_get()->rank == 3 && !fl_world_get()->dry);
    CHECK(fl_placement_all(FL_CPU)->my_index == 3);
    CHECK(fl_world_set(4, 4) == FL_ERR_VALUE);
    CHECK(fl_world_set(1, 0) == FL_OK);
}

int main(void)
{
    RUN(test_cores_are_shared_out);
    RUN(test_the_launcher_is_known_by_its_environment);
    RUN(test_who_needs_a_transport);
    RUN(test_a_real_world_is_not_dry);
    return finish();
}
