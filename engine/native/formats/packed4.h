/* pack-quantized of compressed-tensors, 4 bits: (number - zero point) * scale, eight numbers in an int32 word, lowest
   bits first. Where no zero point is stored it is 8. */
#define NAME packed4
#define GROUP_BYTES 16
#define FACTOR 1.0f
#define ZEROS 1

struct packed4_tables {
    struct nibble_table less_8;
};

static inline int packed4_fits(const struct matrix *m) {
    return is(m->kind, "packed") && m->bits == 4 && m->columns % 8 == 0 && fits_tiles(m) && !m->wholes;
}

static ALWAYS_INLINE struct packed4_tables packed4_tables(void) {
    return (struct packed4_tables){nibble_table(LESS_8)};
}

static ALWAYS_INLINE f32x32 packed4_numbers(const struct packed4_tables *tables, const uint8_t *bytes) {
    return floats_of_nibbles(bytes, &tables->less_8, IN_ORDER);
}

static ALWAYS_INLINE void packed4_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                         size_t tile, float *scales, float *zeros) {
    store_numbers(scales, 0, FLOAT32, scales_from(tiles, p, tile, 0));
    if (p->zero) packed_zeros(m, tiles, p->zero, tile, 8, zeros);
}

#include "../tile_format.h"
