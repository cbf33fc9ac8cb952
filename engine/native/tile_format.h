/* Writes NAME_product and NAME_unpack for a format with its weights in one piece, row after row, and the scales and
   zero points of tiles in others (tiles.h). Included by each of them, which holds

     #define NAME my_format
     #define GROUP_BYTES 16                 bytes of 32 weights
     #define FACTOR 1.0f                    a power of two: a number is what my_format_numbers returns times this
     #define ZEROS 0                        whether there may be zero points
     static inline int my_format_fits(m)    as in kernels.h
     struct my_format_tables                what is looked up, ready in registers
     my_format_tables()                     makes it
     my_format_numbers(tables, bytes)       32 numbers before zero points and scales
     my_format_scales(m, p, tiles, tile, scales, zeros)
                                            32 of both from number `tile` of the matrix on, as floats

   Full groups of 32 weights are read where they are; one that the end of a row cuts off is copied first. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(name) JOIN(NAME, name)

static ALWAYS_INLINE size_t IN(row_bytes)(const struct matrix *m) { return (size_t)m->columns * GROUP_BYTES / 32; }

/* Numbers to weights; scales and zero points of the tile they lie in, and of the next one. */
static ALWAYS_INLINE f32x32 IN(weights)(f32x32 numbers, const float *scales, const float *zeros, const int halves,
                                        const int has_zeros) {
    if (has_zeros) numbers = halves ? minus_halves(numbers, zeros[0], zeros[1]) : minus(numbers, zeros[0]);
    return halves ? times_halves(numbers, scales[0], scales[1]) : times(numbers, scales[0]);
}

/* `rows` rows of weights times `tokens` rows of activations; FACTOR comes once, at the end of the sums. */
static ALWAYS_INLINE void IN(rows)(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                   const struct IN(tables) *tables, size_t row, const float *x, float *out,
                                   size_t out_stride, const int rows, const int tokens, const int halves,
                                   const int has_zeros) {
    const size_t columns = (size_t)m->columns, row_bytes = IN(row_bytes)(m), groups = columns / 32, rest = columns % 32;
    const size_t last_tile = columns / 32 * 32 / (size_t)m->tile_columns;
    const uint8_t *bytes = p->weight + row * row_bytes;
    float scales[2][33], zeros[2][33];
    f32x32 sums[4] = {0};
    size_t group = 0;
    for (size_t tile = 0; tile < tiles->across; tile += 32) {
        UNROLLED for (int r = 0; r < rows; r++)
            IN(scales)(m, p, tiles, (row + (size_t)r) / tiles->tall * tiles->across + tile, scales[r], zeros[r]);
        for (size_t at = 0; at < 32 && group < groups; at += halves ? 2 : 1) {
            const size_t end = halves                           ? group + 1
                               : groups - group < tiles->groups ? groups
                                                                : group + tiles->groups;
            for (; group < end; group++)
                UNROLLED for (int r = 0; r < rows; r++) {
                    const uint8_t *here = bytes + (size_t)r * row_bytes + group * GROUP_BYTES;
                    prefetch(here + AHEAD_BYTES);
                    const f32x32 weights =
                        IN(weights)(IN(numbers)(tables, here), &scales[r][at], &zeros[r][at], halves, has_zeros);
                    UNROLLED for (int t = 0; t < tokens; t++)
                        sums[r * tokens + t] = add_product(sums[r * tokens + t], weights,
                                                           load_floats(x + (size_t)t * columns + 32 * group));
                }
        }
        if (!rest || last_tile - tile >= 32) continue;
        UNROLLED for (int r = 0; r < rows; r++) {
            const size_t at = last_tile - tile;
            uint8_t some[32];
            copy_rest(some, bytes + (size_t)r * row_bytes + groups * GROUP_BYTES, row_bytes - groups * GROUP_BYTES);
            const f32x32 weights =
                IN(weights)(IN(numbers)(tables, some), &scales[r][at], &zeros[r][at], halves, has_zeros);
            UNROLLED for (int t = 0; t < tokens; t++)
                sums[r * tokens + t] = add_product(sums[r * tokens + t], first_of(weights, rest),
                                                   load_some_floats(x + (size_t)t * columns + 32 * groups, rest));
        }
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int t = 0; t < tokens; t++)
            out[(size_t)t * out_stride + place_of(m, row + (size_t)r)] = FACTOR * sum(sums[r * tokens + t]);
}

/* One row of activations goes through two rows of weights at a time; two or more share the decoding of one. */
static ALWAYS_INLINE void IN(all)(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                  const float *x, int tokens, float *out, size_t out_stride, size_t first, size_t last,
                                  const int halves, const int has_zeros) {
    const struct IN(tables) tables = IN(tables)();
    for (; tokens >= ROWS_AT_ONCE; tokens -= ROWS_AT_ONCE) {
        for (size_t row = first; row < last; row++)
            IN(rows)(m, p, tiles, &tables, row, x, out, out_stride, 1, ROWS_AT_ONCE, halves, has_zeros);
        x += ROWS_AT_ONCE * (size_t)m->columns, out += ROWS_AT_ONCE * out_stride;
    }
    for (; ROWS_AT_ONCE > 2 && tokens >= 2; tokens -= 2) {
        for (size_t row = first; row < last; row++)
            IN(rows)(m, p, tiles, &tables, row, x, out, out_stride, 1, 2, halves, has_zeros);
        x += 2 * (size_t)m->columns, out += 2 * out_stride;
    }
    for (; tokens; tokens--) {
        size_t row = first;
        for (; row + 1 < last; row += 2)
            IN(rows)(m, p, tiles, &tables, row, x, out, out_stride, 2, 1, halves, has_zeros);
        if (row < last) IN(rows)(m, p, tiles, &tables, row, x, out, out_stride, 1, 1, halves, has_zeros);
        x += m->columns, out += out_stride;
    }
}

static void IN(product)(const struct matrix *m, const struct pieces *p, const float *x, int tokens, float *out,
                        size_t out_stride, size_t first, size_t last) {
    const struct tiles tiles = tiles_of(m);
    if (tiles.halves && ZEROS && p->zero) IN(all)(m, p, &tiles, x, tokens, out, out_stride, first, last, 1, ZEROS);
    else if (tiles.halves) IN(all)(m, p, &tiles, x, tokens, out, out_stride, first, last, 1, 0);
    else if (ZEROS && p->zero) IN(all)(m, p, &tiles, x, tokens, out, out_stride, first, last, 0, ZEROS);
    else IN(all)(m, p, &tiles, x, tokens, out, out_stride, first, last, 0, 0);
}

static ALWAYS_INLINE void IN(unpack_row)(const struct matrix *m, const struct pieces *p, const struct tiles *tiles,
                                         const struct IN(tables) *tables, size_t row, void *out, const enum number type,
                                         size_t place, const int has_zeros) {
    const size_t columns = (size_t)m->columns, row_bytes = IN(row_bytes)(m), groups = columns / 32, rest = columns % 32;
    const int halves = tiles->halves;
    const uint8_t *bytes = p->weight + row * row_bytes;
    float scales[33], zeros[33];
    size_t group = 0;
    for (size_t tile = 0; tile < tiles->across; tile += 32) {
        IN(scales)(m, p, tiles, row / tiles->tall * tiles->across + tile, scales, zeros);
        for (size_t at = 0; at < 32 && group < groups + (rest != 0); at += halves ? 2 : 1) {
            const size_t end = halves ? group + 1 : group + tiles->groups;
            for (; group < end && group < groups + (rest != 0); group++, place += 32) {
                const uint8_t *here = bytes + group * GROUP_BYTES;
                uint8_t some[32];
                if (group == groups) {
                    copy_rest(some, here, row_bytes - groups * GROUP_BYTES);
                    here = some;
                }
                f32x32 numbers = IN(numbers)(tables, here);
                if (FACTOR != 1.0f) numbers = times(numbers, FACTOR);
                const f32x32 weights = IN(weights)(numbers, &scales[at], &zeros[at], halves, has_zeros);
                if (group < groups) store_numbers(out, place, type, weights);
                else store_some_numbers(out, place, type, weights, rest);
            }
        }
    }
}

static ALWAYS_INLINE void IN(unpack_rows)(const struct matrix *m, const struct pieces *p, void *out,
                                          const enum number type, size_t out_stride, size_t first, size_t last) {
    const struct tiles tiles = tiles_of(m);
    const struct IN(tables) tables = IN(tables)();
    for (size_t row = first; row < last; row++) {
        const size_t place = place_of(m, row) * out_stride;
        if (ZEROS && p->zero) IN(unpack_row)(m, p, &tiles, &tables, row, out, type, place, ZEROS);
        else IN(unpack_row)(m, p, &tiles, &tables, row, out, type, place, 0);
    }
}

static void IN(unpack)(const struct matrix *m, const struct pieces *p, void *out, enum number type, size_t out_stride,
                       size_t first, size_t last) {
    if (type == FLOAT32) IN(unpack_rows)(m, p, out, FLOAT32, out_stride, first, last);
    if (type == BFLOAT16) IN(unpack_rows)(m, p, out, BFLOAT16, out_stride, first, last);
    if (type == FLOAT16) IN(unpack_rows)(m, p, out, FLOAT16, out_stride, first, last);
}

#undef NAME
#undef GROUP_BYTES
#undef FACTOR
#undef ZEROS
#undef IN
#undef JOIN
#undef JOIN_
