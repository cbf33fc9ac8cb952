/* A pool of threads that sleep between calls and never spin. */
#ifndef SPLITPIN_POOL_H
#define SPLITPIN_POOL_H

#define MOST_THREADS 256

/* Call work(what) on up to `threads` threads at once, the caller among them, and return when all have returned. `work`
   takes its share from what the others have left: nobody waits for a thread that has not woken up yet. One call at a
   time; another thread that calls waits. */
void pool_run(int threads, void (*work)(void *what), void *what);

/* End the threads and wait for that. The next `pool_run` starts others. */
void pool_close(void);

#endif
