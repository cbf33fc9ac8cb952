/* What the pool needs of the system: threads_posix.c and threads_windows.c. */
#ifndef SPLITPIN_THREADS_H
#define SPLITPIN_THREADS_H

enum lock { CALL, POOL, LOCKS };  /* one caller at a time; the fields of the pool */
enum signal { BEGIN, END, SIGNALS }; /* both go with the lock POOL */

void take(enum lock lock);
void give(enum lock lock);
void await(enum signal signal); /* gives POOL meanwhile; may return without a signal */
void wake_all(enum signal signal);
int start_thread(void (*run)(void)); /* 0: the system refused */

#endif
