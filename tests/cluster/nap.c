/* A rank that waits in MPI polls, and so uses up its node's quota: the message it waits for then finds the node stopped.
   With this library preloaded, and OMPI_MCA_mpi_yield_when_idle=1, it naps between two polls instead. */
#include <time.h>

int sched_yield(void)
{
    struct timespec nap = {0, 20000};
    nanosleep(&nap, 0);
    return 0;
}
