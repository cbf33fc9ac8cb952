/* GGUF Q5_0: a float16 scale, the fifth bits of 32 numbers, and their other four in 22 bytes; (number - 16) * scale. */
#define NAME q5_0
#define WIDE 32

struct q5_0_row {
    const uint8_t *blocks;
};

struct q5_0_block {
    const uint8_t *bytes;
    float scale;
};

static inline int q5_0_fits(const struct matrix *m) { return is_gguf(m, "Q5_0", WIDE); }

static inline size_t q5_0_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 22; }

static inline struct q5_0_row q5_0_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q5_0_row){p->weight + row * q5_0_row_bytes(m)};
}

static inline struct q5_0_block q5_0_open(const struct q5_0_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 22;
    return (struct q5_0_block){bytes, load_f16(bytes)};
}

static inline f32x32 q5_0_group(const struct q5_0_block *block, int group) {
    (void)group;
    __m256i numbers = _mm256_or_si256(split_nibbles(block->bytes + 6), where_set(block->bytes + 2, 16));
    return times(floats_of_i8(_mm256_sub_epi8(numbers, _mm256_set1_epi8(16))), block->scale);
}

#include "../row_format.h"
