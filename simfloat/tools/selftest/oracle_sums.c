/* Sums of the second definition: sequential, unfused, pairwise, Kahan, blocked, and aligned as in matrix units, also with
 * stochastic rounding. They use the operations of oracle.c, and integers only.
 */
#include "oracle.c"

enum { SEQUENTIAL, UNFUSED, KAHAN, PAIRWISE };
enum { MOST_TERMS = 256 };

/* The random bits of an element of a result: Philox4x32-10 (Salmon et al., SC 2011), with the seed as its key. */
typedef struct {
    uint64_t element, seed, call;
    int stage;
    uint64_t step; /* of the first product */
} place;

/* The rounding of the operations of a sum, and of products that have a different format. */
typedef struct {
    int64_t order;
    rules sums, products;
} summation;

static uint32_t word_of(const place *at, uint64_t index, int stage)
{
    uint32_t c[4] = {(uint32_t)at->element, (uint32_t)(index / 4), (uint32_t)at->call,
                     (uint32_t)stage << 24 | (uint32_t)(at->element >> 32) << 12 | (uint32_t)(at->call >> 32)};
    uint32_t key = (uint32_t)at->seed, other = (uint32_t)(at->seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)0xD2511F53 * c[0], q = (uint64_t)0xCD9E8D57 * c[2];
        c[0] = (uint32_t)(q >> 32) ^ c[1] ^ key;
        c[2] = (uint32_t)(p >> 32) ^ c[3] ^ other;
        c[1] = (uint32_t)q;
        c[3] = (uint32_t)p;
        key += 0x9E3779B9;
        other += 0xBB67AE85;
    }
    return c[index % 4];
}

/* A draw of at most 8 bits takes one byte of a word, the lowest first. */
static uint64_t draw_of(const rules *r, const place *at, uint64_t step, int stage)
{
    if (r->mode != STOCHASTIC)
        return 0;
    step += at->step;
    stage += at->stage;
    if (r->bits > 8)
        return word_of(at, step, stage) >> (32 - r->bits);
    return (word_of(at, step / 4, stage) >> step % 4 * 8 & 0xFF) >> (8 - r->bits);
}

static uint64_t ordered(const summation *s, const place *at, int64_t terms, const uint64_t *a, const uint64_t *b)
{
    uint64_t total = 0, correction = 0, nodes[MOST_TERMS];
    int64_t first[MOST_TERMS], count = 0;
    const rules *r = &s->sums;
    uint8_t flags = 0;
    for (int64_t k = 0; k < terms; k++) {
        parts x = unpack(a[k]), y = unpack(b[k]);
        uint64_t draw = draw_of(r, at, k, 0), p = 0;
        if (s->order != SEQUENTIAL)
            p = multiply(x, y, &s->products, draw_of(&s->products, at, k, 1), &flags);
        switch (s->order) {
        case SEQUENTIAL: total = add(product_of(x, y, &flags), unpack(total), r, draw, &flags); break;
        case UNFUSED: total = add(unpack(total), unpack(p), r, draw, &flags); break;
        case KAHAN: {
            uint64_t before = total;
            p = add(unpack(p), unpack(correction ^ SIGN), r, draw_of(r, at, k, 2), &flags);
            total = add(unpack(before), unpack(p), r, draw, &flags);
            correction = add(unpack(total), unpack(before ^ SIGN), r, draw_of(r, at, k, 3), &flags);
            correction = add(unpack(correction), unpack(p ^ SIGN), r, draw_of(r, at, k, 4), &flags);
            break;
        }
        case PAIRWISE:
            first[count] = k;
            nodes[count++] = p;
        }
    }
    /* Adds neighbours level by level; a sum uses the bits of the step of the first product of its right part. */
    while (count > 1) {
        int64_t left = 0;
        for (int64_t i = 0; i < count; i += 2, left++) {
            first[left] = first[i];
            nodes[left] = nodes[i];
            if (i + 1 < count)
                nodes[left] = add(unpack(nodes[i]), unpack(nodes[i + 1]), r, draw_of(r, at, first[i + 1], 0), &flags);
        }
        count = left;
    }
    return s->order == PAIRWISE && terms ? nodes[0] : total;
}

/* Computes `rows` sums of `terms` products in an order. With a size, runs of `size` products are added in the inner order
 * and their results in the outer one. The stages of the outer order come first. Each run has `steps` steps. */
PUBLIC void oracle_ordered(const summation *inner, const summation *outer, int64_t size, int64_t steps, int64_t stages,
                           int64_t rows, int64_t terms, const uint64_t *a, const uint64_t *b, uint64_t seed, uint64_t *out)
{
    const uint64_t one = (uint64_t)1023 << 52;
    for (int64_t i = 0; i < rows; i++) {
        place at = {(uint64_t)i, seed, 0, 1, 0};
        uint64_t results[MOST_TERMS], ones[MOST_TERMS];
        int64_t runs = 0;
        if (!size) {
            out[i] = ordered(inner, &at, terms, a + i * terms, b + i * terms);
            continue;
        }
        for (int64_t start = 0; start < terms; start += size, runs++) {
            int64_t count = start + size < terms ? size : terms - start;
            place within = {(uint64_t)i, seed, 0, 1 + (int)stages, (uint64_t)(runs * steps)};
            results[runs] = ordered(inner, &within, count, a + i * terms + start, b + i * terms + start);
            ones[runs] = one;
        }
        out[i] = ordered(outer, &at, runs, ones, results);
    }
}

/* The parameters of an aligned sum as integers, in the order in which Python writes them. */
typedef struct {
    int64_t chunk, fraction_bits, align, is_hardware; /* totals beyond the largest number become infinite there */
    int64_t zeros_take_part, zero_exponent, emin_a, emin_b;
} unit;

/* Returns the exponent of an operand as a matrix unit reads it: that of its leading bit, at least emin. */
static int read_exponent(parts x, int64_t emin)
{
    int top = x.exponent + length(x.significand) - 1;
    return top > emin ? top : (int)emin;
}

/* Rounds to an integer in units of 2^grid; it fits for products of at most 48 bits and 40 fraction bits. */
static int64_t aligned(parts x, int grid, int64_t align)
{
    int shift = grid - x.exponent;
    uint64_t kept = shift <= 0 ? x.significand << -shift : shift > 63 ? 0 : x.significand >> shift, lost = 0;
    if (shift > 0)
        lost = shift > 63 ? 1 : x.significand & (((uint64_t)1 << shift) - 1);
    if (align == TO_ODD && lost)
        kept |= 1;
    if (align == TOWARD_NEGATIVE && lost)
        kept += x.negative;
    if (align == NEAREST_EVEN && shift > 0 && shift <= 63) {
        uint64_t half = (uint64_t)1 << (shift - 1);
        kept += lost > half || (lost == half && (kept & 1));
    }
    return x.negative ? -(int64_t)kept : (int64_t)kept;
}

static uint64_t chunk_total(const rules *r, const unit *u, uint64_t before, int64_t terms, const uint64_t *a,
                            const uint64_t *b, uint64_t draw)
{
    parts addend = unpack(before);
    int any = 0, largest = 0, plus = 0, minus = 0, undefined = addend.kind == NOT_A_NUMBER;
    int zeros = addend.kind == ZERO || terms < u->chunk;
    int64_t sum = 0;
    uint8_t flags = 0;
    if (addend.kind == INFINITE)
        *(addend.negative ? &minus : &plus) = 1;
    if (addend.kind == NUMBER) {
        any = 1;
        largest = read_exponent(addend, r->emin);
    }
    for (int64_t k = 0; k < terms; k++) {
        parts x = unpack(a[k]), y = unpack(b[k]), p = product_of(x, y, &flags);
        undefined |= p.kind == NOT_A_NUMBER;
        zeros |= p.kind == ZERO;
        if (p.kind == INFINITE)
            *(p.negative ? &minus : &plus) = 1;
        if (p.kind == NUMBER) {
            int exponent = read_exponent(x, u->emin_a) + read_exponent(y, u->emin_b);
            largest = !any || exponent > largest ? exponent : largest;
            any = 1;
        }
    }
    flags = 0;
    if (undefined || (plus && minus))
        return NAN_IMAGE;
    if (plus || minus)
        return u->is_hardware ? (minus ? SIGN : 0) | INFINITY_IMAGE : infinity_of(minus, r, &flags);
    if (zeros && u->zeros_take_part && (!any || u->zero_exponent > largest))
        largest = (int)u->zero_exponent;
    int grid = largest - (int)u->fraction_bits;
    if (addend.kind == NUMBER)
        sum += aligned(addend, grid, u->align);
    for (int64_t k = 0; k < terms; k++) {
        parts p = product_of(unpack(a[k]), unpack(b[k]), &flags);
        if (p.kind == NUMBER)
            sum += aligned(p, grid, u->align);
    }
    flags = 0;
    uint64_t total = pack(sum < 0, (uint64_t)(sum < 0 ? -sum : sum), grid, r, draw, &flags);
    if (flags & OVERFLOW_ && u->is_hardware)
        total = (sum < 0 ? SIGN : 0) | INFINITY_IMAGE;
    return total == SIGN ? 0 : total;
}

/* Computes `rows` sums one chunk at a time: aligns to the largest exponent, truncates to multiples of 2^-fraction_bits of
 * it, adds, and rounds. A stochastic total uses the bits of the step of its chunk. */
PUBLIC void oracle_fused(const rules *r, const unit *u, int64_t rows, int64_t terms, const uint64_t *a, const uint64_t *b,
                         uint64_t seed, uint64_t *out)
{
    for (int64_t i = 0; i < rows; i++) {
        place at = {(uint64_t)i, seed, 0, 1, 0};
        out[i] = 0;
        for (int64_t first = 0; first < terms; first += u->chunk) {
            int64_t count = first + u->chunk < terms ? u->chunk : terms - first;
            uint64_t draw = draw_of(r, &at, first / u->chunk, 0);
            out[i] = chunk_total(r, u, out[i], count, a + i * terms + first, b + i * terms + first, draw);
        }
    }
}
