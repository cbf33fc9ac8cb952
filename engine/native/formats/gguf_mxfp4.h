/* GGUF MXFP4: the exponent of a power of two and 32 numbers of E2M1 in 17 bytes; number * 2^(exponent - 127). */
#define NAME gguf_mxfp4
#define WIDE 32

struct gguf_mxfp4_row {
    const uint8_t *blocks;
};

struct gguf_mxfp4_block {
    const uint8_t *numbers;
    float scale;
};

static inline int gguf_mxfp4_fits(const struct matrix *m) { return is_gguf(m, "MXFP4", WIDE); }

static inline size_t gguf_mxfp4_row_bytes(const struct matrix *m) { return (size_t)m->columns / 32 * 17; }

static inline struct gguf_mxfp4_row gguf_mxfp4_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct gguf_mxfp4_row){p->weight + row * gguf_mxfp4_row_bytes(m)};
}

static inline struct gguf_mxfp4_block gguf_mxfp4_open(const struct gguf_mxfp4_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 17;
    return (struct gguf_mxfp4_block){bytes + 1, power_of_two(bytes[0])};
}

static inline f32x32 gguf_mxfp4_group(const struct gguf_mxfp4_block *block, int group) {
    (void)group;
    return times(floats_of_f16_bytes(look_up(split_nibbles(block->numbers), e2m1_f16_bytes())), block->scale);
}

#include "../row_format.h"
