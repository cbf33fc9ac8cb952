/* Writes NAME_product and NAME_unpack for a format whose neighbours in memory are outputs: whole numbers with scales
   [groups, rows], zero points likewise, (number - zero point) * scale. Included by each of them, which holds

     #define NAME my_format
     static inline int my_format_fits(m)           as in kernels.h; columns are a multiple of 8
     struct my_format_tables                       what is looked up, ready in registers
     my_format_tables(m)                           makes it
     struct my_format_run                          the numbers of 8 columns and 32 rows
     my_format_open(m, p, row, column, inside)     opens one; `inside`: all 32 rows are in the matrix, else what lies
                                                   outside is anything
     my_format_column(tables, run, i)              32 numbers of its column i
     my_format_zeros(m, p, tables, group, row, inside)
                                                   32 zero points of a group
     my_format_turned(m, p, row, column, numbers)  bytes [32 rows, 32 columns]: their numbers

   32 rows are computed at a time, and pieces of work begin at multiples of them. Columns may be in groups in any order;
   where the file gives a group that does not exist, there are no weights: all are NaN. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(name) JOIN(NAME, name)

/* 32 rows times `tokens` rows of activations. Even and odd columns have sums of their own that do not wait for each
   other. */
static ALWAYS_INLINE void IN(block)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                    const struct IN(tables) *tables, const float *x, float *out, size_t out_stride,
                                    size_t row, const int tokens, const int ordered, const int inside,
                                    const int usual) {
    const size_t columns = (size_t)m->columns;
    struct groups known = *groups;
    if (usual) known.tiles.type = F16_SCALE; /* known while compiling: columns may look for their scales one by one */
    f32x32 sums[8] = {0};
    for (size_t column = 0; column < columns;) {
        const size_t group = group_of(&known, column);
        size_t end = ordered ? column + 8 : (group + 1) * known.wide;
        if (end > columns) end = columns;
        f32x32 zeros = IN(zeros)(m, p, tables, group, row, inside);
        f32x32 scales = group_scales(&known, p, group, row, inside);
        for (; column < end; column += 8) {
            const struct IN(run) run = IN(open)(m, p, row, column, inside);
            UNROLLED for (int i = 0; i < 8; i++) {
                if (ordered && i) {
                    const size_t other = group_of(&known, column + (size_t)i);
                    zeros = IN(zeros)(m, p, tables, other, row, inside);
                    scales = group_scales(&known, p, other, row, inside);
                }
                const f32x32 numbers = IN(column)(tables, &run, i);
                const f32x32 weights = times_each(minus_each(numbers, zeros), scales);
                UNROLLED for (int t = 0; t < tokens; t++)
                    sums[2 * t + i % 2] = add_product(sums[2 * t + i % 2], weights,
                                                      all_floats(x[(size_t)t * columns + column + (size_t)i]));
            }
        }
    }
    for (int t = 0; t < tokens; t++) {
        float found[32];
        store_numbers(found, 0, FLOAT32, plus_each(sums[2 * t], sums[2 * t + 1]));
        for (size_t i = 0; i < 32 && row + i < known.rows; i++)
            out[(size_t)t * out_stride + place_of(m, row + i)] = known.broken ? NOT_A_NUMBER : found[i];
    }
}

static ALWAYS_INLINE void IN(blocks)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                     const struct IN(tables) *tables, const float *x, float *out, size_t out_stride,
                                     size_t first, size_t last, const int tokens) {
    const int usual = groups->tiles.type == F16_SCALE;
    for (size_t row = first; row < last; row += 32)
        if (row + 32 > groups->rows) IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 1, 0, 0);
        else if (!groups->ordered) IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 0, 1, 0);
        else if (usual) IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 1, 1, 1);
        else IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 1, 1, 0);
}

static void IN(product)(const struct matrix *m, const struct pieces *p, const float *x, int tokens, float *out,
                        size_t out_stride, size_t first, size_t last) {
    const struct groups groups = groups_of(m, p);
    const struct IN(tables) tables = IN(tables)(m);
    for (; tokens >= ROWS_AT_ONCE; tokens -= ROWS_AT_ONCE) {
        IN(blocks)(m, p, &groups, &tables, x, out, out_stride, first, last, ROWS_AT_ONCE);
        x += ROWS_AT_ONCE * (size_t)m->columns, out += ROWS_AT_ONCE * out_stride;
    }
    for (; ROWS_AT_ONCE > 2 && tokens >= 2; tokens -= 2) {
        IN(blocks)(m, p, &groups, &tables, x, out, out_stride, first, last, 2);
        x += 2 * (size_t)m->columns, out += 2 * out_stride;
    }
    for (; tokens; tokens--) {
        IN(blocks)(m, p, &groups, &tables, x, out, out_stride, first, last, 1);
        x += m->columns, out += out_stride;
    }
}

/* Eight columns of 32 rows, in groups of any order. */
static ALWAYS_INLINE void IN(unpack_8)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                       const struct IN(tables) *tables, size_t row, size_t column, void *out,
                                       enum number type, size_t out_stride) {
    const struct IN(run) run = IN(open)(m, p, row, column, 0);
    float weights[8 * 32];
    UNROLLED for (int i = 0; i < 8; i++) {
        const size_t group = group_of(groups, column + (size_t)i);
        const f32x32 zeros = IN(zeros)(m, p, tables, group, row, 0), scales = group_scales(groups, p, group, row, 0);
        const f32x32 numbers = IN(column)(tables, &run, i);
        store_numbers(weights, 32 * (size_t)i, FLOAT32, times_each(minus_each(numbers, zeros), scales));
    }
    for (size_t i = 0; i < 32; i += 8) {
        __m256 turned[8];
        turn(weights + i, turned);
        UNROLLED for (size_t j = 0; j < 8; j++)
            if (row + i + j < groups->rows)
                store_8(out, place_of(m, row + i + j) * out_stride + column, type,
                        groups->broken ? _mm256_set1_ps(NOT_A_NUMBER) : turned[j]);
    }
}

/* 32 columns of one group, of 32 rows: whole cache lines of each row are written. */
static ALWAYS_INLINE void IN(unpack_32)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                        const struct IN(tables) *tables, size_t row, size_t column, void *out,
                                        const enum number type, size_t out_stride) {
    const size_t group = group_of(groups, column);
    uint8_t numbers[32 * 32];
    float zeros[32], scales[32];
    IN(turned)(m, p, row, column, numbers);
    store_numbers(zeros, 0, FLOAT32, IN(zeros)(m, p, tables, group, row, 0));
    store_numbers(scales, 0, FLOAT32, group_scales(groups, p, group, row, 0));
    for (size_t i = 0; i < 32 && row + i < groups->rows; i++)
        store_numbers(out, place_of(m, row + i) * out_stride + column, type,
                      times(minus(floats_of_u8(load32(numbers + 32 * i)), zeros[i]), scales[i]));
}

static void IN(unpack)(const struct matrix *m, const struct pieces *p, void *out, enum number type, size_t out_stride,
                       size_t first, size_t last) {
    const struct groups groups = groups_of(m, p);
    const struct IN(tables) tables = IN(tables)(m);
    const size_t columns = (size_t)m->columns;
    const int by_32 = !groups.ordered && (groups.wide % 32 == 0 || groups.count == 1);
    for (size_t row = first; row < last; row += 32) {
        size_t column = 0;
        for (; by_32 && columns - column >= 32; column += 32) {
            if (type == FLOAT32) IN(unpack_32)(m, p, &groups, &tables, row, column, out, FLOAT32, out_stride);
            if (type == BFLOAT16) IN(unpack_32)(m, p, &groups, &tables, row, column, out, BFLOAT16, out_stride);
            if (type == FLOAT16) IN(unpack_32)(m, p, &groups, &tables, row, column, out, FLOAT16, out_stride);
        }
        for (; column < columns; column += 8)
            IN(unpack_8)(m, p, &groups, &tables, row, column, out, type, out_stride);
    }
}

#undef NAME
#undef IN
#undef JOIN
#undef JOIN_
