/* GGUF Q5_1: two float16, scale and least weight, then as Q5_0, in 24 bytes; number * scale + least. */
#define NAME q5_1
#define WIDE 32

struct q5_1_row {
    const uint8_t *blocks;
};

struct q5_1_block {
    const uint8_t *bytes;
    float scale, least;
};

static inline int q5_1_fits(const struct matrix *m) { return is_gguf(m, "Q5_1", WIDE); }

static inline size_t q5_1_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 24; }

static inline struct q5_1_row q5_1_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q5_1_row){p->weight + row * q5_1_row_bytes(m)};
}

static inline struct q5_1_block q5_1_open(const struct q5_1_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 24;
    return (struct q5_1_block){bytes, load_f16(bytes), load_f16(bytes + 2)};
}

static inline f32x32 q5_1_group(const struct q5_1_block *block, int group) {
    (void)group;
    __m256i numbers = _mm256_or_si256(split_nibbles(block->bytes + 8), where_set(block->bytes + 4, 16));
    return minus(times(floats_of_u8(numbers), block->scale), -block->least);
}

#include "../row_format.h"
