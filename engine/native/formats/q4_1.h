/* GGUF Q4_1: two float16, scale and least weight, and 32 numbers of 4 bits in 20 bytes; number * scale + least. */
#define NAME q4_1
#define WIDE 32

struct q4_1_row {
    const uint8_t *blocks;
};

struct q4_1_block {
    const uint8_t *bytes;
    float scale, least;
};

static inline int q4_1_fits(const struct matrix *m) { return is_gguf(m, "Q4_1", WIDE); }

static inline size_t q4_1_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 20; }

static inline struct q4_1_row q4_1_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q4_1_row){p->weight + row * q4_1_row_bytes(m)};
}

static inline struct q4_1_block q4_1_open(const struct q4_1_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 20;
    return (struct q4_1_block){bytes, load_f16(bytes), load_f16(bytes + 2)};
}

static inline f32x32 q4_1_group(const struct q4_1_block *block, int group) {
    (void)group;
    return minus(times(floats_of_u8(split_nibbles(block->bytes + 4)), block->scale), -block->least);
}

#include "../row_format.h"
