/* Threads of POSIX. The workers leave every signal to the threads of the program. */
#include "threads.h"

#include <pthread.h>
#include <signal.h>

#define STACK_BYTES (256 * 1024) /* address space; a worker touches two pages of it */

static pthread_mutex_t locks[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_cond_t signals[SIGNALS] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};

void take(enum lock lock) { pthread_mutex_lock(&locks[lock]); }
void give(enum lock lock) { pthread_mutex_unlock(&locks[lock]); }
void await(enum signal signal) { pthread_cond_wait(&signals[signal], &locks[POOL]); }
void wake_all(enum signal signal) { pthread_cond_broadcast(&signals[signal]); }

static void *begin(void *run) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    ((void (*)(void))run)();
    return 0;
}

int start_thread(void (*run)(void)) {
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int refused = pthread_create(&thread, &attributes, begin, (void *)run);
    pthread_attr_destroy(&attributes);
    return !refused;
}
