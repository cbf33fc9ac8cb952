/* Whole numbers of 8 bits as they are: (number - zero point) * scale. */
#define NAME int8
#define GROUP_BYTES 32
#define FACTOR 1.0f
#define ZEROS 1

struct int8_tables {
    int none;
};

static inline int int8_fits(const struct matrix *m) { return is(m->kind, "int8") && fits_tiles(m) && !m->wholes; }

static ALWAYS_INLINE struct int8_tables int8_tables(void) {
    return (struct int8_tables){0};
}

static ALWAYS_INLINE f32x32 int8_numbers(const struct int8_tables *tables, const uint8_t *bytes) {
    (void)tables;
    return floats_of_i8(load32(bytes));
}

static ALWAYS_INLINE void int8_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                      size_t tile, float *scales, float *zeros) {
    store_numbers(scales, 0, FLOAT32, scales_from(tiles, p, tile, 0));
    (void)m;
    if (p->zero)
        for (size_t i = 0; i < 32 && tile + i < tiles->all; i++) zeros[i] = (int8_t)p->zero[tile + i];
}

#include "../tile_format.h"
