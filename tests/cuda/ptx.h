/* The instructions of PTX that kernels consist of, as C functions of their names, on the images of numbers. A result of
   FP32, FP16 or BF16 that is NaN is the one that a GPU makes. What is not defined here is not translated. */

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef _Bool pred;
typedef uint8_t b8;
typedef uint16_t b16;
typedef uint32_t b32;
typedef uint64_t b64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define OP static inline

/* Numbers and their images */

OP float of_f32(b32 x) { float f; memcpy(&f, &x, 4); return f; }
OP double of_f64(b64 x) { double f; memcpy(&f, &x, 8); return f; }
OP float of_f16(b16 x) { _Float16 f; memcpy(&f, &x, 2); return f; }
OP double of_bf16(b16 x) { return of_f32((b32)x << 16); }
OP b32 as_f32(float f) { b32 x; memcpy(&x, &f, 4); return f == f ? x : 0x7fffffff; }
OP b64 as_f64(double f) { b64 x; memcpy(&x, &f, 8); return x; }
OP b16 as_f16(double f) { _Float16 h = f; b16 x; memcpy(&x, &h, 2); return f == f ? x : 0x7fff; }

OP b16 as_bf16(double f) /* to nearest even: a subnormal result is rounded by an addition of its own */
{
    if (f != f) return 0x7fff;
    b64 x = as_f64(f), kept = 45, sign = x >> 48 & 0x8000;
    if (fabs(f) < 0x1p-126) return sign | (b16)(fabs(f) * 0x1p133 + 0x1p52 - 0x1p52);
    x += ((b64)1 << (kept - 1)) - 1 + (x >> kept & 1);
    f = fabs(of_f64(x >> kept << kept));
    return sign | (f >= 0x1p128 ? 0x7f80 : as_f32((float)f) >> 16);
}

OP double odd_sum(double a, double b) /* rounded to odd (Boldo and Melquiond 2008): to be rounded once more */
{
    double s = a + b, t = s - a, rest = (a - (s - t)) + (b - t);
    b64 x = as_f64(s);
    if (!(fabs(s) < INFINITY) || rest == 0 || x & 1) return s;
    return of_f64((rest > 0) == (s > 0) ? x + 1 : x - 1);
}

/* Memory, in which arrays lie between other bytes: see `ptx.py` */

static b64 arrays[16][2], beyond[4];
static int array_count, strangers;

OP void *within(b64 at, int bytes)
{
    for (int i = 0; i < array_count; i++)
        if (at % bytes == 0 && at >= arrays[i][0] && at + bytes <= arrays[i][0] + arrays[i][1]) return (void *)at;
    strangers++;
    return beyond;
}

#define READ(space, type, bits, place) \
    OP b##bits ld_##space##_##type(b64 at) { b##bits x; memcpy(&x, place, bits / 8); return x; }
#define WRITE(space, type, bits, place) \
    OP void st_##space##_##type(b64 at, b##bits x) { memcpy(place, &x, bits / 8); }
#define SPACES(type, bits) \
    READ(global, type, bits, within(at, bits / 8)) WRITE(global, type, bits, within(at, bits / 8)) \
    READ(local, type, bits, (void *)at) WRITE(local, type, bits, (void *)at) READ(global_nc, type, bits, (void *)at) \
    READ(param, type, bits, (void *)at)
SPACES(b8, 8) SPACES(u8, 8) SPACES(b16, 16) SPACES(u16, 16) SPACES(b32, 32) SPACES(u32, 32) SPACES(f32, 32)
SPACES(b64, 64) SPACES(u64, 64) SPACES(f64, 64)

#define ATOMIC(name, type, result) \
    OP b64 atom_global_##name##_##type(b64 at, b64 given) \
    { type *place = within(at, 8), old = *place, x = given; *place = result; return old; }
ATOMIC(add, u64, old + x) ATOMIC(or, b64, old | x) ATOMIC(min, s64, old < x ? old : x)
ATOMIC(max, s64, old > x ? old : x)

/* Bits */

#define BITS(n) \
    OP b##n and_b##n(b##n a, b##n b) { return a & b; } \
    OP b##n or_b##n(b##n a, b##n b) { return a | b; } \
    OP b##n xor_b##n(b##n a, b##n b) { return a ^ b; } \
    OP b##n not_b##n(b##n a) { return ~a; } \
    OP b##n shl_b##n(b##n a, b32 by) { return by < n ? a << by : 0; } \
    OP b##n shr_u##n(b##n a, b32 by) { return by < n ? a >> by : 0; } \
    OP b##n shr_s##n(b##n a, b32 by) { return (s##n)a >> (by < n ? by : n - 1); }
BITS(16) BITS(32) BITS(64)

OP pred and_pred(pred a, pred b) { return a && b; }
OP pred or_pred(pred a, pred b) { return a || b; }
OP pred xor_pred(pred a, pred b) { return a != b; }
OP pred not_pred(pred a) { return !a; }
OP pred mov_pred(pred a) { return a; }
OP b64 cvta_to_global_u64(b64 a) { return a; }

#define MOVED(type, n) \
    OP b##n mov_##type(b##n a) { return a; } OP b##n selp_##type(b##n a, b##n b, pred p) { return p ? a : b; }
MOVED(b16, 16) MOVED(u16, 16) MOVED(s16, 16) MOVED(b32, 32) MOVED(u32, 32) MOVED(s32, 32) MOVED(f32, 32)
MOVED(b64, 64) MOVED(u64, 64) MOVED(s64, 64) MOVED(f64, 64)

/* Integers */

#define COMPARED(name, type, relation) OP pred setp_##name##_##type(type a, type b) { return a relation b; }
#define INTEGER(type, n) \
    COMPARED(eq, type, ==) COMPARED(ne, type, !=) COMPARED(lt, type, <) COMPARED(le, type, <=) COMPARED(gt, type, >) \
    COMPARED(ge, type, >=) \
    OP b##n min_##type(type a, type b) { return a < b ? a : b; } \
    OP b##n max_##type(type a, type b) { return a > b ? a : b; } \
    OP b##n div_##type(type a, type b) { return a / b; } \
    OP b##n rem_##type(type a, type b) { return a % b; } \
    OP b##n add_##type(b##n a, b##n b) { return a + b; } \
    OP b##n sub_##type(b##n a, b##n b) { return a - b; } \
    OP b##n neg_##type(b##n a) { return -a; } \
    OP b##n mul_lo_##type(b##n a, b##n b) { return (b64)a * b; }
INTEGER(s16, 16) INTEGER(u16, 16) INTEGER(s32, 32) INTEGER(u32, 32) INTEGER(s64, 64) INTEGER(u64, 64)
COMPARED(eq, b16, ==) COMPARED(eq, b32, ==) COMPARED(eq, b64, ==) COMPARED(ne, b32, !=) COMPARED(ne, b64, !=)
OP b64 mul_wide_s32(s32 a, s32 b) { return (s64)a * b; }
OP b64 mul_wide_u32(u32 a, u32 b) { return (u64)a * b; }

#define CUT(to, n, from) OP b##n cvt_##to##_##from(from a) { return a; }
CUT(u16, 16, u32) CUT(u16, 16, u64) CUT(u32, 32, u64) CUT(u64, 64, u32) CUT(s64, 64, s32) CUT(u32, 32, u16)

/* Floating point */

#define ONE(name, type, n, result) \
    OP b##n name##_##type(b##n p) { __typeof__(of_##type(0)) x = of_##type(p); return as_##type(result); }
#define TWO(name, type, n, result) \
    OP b##n name##_##type(b##n p, b##n q) \
    { __typeof__(of_##type(0)) x = of_##type(p), y = of_##type(q); return as_##type(result); }
#define TEST(name, type, n, result) \
    OP pred setp_##name##_##type(b##n p, b##n q) \
    { __typeof__(of_##type(0)) x = of_##type(p), y = of_##type(q); return result; }
#define LESS(x, y) ((x) < (y) || ((x) == (y) && signbit(x) && !signbit(y)))
#define FLOATING(type, n) \
    TWO(add_rn, type, n, x + y) TWO(sub_rn, type, n, x - y) TWO(mul_rn, type, n, x * y) \
    TEST(eq, type, n, x == y) TEST(lt, type, n, x < y) TEST(le, type, n, x <= y) TEST(gt, type, n, x > y) \
    TEST(ge, type, n, x >= y) TEST(neu, type, n, x != y) TEST(ltu, type, n, !(x >= y)) TEST(leu, type, n, !(x > y)) \
    TEST(gtu, type, n, !(x <= y)) TEST(geu, type, n, !(x < y)) TEST(num, type, n, x == x && y == y) \
    TEST(nan, type, n, x != x || y != y)
#define WIDE(type, n, one) \
    FLOATING(type, n) TWO(div_rn, type, n, x / y) ONE(rcp_rn, type, n, 1 / x) ONE(sqrt_rn, type, n, sqrt(x)) \
    TWO(min, type, n, x != x || LESS(y, x) ? y : x) TWO(max, type, n, x != x || LESS(x, y) ? y : x) \
    OP b##n abs_##type(b##n p) { return p & ~one; } \
    OP b##n neg_##type(b##n p) { return p ^ one; } \
    OP b##n copysign_##type(b##n p, b##n q) { return (p & one) | (q & ~one); }
FLOATING(f16, 16) WIDE(f32, 32, 0x80000000) WIDE(f64, 64, 0x8000000000000000)

OP b32 fma_rn_f32(b32 a, b32 b, b32 c) { return as_f32(fmaf(of_f32(a), of_f32(b), of_f32(c))); }
OP b64 fma_rn_f64(b64 a, b64 b, b64 c) { return as_f64(fma(of_f64(a), of_f64(b), of_f64(c))); }
OP b16 fma_rn_f16(b16 a, b16 b, b16 c) { return as_f16(odd_sum((double)of_f16(a) * of_f16(b), of_f16(c))); }
OP b16 fma_rn_bf16(b16 a, b16 b, b16 c) { return as_bf16(odd_sum(of_bf16(a) * of_bf16(b), of_bf16(c))); }
#define PAIRED(kind) \
    OP b32 fma_rn_##kind##x2(b32 a, b32 b, b32 c) \
    { \
        return fma_rn_##kind(a, b, c) | (b32)fma_rn_##kind(a >> 16, b >> 16, c >> 16) << 16; \
    }
PAIRED(f16)
PAIRED(bf16)

/* In the processor's own directed modes; what is volatile is computed where it stands. */
#define DIRECTED(suffix, mode) \
    static float in_##suffix(int kind, volatile float x, volatile float y, volatile float z) \
    { \
        fesetround(mode); \
        volatile float result = kind == 0 ? x + y : kind == 1 ? x * y : fmaf(x, y, z); \
        fesetround(FE_TONEAREST); \
        return result; \
    } \
    OP b32 add_##suffix##_f32(b32 a, b32 b) { return as_f32(in_##suffix(0, of_f32(a), of_f32(b), 0)); } \
    OP b32 mul_##suffix##_f32(b32 a, b32 b) { return as_f32(in_##suffix(1, of_f32(a), of_f32(b), 0)); } \
    OP b32 fma_##suffix##_f32(b32 a, b32 b, b32 c) \
    { return as_f32(in_##suffix(2, of_f32(a), of_f32(b), of_f32(c))); }
DIRECTED(rz, FE_TOWARDZERO) DIRECTED(rp, FE_UPWARD) DIRECTED(rm, FE_DOWNWARD)

#define CONVERTED(name, to, n, from, m, result) \
    OP b##n cvt_##name##to##_##from(b##m p) { __typeof__(of_##from(0)) x = of_##from(p); return result; }
CONVERTED(, f32, 32, f16, 16, as_f32(x)) CONVERTED(, f64, 64, f16, 16, as_f64(x)) CONVERTED(, f64, 64, f32, 32, as_f64(x))
CONVERTED(rn_, f32, 32, f64, 64, as_f32(x)) CONVERTED(rn_, f16, 16, f32, 32, as_f16(x))
CONVERTED(rzi_, f64, 64, f64, 64, as_f64(trunc(x))) CONVERTED(rmi_, f64, 64, f64, 64, as_f64(floor(x)))
#define WHOLE(to, n, from, m, least, beyond) \
    CONVERTED(rzi_, to, n, from, m, x != x ? 0 : x <= least ? (to)least : x >= beyond ? (to)~(to)(least) : (to)x)
WHOLE(u32, 32, f32, 32, 0, 0x1p32) WHOLE(u32, 32, f64, 64, 0, 0x1p32) WHOLE(u64, 64, f64, 64, 0, 0x1p64)
WHOLE(s32, 32, f32, 32, -0x1p31, 0x1p31) WHOLE(s32, 32, f64, 64, -0x1p31, 0x1p31)
WHOLE(s64, 64, f64, 64, -0x1p63, 0x1p63)
#define NUMBER(from) \
    OP b32 cvt_rn_f32_##from(from a) { return as_f32(a); } OP b64 cvt_rn_f64_##from(from a) { return as_f64(a); }
NUMBER(s32) NUMBER(u32) NUMBER(s64) NUMBER(u64)
