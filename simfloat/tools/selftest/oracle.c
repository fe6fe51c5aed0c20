/* A second definition of simfloat's arithmetic, in integers: no floating-point operation occurs below.
 *
 * Arguments and results are bit patterns of IEEE 754 binary64. A number is split into a sign, a significand and an
 * exponent. A result is an exponent and an integer significand whose last bit is sticky; `pack` rounds it as Berkeley
 * SoftFloat does. Operands of the operations are numbers of formats of at most 24 bits of precision and at most the range
 * of FP32; operands of `oracle_round` are any numbers. The code is C99 and needs only stdint.h.
 */
#include <stdint.h>

#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

enum { INEXACT = 1, UNDERFLOW_ = 2, OVERFLOW_ = 4, DIVISION_BY_ZERO = 8, INVALID = 16 };
enum { NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, TOWARD_POSITIVE, TOWARD_NEGATIVE, TO_ODD, STOCHASTIC };
enum { ZERO, NUMBER, INFINITE, NOT_A_NUMBER };

static const uint64_t SIGN = (uint64_t)1 << 63;
static const uint64_t INFINITY_IMAGE = (uint64_t)0x7FF << 52;
static const uint64_t NAN_IMAGE = (uint64_t)0xFFF << 51;

/* A format and a mode as integers, in the order in which Python writes them. */
typedef struct {
    int64_t precision, emin, emax, max_significand; /* the largest number is max_significand * 2^(emax - precision + 1) */
    int64_t has_infinity, has_negative_zero, clamps;
    int64_t mode, bits; /* bits of a random draw */
    int64_t saturates, tiny_before;
} rules;

typedef struct {
    int kind, negative;
    uint64_t significand;
    int exponent; /* of the significand's last bit */
} parts;

static int length(uint64_t x)
{
    int n = 0;
    for (int step = 32; step > 0; step /= 2)
        if (x >> step) {
            x >>= step;
            n += step;
        }
    return n + (x > 0);
}

/* Returns x * 2^-count; the last bit is set if others were lost. */
static uint64_t jammed(uint64_t x, int count)
{
    if (count <= 0)
        return x;
    if (count > 63)
        return x != 0;
    return x >> count | ((x & (((uint64_t)1 << count) - 1)) != 0);
}

static parts unpack(uint64_t image)
{
    int field = (int)(image >> 52 & 0x7FF);
    uint64_t fraction = image & (((uint64_t)1 << 52) - 1);
    parts x = {NUMBER, (int)(image >> 63), fraction, (field ? field : 1) - 1075};
    if (field == 0x7FF)
        x.kind = fraction ? NOT_A_NUMBER : INFINITE;
    else if (field)
        x.significand |= (uint64_t)1 << 52;
    else if (!fraction)
        x.kind = ZERO;
    /* Without trailing zeros, products and sums of narrow numbers fit. */
    while (x.kind == NUMBER && !(x.significand & 1)) {
        x.significand >>= 1;
        x.exponent++;
    }
    return x;
}

/* Returns significand * 2^exponent, a number of binary64. */
static uint64_t image_of(int negative, uint64_t significand, int exponent)
{
    uint64_t sign = negative ? SIGN : 0;
    if (!significand)
        return sign;
    int shift = 53 - length(significand);
    significand <<= shift;
    exponent += 1075 - shift;
    if (exponent <= 0)
        return sign | significand >> (1 - exponent);
    return sign + ((uint64_t)(exponent - 1) << 52) + significand;
}

static int goes_away(uint64_t kept, uint64_t rest, int shift, int negative, const rules *r, uint64_t draw)
{
    uint64_t half = (uint64_t)1 << (shift - 1);
    switch (r->mode) {
    case NEAREST_EVEN: return rest > half || (rest == half && (kept & 1));
    case NEAREST_AWAY: return rest >= half;
    case TOWARD_POSITIVE: return rest && !negative;
    case TOWARD_NEGATIVE: return rest && negative;
    case TO_ODD: return rest && !(kept & 1);
    case STOCHASTIC: {
        int drop = shift - (int)r->bits;
        uint64_t steps = drop > 0 ? rest >> drop : rest << -drop;
        if (drop > 0) { /* variant C: to the nearest number of steps, ties to even */
            uint64_t below = rest & (((uint64_t)1 << drop) - 1), middle = (uint64_t)1 << (drop - 1);
            steps += below > middle || (below == middle && (steps & 1));
        }
        return steps + draw >= (uint64_t)1 << r->bits;
    }
    }
    return 0;
}

/* Returns the significand in units of 2^last; *rest is set if bits are lost. */
static uint64_t rounded(uint64_t significand, int exponent, int last, int negative, const rules *r, uint64_t draw, int *rest)
{
    int shift = last - exponent;
    if (shift > 62) {
        significand = jammed(significand, shift - 62);
        shift = 62;
    }
    *rest = 0;
    if (shift <= 0)
        return significand << -shift;
    uint64_t lost = significand & (((uint64_t)1 << shift) - 1), kept = significand >> shift;
    *rest = lost != 0;
    return kept + (uint64_t)goes_away(kept, lost, shift, negative, r, draw);
}

static int stops(int negative, const rules *r)
{
    return r->saturates || r->clamps || r->mode == TOWARD_ZERO || r->mode == TO_ODD ||
           (r->mode == TOWARD_POSITIVE && negative) || (r->mode == TOWARD_NEGATIVE && !negative);
}

static uint64_t beyond(int negative, int stays, const rules *r)
{
    if (stays)
        return image_of(negative, (uint64_t)r->max_significand, (int)(r->emax - r->precision + 1));
    return r->has_infinity ? (negative ? SIGN : 0) | INFINITY_IMAGE : NAN_IMAGE;
}

static uint64_t zero_of(int negative, const rules *r)
{
    return negative && r->has_negative_zero ? SIGN : 0;
}

static uint64_t infinity_of(int negative, const rules *r, uint8_t *flags)
{
    int stays = r->saturates || r->clamps;
    if (stays || !r->has_infinity)
        *flags |= OVERFLOW_ | INEXACT;
    return beyond(negative, stays, r);
}

/* Returns significand * 2^exponent, rounded; the last bit may be sticky. */
static uint64_t pack(int negative, uint64_t significand, int exponent, const rules *r, uint64_t draw, uint8_t *flags)
{
    if (!significand)
        return zero_of(negative, r);
    int top = exponent + length(significand) - 1, places = (int)r->precision - 1, rest, ignored;
    int tiny = top < r->emin;
    if (tiny && !r->tiny_before && top == r->emin - 1)
        tiny = !(rounded(significand, exponent, top - places, negative, r, draw, &ignored) >> r->precision);
    int last = (top > r->emin ? top : (int)r->emin) - places;
    uint64_t kept = rounded(significand, exponent, last, negative, r, draw, &rest);
    if (kept >> r->precision) {
        kept >>= 1;
        last++;
    }
    int above = last + places;
    if ((kept >> places) && (above > r->emax || (above == r->emax && kept > (uint64_t)r->max_significand))) {
        *flags |= OVERFLOW_ | INEXACT;
        return beyond(negative, stops(negative, r), r);
    }
    if (rest)
        *flags |= INEXACT | (tiny ? UNDERFLOW_ : 0);
    return kept ? image_of(negative, kept, last) : zero_of(negative, r);
}

static uint64_t rounded_number(uint64_t image, const rules *r, uint64_t draw, uint8_t *flags)
{
    parts x = unpack(image);
    switch (x.kind) {
    case NOT_A_NUMBER: return NAN_IMAGE;
    case INFINITE: return infinity_of(x.negative, r, flags);
    case ZERO: return zero_of(x.negative, r);
    }
    return pack(x.negative, x.significand, x.exponent, r, draw, flags);
}

static uint64_t invalid(uint8_t *flags)
{
    *flags |= INVALID;
    return NAN_IMAGE;
}

/* Returns the sum of two finite numbers that are not both zero. */
static uint64_t sum_of(parts x, parts y, const rules *r, uint64_t draw, uint8_t *flags)
{
    if (x.kind == ZERO || y.kind == ZERO) {
        parts z = x.kind == ZERO ? y : x;
        return pack(z.negative, z.significand, z.exponent, r, draw, flags);
    }
    /* Both leading bits are at 61, so bits that are shifted out are far below the last place of the result. */
    int up = 62 - length(x.significand);
    x.significand <<= up;
    x.exponent -= up;
    up = 62 - length(y.significand);
    y.significand <<= up;
    y.exponent -= up;
    int exponent = x.exponent > y.exponent ? x.exponent : y.exponent;
    x.significand = jammed(x.significand, exponent - x.exponent);
    y.significand = jammed(y.significand, exponent - y.exponent);
    if (x.negative == y.negative)
        return pack(x.negative, x.significand + y.significand, exponent, r, draw, flags);
    if (x.significand == y.significand)
        return zero_of(r->mode == TOWARD_NEGATIVE, r);
    if (x.significand > y.significand)
        return pack(x.negative, x.significand - y.significand, exponent, r, draw, flags);
    return pack(y.negative, y.significand - x.significand, exponent, r, draw, flags);
}

static uint64_t add(parts x, parts y, const rules *r, uint64_t draw, uint8_t *flags)
{
    if (x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER)
        return NAN_IMAGE;
    if (x.kind == INFINITE && y.kind == INFINITE && x.negative != y.negative)
        return invalid(flags);
    if (x.kind == INFINITE || y.kind == INFINITE)
        return infinity_of(x.kind == INFINITE ? x.negative : y.negative, r, flags);
    if (x.kind == ZERO && y.kind == ZERO)
        return zero_of(x.negative == y.negative ? x.negative : r->mode == TOWARD_NEGATIVE, r);
    return sum_of(x, y, r, draw, flags);
}

/* Returns the exact product; 0 * infinity is NaN and raises invalid, whatever is added to it. */
static parts product_of(parts x, parts y, uint8_t *flags)
{
    parts p = {NUMBER, x.negative ^ y.negative, x.significand * y.significand, x.exponent + y.exponent};
    if ((x.kind == ZERO && y.kind == INFINITE) || (x.kind == INFINITE && y.kind == ZERO)) {
        *flags |= INVALID;
        p.kind = NOT_A_NUMBER;
    } else if (x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER)
        p.kind = NOT_A_NUMBER;
    else if (x.kind == INFINITE || y.kind == INFINITE)
        p.kind = INFINITE;
    else if (x.kind == ZERO || y.kind == ZERO)
        p.kind = ZERO;
    return p;
}

static uint64_t multiply(parts x, parts y, const rules *r, uint64_t draw, uint8_t *flags)
{
    parts p = product_of(x, y, flags);
    switch (p.kind) {
    case NOT_A_NUMBER: return NAN_IMAGE;
    case INFINITE: return infinity_of(p.negative, r, flags);
    case ZERO: return zero_of(p.negative, r);
    }
    return pack(p.negative, p.significand, p.exponent, r, draw, flags);
}

static uint64_t divide(parts x, parts y, const rules *r, uint64_t draw, uint8_t *flags)
{
    int negative = x.negative ^ y.negative;
    if (x.kind == NOT_A_NUMBER || y.kind == NOT_A_NUMBER)
        return NAN_IMAGE;
    if (x.kind == y.kind && x.kind != NUMBER)
        return invalid(flags);
    if (x.kind == INFINITE)
        return infinity_of(negative, r, flags);
    if (y.kind == ZERO) {
        *flags |= DIVISION_BY_ZERO;
        return infinity_of(negative, r, flags);
    }
    if (x.kind == ZERO || y.kind == INFINITE)
        return zero_of(negative, r);
    int up = 62 - length(x.significand);
    uint64_t dividend = x.significand << up, quotient = dividend / y.significand;
    quotient = quotient << 1 | (dividend % y.significand != 0);
    return pack(negative, quotient, x.exponent - up - y.exponent - 1, r, draw, flags);
}

/* Computes results and flags of n operations: 'r'ound, '+', '-', '*', '/', 'f'ma. Each result has a draw below 2^bits. */
PUBLIC void oracle_operate(int64_t operation, const rules *r, int64_t n, const uint64_t *a, const uint64_t *b,
                           const uint64_t *c, const uint32_t *draws, uint64_t *out, uint8_t *flags)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t draw = r->mode == STOCHASTIC ? draws[i] : 0;
        flags[i] = 0;
        switch (operation) {
        case 'r': out[i] = rounded_number(a[i], r, draw, &flags[i]); break;
        case '+': out[i] = add(unpack(a[i]), unpack(b[i]), r, draw, &flags[i]); break;
        case '-': out[i] = add(unpack(a[i]), unpack(b[i] ^ SIGN), r, draw, &flags[i]); break;
        case '*': out[i] = multiply(unpack(a[i]), unpack(b[i]), r, draw, &flags[i]); break;
        case '/': out[i] = divide(unpack(a[i]), unpack(b[i]), r, draw, &flags[i]); break;
        case 'f': out[i] = add(product_of(unpack(a[i]), unpack(b[i]), &flags[i]), unpack(c[i]), r, draw, &flags[i]);
        }
    }
}
