/* GGUF IQ4_XS: 256 numbers of 4 bits in 136 bytes, in groups of 32; level[number] * scale. Scales have 6 bits, four of
   them in 4 bytes and two in a word before these, and a float16 factor for the block. */
#define NAME iq4_xs
#define WIDE 256

struct iq4_xs_row {
    const uint8_t *blocks;
};

struct iq4_xs_block {
    const uint8_t *numbers;
    float scales[8];
};

static inline int iq4_xs_fits(const struct matrix *m) { return is_gguf(m, "IQ4_XS", WIDE); }

static inline size_t iq4_xs_row_bytes(const struct matrix *m) { return (size_t)m->columns / 256 * 136; }

static inline struct iq4_xs_row iq4_xs_start(const struct matrix *m, const struct pieces *p, size_t row) {
    return (struct iq4_xs_row){p->weight + row * iq4_xs_row_bytes(m)};
}

static inline struct iq4_xs_block iq4_xs_open(const struct iq4_xs_row *row, size_t block) {
    const uint8_t *bytes = row->blocks + block * 136;
    struct iq4_xs_block opened = {.numbers = bytes + 8};
    uint32_t high = load_u16(bytes + 2), low = load_u32(bytes + 4);
    float factor = load_f16(bytes);
    UNROLLED for (int group = 0; group < 8; group++) {
        int scale = (int)((low >> 4 * group & 15) | (high >> 2 * group & 3) << 4) - 32;
        opened.scales[group] = factor * (float)scale;
    }
    return opened;
}

static inline f32x32 iq4_xs_group(const struct iq4_xs_block *block, int group) {
    __m256i numbers = look_up(split_nibbles(block->numbers + 16 * group), iq4_levels());
    return times(floats_of_i8(numbers), block->scales[group]);
}

#include "../row_format.h"
