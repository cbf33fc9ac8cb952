/* Writes NAME_product and NAME_unpack for a format whose rows lie one behind the other. Included by each of them. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(name) JOIN(NAME, name)

static ALWAYS_INLINE void IN(rows)(const struct matrix *m, const struct pieces *p, const float *x, const int tokens,
                                   float *out, size_t out_stride, size_t first, size_t last) {
    const size_t columns = (size_t)m->columns, blocks = columns / WIDE;
    const size_t row_bytes = IN(row_bytes)(m), block_bytes = row_bytes / blocks;
    for (size_t row = first; row < last; row++) {
        const struct IN(row) start = IN(start)(m, p, row);
        const uint8_t *ahead = p->weight + row * row_bytes + AHEAD_BYTES;
        const float *here = x;
        f32x32 sums[ROWS_AT_ONCE] = {0};
        for (size_t block = 0; block < blocks; block++) {
            const struct IN(block) opened = IN(open)(&start, block);
            for (size_t line = 0; line < block_bytes; line += 64) prefetch(ahead + line);
            ahead += block_bytes;
            UNROLLED for (int group = 0; group < WIDE / 32; group++) {
                const f32x32 weights = IN(group)(&opened, group);
                for (int t = 0; t < tokens; t++)
                    sums[t] = add_product(sums[t], weights, load_floats(here + (size_t)t * columns));
                here += 32;
            }
        }
        for (int t = 0; t < tokens; t++) out[(size_t)t * out_stride + place_of(m, row)] = sum(sums[t]);
    }
}

static void IN(product)(const struct matrix *m, const struct pieces *p, const float *x, int tokens, float *out,
                        size_t out_stride, size_t first, size_t last) {
    for (; tokens > 0; tokens -= ROWS_AT_ONCE) {
        if (tokens == 1) IN(rows)(m, p, x, 1, out, out_stride, first, last);
        if (tokens == 2) IN(rows)(m, p, x, 2, out, out_stride, first, last);
        if (tokens == 3 && ROWS_AT_ONCE > 2) IN(rows)(m, p, x, 3, out, out_stride, first, last);
        if (tokens > 3 || tokens > ROWS_AT_ONCE) IN(rows)(m, p, x, ROWS_AT_ONCE, out, out_stride, first, last);
        x += ROWS_AT_ONCE * (size_t)m->columns, out += ROWS_AT_ONCE * out_stride;
    }
}

static ALWAYS_INLINE void IN(numbers)(const struct matrix *m, const struct pieces *p, void *out,
                                      const enum number type, size_t out_stride, size_t first, size_t last) {
    for (size_t row = first; row < last; row++) {
        const struct IN(row) start = IN(start)(m, p, row);
        size_t place = place_of(m, row) * out_stride;
        for (size_t block = 0; block < (size_t)m->columns / WIDE; block++) {
            const struct IN(block) opened = IN(open)(&start, block);
            UNROLLED for (int group = 0; group < WIDE / 32; group++, place += 32)
                store_numbers(out, place, type, IN(group)(&opened, group));
        }
    }
}

static void IN(unpack)(const struct matrix *m, const struct pieces *p, void *out, enum number type, size_t out_stride,
                       size_t first, size_t last) {
    if (type == FLOAT32) IN(numbers)(m, p, out, FLOAT32, out_stride, first, last);
    if (type == BFLOAT16) IN(numbers)(m, p, out, BFLOAT16, out_stride, first, last);
    if (type == FLOAT16) IN(numbers)(m, p, out, FLOAT16, out_stride, first, last);
}

#undef NAME
#undef WIDE
#undef IN
#undef JOIN
#undef JOIN_
