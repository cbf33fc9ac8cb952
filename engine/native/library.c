/* What Python calls. Compiled for any x86-64: nothing here computes. */
#include "cpu.h"
#include "kernels.h"
#include "pool.h"

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define PIECE_WEIGHTS 65536 /* about so many weights are one thread's at a time: a few dozen microseconds */
#define PIECE_ROWS 32       /* and a multiple of so many rows: layouts that lie by outputs hold some side by side */

static const struct format *formats; /* of the chosen instruction set */

EXPORT int32_t splitpin_interface(void) { return INTERFACE; }
EXPORT int32_t splitpin_matrix_bytes(void) { return (int32_t)sizeof(struct matrix); }

/* Compute with "avx512" or "avx2" from now on. 0: this machine cannot. */
EXPORT int32_t splitpin_use(const char *name) {
    if (is(name, "avx512") && has_avx512()) return formats = formats_avx512, 1;
    if (is(name, "avx2") && has_avx2()) return formats = formats_avx2, 1;
    return 0;
}

/* The number of the format that reads such a matrix, -1: none does. */
EXPORT int32_t splitpin_find(const struct matrix *m) {
    for (int32_t number = 0; formats && formats[number].name; number++)
        if (formats[number].fits(m)) return number;
    return -1;
}

EXPORT const char *splitpin_format_name(int32_t number) { return formats[number].name; }

/* The same work for all tasks of a call, cut into pieces. */
struct job {
    const struct matrix *matrices;
    const struct task *tasks;
    size_t n_matrices, n_tasks, out_stride;
    void *out; /* of unpacking */
    enum number type;
    size_t pieces_each; /* of a task */
    size_t next;        /* piece that nobody has taken */
};

static size_t piece_rows(const struct matrix *m) {
    size_t rows = PIECE_WEIGHTS / (size_t)m->columns / PIECE_ROWS * PIECE_ROWS;
    return rows ? rows : PIECE_ROWS;
}

static size_t pieces_of(const struct matrix *m) {
    size_t rows = piece_rows(m);
    return ((size_t)m->rows + rows - 1) / rows;
}

static const uint8_t *at(const uint8_t *record, int64_t offset) { return offset < 0 ? NULL : record + offset; }

static void do_piece(const struct job *job, const struct task *task, size_t piece) {
    const struct matrix *m = job->matrices;
    for (; piece >= pieces_of(m); m++) piece -= pieces_of(m);
    const struct pieces p = {
        at(task->record, m->weight), at(task->record, m->scale), at(task->record, m->zero), at(task->record, m->order),
        m->wholes ? m->wholes[task->expert] : 1.0f,
    };
    size_t first = piece * piece_rows(m), last = first + piece_rows(m);
    if (last > (size_t)m->rows) last = (size_t)m->rows;
    const struct format *format = &formats[m->format];
    if (job->out)
        format->unpack(m, &p, job->out, job->type, job->out_stride, first, last);
    else
        format->product(m, &p, task->rows, task->tokens, task->out, job->out_stride, first, last);
}

static void work(void *what) {
    struct job *job = what;
    for (;;) {
        size_t piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (piece >= job->n_tasks * job->pieces_each) return;
        do_piece(job, &job->tasks[piece / job->pieces_each], piece % job->pieces_each);
    }
}

static void run(struct job *job, int32_t threads) {
    for (size_t i = 0; i < job->n_matrices; i++) job->pieces_each += pieces_of(&job->matrices[i]);
    size_t pieces = job->n_tasks * job->pieces_each;
    if (pieces) pool_run((size_t)threads < pieces ? threads : (int)pieces, work, job);
}

/* Rows of activations times matrices, for each task: out [tokens, out_stride]. */
EXPORT void splitpin_product(const struct matrix *matrices, int32_t n_matrices, const struct task *tasks,
                             int32_t n_tasks, int64_t out_stride, int32_t threads) {
    struct job job = {matrices, tasks, (size_t)n_matrices, (size_t)n_tasks, (size_t)out_stride, NULL, FLOAT32, 0, 0};
    run(&job, threads);
}

/* The matrices of one expert into out [rows, out_stride] of `type`: 0 float32, 1 bfloat16, 2 float16. */
EXPORT void splitpin_unpack(const struct matrix *matrices, int32_t n_matrices, const uint8_t *record, int32_t expert,
                            void *out, int32_t type, int64_t out_stride, int32_t threads) {
    struct task task = {record, NULL, NULL, expert, 0};
    struct job job = {matrices, &task, (size_t)n_matrices, 1, (size_t)out_stride, out, (enum number)type, 0, 0};
    run(&job, threads);
}

EXPORT void splitpin_close(void) { pool_close(); }
