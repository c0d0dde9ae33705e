// SPDX-License-Identifier: BSD-3-Clause
/* Makes a program slower: SLOWER_BY, a share of the processor time between matrix products, and
   SLOWER_US before a message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

typedef void (*Product)(const char *, const char *, const int *, const int *, const int *,
                        const float *, const float *, const int *, const float *, const int *,
                        const float *, float *, const int *);

static double processor_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Looking at the clock costs as much as a small product: so it is done after every 32nd. */
static void spend(void) {
  static _Thread_local double before = 0;
  static _Thread_local int calls = 0;
  static double share = -1;
  if (share < 0) share = getenv("SLOWER_BY") ? atof(getenv("SLOWER_BY")) : 0;
  if (++calls % 32 != 0) return;
  const double now = processor_time();
  const double until = now + share * (now - before);
  while (processor_time() < until) {
  }
  before = processor_time();
}

void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc) {
  static Product product = 0;
  if (!product) product = (Product)dlsym(RTLD_NEXT, "sgemm_");
  product(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  spend();
}

/* The program defines MPI_Isend itself, and counts there. */
int PMPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request) {
  typedef int (*Send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
  static Send send = 0;
  static double seconds = -1;
  if (!send) send = (Send)dlsym(RTLD_NEXT, "PMPI_Isend");
  if (seconds < 0) seconds = getenv("SLOWER_US") ? 1e-6 * atof(getenv("SLOWER_US")) : 0;
  const double until = processor_time() + seconds;
  while (processor_time() < until) {
  }
  return send(data, n, type, to, tag, comm, request);
}
