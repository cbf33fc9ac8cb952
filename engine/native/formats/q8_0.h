/* GGUF Q8_0: one float16 scale and 32 numbers of 8 bits in 34 bytes; number * scale. */
#define NAME q8_0
#define WIDE 32

struct q8_0_row {
    const uint8_t *blocks;
};

struct q8_0_block {
    const uint8_t *numbers;
    float scale;
};

static inline int q8_0_fits(const struct matrix *m) { return is_gguf(m, "Q8_0", WIDE); }

static inline size_t q8_0_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 34; }

static inline struct q8_0_row q8_0_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct q8_0_row){p->weight + row * q8_0_row_bytes(m)};
}

static inline struct q8_0_block q8_0_open(const struct q8_0_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 34;
    return (struct q8_0_block){bytes + 2, load_f16(bytes)};
}

static inline f32x32 q8_0_group(const struct q8_0_block *block, int group) {
    (void)group;
    return times(floats_of_i8(load32(block->numbers)), block->scale);
}

#include "../row_format.h"
