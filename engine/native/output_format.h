/* Writes NAME_product and NAME_unpack for a format whose neighbours in memory are outputs: whole numbers with scales
   [groups, rows], zero points likewise, (number - zero point) * scale. Included by each of them, which holds

     #define NAME my_format
     static inline int my_format_fits(m)           as in kernels.h; columns are a multiple of 8
     struct my_format_tables                       what is looked up, ready in registers
     my_format_tables(m)                           makes it
     struct my_format_run                          the numbers of 8 columns and 32 rows
     my_format_open(m, p, row, column)             opens one; what lies outside of the matrix is anything
     my_format_column(tables, run, i)              32 numbers of its column i
     my_format_zeros(m, p, tables, group, row)     32 zero points of a group

   32 rows are computed at a time, and pieces of work begin at multiples of them. Columns may be in groups in any order;
   where the file gives a group that does not exist, there are no weights: all are NaN. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(name) JOIN(NAME, name)

/* 32 rows times `tokens` rows of activations. Even and odd columns have sums of their own that do not wait for each
   other. */
static ALWAYS_INLINE void IN(block)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                    const struct IN(tables) *tables, const float *x, float *out, size_t out_stride,
                                    size_t row, const int tokens, const int ordered) {
    const size_t columns = (size_t)m->columns;
    f32x32 sums[8] = {0};
    for (size_t column = 0; column < columns;) {
        const size_t group = group_of(groups, column);
        size_t end = ordered ? column + 8 : (group + 1) * groups->wide;
        if (end > columns) end = columns;
        f32x32 zeros = IN(zeros)(m, p, tables, group, row), scales = group_scales(groups, p, group, row);
        for (; column < end; column += 8) {
            const struct IN(run) run = IN(open)(m, p, row, column);
            UNROLLED for (int i = 0; i < 8; i++) {
                if (ordered && i) {
                    const size_t other = group_of(groups, column + (size_t)i);
                    zeros = IN(zeros)(m, p, tables, other, row), scales = group_scales(groups, p, other, row);
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
        for (size_t i = 0; i < 32 && row + i < groups->rows; i++)
            out[(size_t)t * out_stride + place_of(m, row + i)] = groups->broken ? NOT_A_NUMBER : found[i];
    }
}

static ALWAYS_INLINE void IN(blocks)(const struct matrix *m, const struct pieces *p, const struct groups *groups,
                                     const struct IN(tables) *tables, const float *x, float *out, size_t out_stride,
                                     size_t first, size_t last, const int tokens) {
    for (size_t row = first; row < last; row += 32)
        if (groups->ordered) IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 1);
        else IN(block)(m, p, groups, tables, x, out, out_stride, row, tokens, 0);
}

static void IN(product)(const struct matrix *m, const struct pieces *p, const float *x, int tokens, float *out,
                        size_t out_stride, size_t first, size_t last) {
    const struct groups groups = groups_of(m, p);
    const struct IN(tables) tables = IN(tables)(m);
    for (; tokens >= ROWS_AT_ONCE; tokens -= ROWS_AT_ONCE) {
        IN(blocks)(m, p, &groups, &tables, x, out, out_stride, first, last, ROWS_AT_ONCE);
        x += ROWS_AT_ONCE * (size_t)m->columns, out += ROWS_AT_ONCE * out_stride;
    }
    for (; tokens; tokens--) {
        IN(blocks)(m, p, &groups, &tables, x, out, out_stride, first, last, 1);
        x += m->columns, out += out_stride;
    }
}

static void IN(unpack)(const struct matrix *m, const struct pieces *p, void *out, enum number type, size_t out_stride,
                       size_t first, size_t last) {
    const struct groups groups = groups_of(m, p);
    const struct IN(tables) tables = IN(tables)(m);
    const size_t columns = (size_t)m->columns;
    for (size_t row = first; row < last; row += 32) {
        const size_t rows = groups.rows - row < 32 ? groups.rows - row : 32;
        size_t known = groups.count;
        f32x32 zeros = all_floats(0.0f), scales = zeros;
        for (size_t column = 0; column < columns; column += 8) {
            const struct IN(run) run = IN(open)(m, p, row, column);
            float weights[8 * 32];
            UNROLLED for (int i = 0; i < 8; i++) {
                const size_t group = group_of(&groups, column + (size_t)i);
                if (group != known) {
                    zeros = IN(zeros)(m, p, &tables, group, row), scales = group_scales(&groups, p, group, row);
                    known = group;
                }
                const f32x32 numbers = IN(column)(&tables, &run, i);
                store_numbers(weights, 32 * (size_t)i, FLOAT32, times_each(minus_each(numbers, zeros), scales));
            }
            for (size_t i = 0; i < rows; i += 8) {
                __m256 turned[8];
                turn(weights + i, turned);
                UNROLLED for (size_t j = 0; j < 8; j++)
                    if (i + j < rows)
                        store_8(out, place_of(m, row + i + j) * out_stride + column, type,
                                groups.broken ? _mm256_set1_ps(NOT_A_NUMBER) : turned[j]);
            }
        }
    }
}

#undef NAME
#undef IN
#undef JOIN
#undef JOIN_
