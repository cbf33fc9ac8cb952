#include "pool.h"

#include "threads.h"

static int living, wanted, busy, closing; /* threads: there are, may still join, have joined or may; all end now */
static void (*work_now)(void *);
static void *what_now;

static void worker(void) {
    take(POOL);
    for (;;) {
        while (!wanted && !closing) await(BEGIN);
        if (closing) break;
        wanted--;
        void (*work)(void *) = work_now;
        void *what = what_now;
        give(POOL);
        work(what);
        take(POOL);
        if (--busy == 0) wake_all(END);
    }
    living--;
    wake_all(END);
    give(POOL);
}

void pool_run(int threads, void (*work)(void *), void *what) {
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    take(CALL);
    if (threads > 1) {
        take(POOL);
        while (living < threads - 1 && start_thread(worker)) living++;
        work_now = work, what_now = what;
        wanted = busy = living < threads - 1 ? living : threads - 1;
        wake_all(BEGIN);
        give(POOL);
    }
    work(what);
    if (threads > 1) {
        take(POOL);
        busy -= wanted; /* whoever is not awake by now finds nothing left to do */
        wanted = 0;
        while (busy) await(END);
        give(POOL);
    }
    give(CALL);
}

void pool_close(void) {
    take(CALL);
    take(POOL);
    closing = 1;
    wake_all(BEGIN);
    while (living) await(END);
    closing = 0;
    give(POOL);
    give(CALL);
}
