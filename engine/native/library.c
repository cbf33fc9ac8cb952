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
#define PIECE_ROWS STRIP_ROWS /* and a multiple of so many rows: layouts that lie by outputs hold some side by side */

#define FAMILIES 3
#define FAMILY_SIZE 64 /* formats are numbered from a multiple of this on in each family */

/* What is compiled for one instruction set. */
struct instructions {
    const struct format *families[FAMILIES];
    multiply_fn *const *multiply;
};

static const struct instructions with_avx2 = {{blocks_avx2, tiles_avx2, outputs_avx2}, &multiply_avx2};
static const struct instructions with_avx512 = {{blocks_avx512, tiles_avx512, outputs_avx512}, &multiply_avx512};
static const struct instructions *chosen; /* of the process */

EXPORT int32_t splitpin_interface(void) { return INTERFACE; }
EXPORT int32_t splitpin_matrix_bytes(void) { return (int32_t)sizeof(struct matrix); }

/* Compute with "avx512" or "avx2" from now on. 0: this machine cannot. */
EXPORT int32_t splitpin_use(const char *name) {
    if (is(name, "avx512") && has_avx512()) return chosen = &with_avx512, 1;
    if (is(name, "avx2") && has_avx2()) return chosen = &with_avx2, 1;
    return 0;
}

/* The number of the format that reads such a matrix, -1: none does. */
EXPORT int32_t splitpin_find(const struct matrix *m) {
    for (int32_t family = 0; chosen && family < FAMILIES; family++)
        for (int32_t number = 0; chosen->families[family][number].name; number++)
            if (chosen->families[family][number].fits(m)) return family * FAMILY_SIZE + number;
    return -1;
}

static const struct format *format_of(const struct matrix *m) {
    return &chosen->families[m->format / FAMILY_SIZE][m->format % FAMILY_SIZE];
}

/* Whether the processor multiplies bfloat16 numbers itself. */
EXPORT int32_t splitpin_has_bf16(void) { return has_bf16(); }

/* The same work for all tasks of a call, cut into pieces. */
struct job {
    const struct matrix *matrices;
    const struct task *tasks;
    size_t n_matrices, n_tasks, out_stride;
    void *out; /* of unpacking */
    enum number type;
    size_t pieces_each; /* of a task */
    float *strips;      /* of weights, STRIP_ROWS for each thread; NULL: activations are few */
    size_t next;        /* piece that nobody has taken */
    size_t joined;      /* threads that have a strip */
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

/* Products of many rows of activations: weights become float32 a strip at a time. */
static void do_strips(const struct job *job, const struct task *task, const struct matrix *m, const struct pieces *p,
                      size_t first, size_t last, float *strip) {
    struct matrix here = *m;
    for (; first < last; first += STRIP_ROWS) {
        const size_t rows = last - first < STRIP_ROWS ? last - first : STRIP_ROWS;
        here.first_row = -(int32_t)first, here.row_step = 1; /* the first row of the strip is its row 0 */
        format_of(m)->unpack(&here, p, strip, FLOAT32, (size_t)m->columns, first, first + rows);
        (*chosen->multiply)(strip, (int)rows, task->rows, task->tokens, (size_t)m->columns, task->out, job->out_stride,
                         (size_t)m->first_row + first * (size_t)m->row_step, (size_t)m->row_step);
    }
}

static void do_piece(const struct job *job, const struct task *task, size_t piece, float *strip) {
    const struct matrix *m = job->matrices;
    for (; piece >= pieces_of(m); m++) piece -= pieces_of(m);
    const struct pieces p = {
        at(task->record, m->weight), at(task->record, m->scale), at(task->record, m->zero), at(task->record, m->order),
        m->wholes ? m->wholes[task->expert] : 1.0f,
    };
    size_t first = piece * piece_rows(m), last = first + piece_rows(m);
    if (last > (size_t)m->rows) last = (size_t)m->rows;
    const struct format *format = format_of(m);
    if (task->tokens > FEW_ROWS && strip)
        do_strips(job, task, m, &p, first, last, strip);
    else if (job->out)
        format->unpack(m, &p, job->out, job->type, job->out_stride, first, last);
    else
        format->product(m, &p, task->rows, task->tokens, task->out, job->out_stride, first, last);
}

static void work(void *what) {
    struct job *job = what;
    float *strip = NULL;
    if (job->strips)
        strip = job->strips + __atomic_fetch_add(&job->joined, 1, __ATOMIC_RELAXED) * STRIP_ROWS *
                                  (size_t)job->matrices->columns;
    for (;;) {
        size_t piece = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
        if (piece >= job->n_tasks * job->pieces_each) return;
        do_piece(job, &job->tasks[piece / job->pieces_each], piece % job->pieces_each, strip);
    }
}

static void run(struct job *job, int32_t threads) {
    for (size_t i = 0; i < job->n_matrices; i++) job->pieces_each += pieces_of(&job->matrices[i]);
    size_t pieces = job->n_tasks * job->pieces_each;
    if (pieces) pool_run((size_t)threads < pieces ? threads : (int)pieces, work, job);
}

/* Rows of activations times matrices, for each task: out [tokens, out_stride]. `strips` is NULL or has room for
   STRIP_ROWS rows of each thread; tasks of more than FEW_ROWS are faster with it. */
EXPORT void splitpin_product(const struct matrix *matrices, int32_t n_matrices, const struct task *tasks,
                             int32_t n_tasks, int64_t out_stride, float *strips, int32_t threads) {
    struct job job = {.matrices = matrices, .tasks = tasks, .n_matrices = (size_t)n_matrices,
                      .n_tasks = (size_t)n_tasks, .out_stride = (size_t)out_stride, .strips = strips};
    run(&job, threads);
}

/* The matrices of one expert into out [rows, out_stride] of `type`: 0 float32, 1 bfloat16, 2 float16. */
EXPORT void splitpin_unpack(const struct matrix *matrices, int32_t n_matrices, const uint8_t *record, int32_t expert,
                            void *out, int32_t type, int64_t out_stride, int32_t threads) {
    struct task task = {record, NULL, NULL, expert, 0};
    struct job job = {.matrices = matrices, .tasks = &task, .n_matrices = (size_t)n_matrices, .n_tasks = 1,
                      .out_stride = (size_t)out_stride, .out = out, .type = (enum number)type};
    run(&job, threads);
}

EXPORT void splitpin_close(void) { pool_close(); }
