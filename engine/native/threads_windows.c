/* Threads of Windows, from kernel32 alone: with a C runtime this DLL would have to bring one, and be built for minutes. */
#include "threads.h"

#include <stddef.h>
#include <stdint.h>

#define SYSTEM __declspec(dllimport) __attribute__((ms_abi))

struct word {
    void *value; /* SRWLOCK and CONDITION_VARIABLE are one pointer each, NULL at first */
};

SYSTEM void AcquireSRWLockExclusive(struct word *lock);
SYSTEM void ReleaseSRWLockExclusive(struct word *lock);
SYSTEM int32_t SleepConditionVariableSRW(struct word *variable, struct word *lock, uint32_t wait_ms, uint32_t flags);
SYSTEM void WakeAllConditionVariable(struct word *variable);
SYSTEM void *CreateThread(void *security, size_t stack, uint32_t (*run)(void *), void *what, uint32_t flags, void *id);
SYSTEM int32_t CloseHandle(void *handle);

#define INFINITE 0xFFFFFFFFu
#define STACK_SIZE_PARAM_IS_A_RESERVATION 0x10000u
#define STACK_BYTES (256 * 1024) /* address space; a worker touches two pages of it */

static struct word locks[LOCKS], signals[SIGNALS];

void take(enum lock lock) { AcquireSRWLockExclusive(&locks[lock]); }
void give(enum lock lock) { ReleaseSRWLockExclusive(&locks[lock]); }
void await(enum signal signal) { SleepConditionVariableSRW(&signals[signal], &locks[POOL], INFINITE, 0); }
void wake_all(enum signal signal) { WakeAllConditionVariable(&signals[signal]); }

static uint32_t begin(void *run) {
    ((void (*)(void))run)();
    return 0;
}

int start_thread(void (*run)(void)) {
    void *thread = CreateThread(0, STACK_BYTES, begin, (void *)run, STACK_SIZE_PARAM_IS_A_RESERVATION, 0);
    if (thread) CloseHandle(thread);
    return thread != 0;
}

/* Compilers call this before they take more than a page of stack, with the bytes in RAX: Windows hands a stack out page by
   page, from above, so each page has to be touched in turn. All registers keep what they hold. */
__asm__(".globl ___chkstk_ms\n"
        "___chkstk_ms:\n"
        "    push %rcx\n"
        "    push %rax\n"
        "    lea 24(%rsp), %rcx\n" /* where the stack ended before this call */
        "1:  cmp $0x1000, %rax\n"
        "    jb 2f\n"
        "    sub $0x1000, %rcx\n"
        "    orb $0, (%rcx)\n"
        "    sub $0x1000, %rax\n"
        "    jmp 1b\n"
        "2:  sub %rax, %rcx\n"
        "    orb $0, (%rcx)\n"
        "    pop %rax\n"
        "    pop %rcx\n"
        "    ret\n");

/* Called by the system when the DLL comes and goes. Workers are not ended here: when the process ends they are gone. */
int32_t DllMainCRTStartup(void *dll, uint32_t reason, void *reserved) {
    (void)dll, (void)reason, (void)reserved;
    return 1;
}
