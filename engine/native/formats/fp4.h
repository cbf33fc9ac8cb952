/* NVFP4 and MXFP4: two E2M1 numbers in a byte, the earlier one in the low half; number * (scale * whole), or the scale
   divided by it. */
#define NAME fp4
#define GROUP_BYTES 16
#define FACTOR 1.0f
#define ZEROS 0

struct fp4_tables {
    struct nibble_table e2m1;
};

static inline int fp4_fits(const struct matrix *m) {
    return is(m->kind, "fp4") && m->columns % 2 == 0 && m->scale >= 0 && fits_tiles(m);
}

static ALWAYS_INLINE struct fp4_tables fp4_tables(void) {
    static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                   -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return (struct fp4_tables){nibble_table(e2m1)};
}

static ALWAYS_INLINE f32x32 fp4_numbers(const struct fp4_tables *tables, const uint8_t *bytes) {
    return floats_of_nibbles(bytes, &tables->e2m1, IN_ORDER);
}

static ALWAYS_INLINE void fp4_scales(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                     size_t tile, float *scales, float *zeros) {
    f32x32 found = scales_from(tiles, p, tile, 0);
    if (m->wholes) found = m->divides ? divided(found, p->whole) : times(found, p->whole);
    store_numbers(scales, 0, FLOAT32, found);
    (void)zeros;
}

#include "../tile_format.h"
