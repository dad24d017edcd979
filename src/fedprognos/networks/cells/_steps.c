/* The steps of a GRU that wait for the step before, forward and back, for a batch of sequences.

   Torch does these steps by small calls from Python, and the calls cost more than the arithmetic. Everything that can
   be done for all steps at once stays in torch: see gru.py, which holds the same loops in plain torch, too. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The loader picks the widest vectors that the processor has. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#if defined(_MSC_VER)
#define INLINE static __forceinline
#define restrict __restrict
#else
#define INLINE static inline __attribute__((always_inline))
#endif
/* A tile of ROWS x LANES sums stays in registers while it runs over all terms. */
#define LANES 32
#define ROWS 4

/* What a sigmoid and a tanh are given: beyond it they do not change, and e^x stays a number. These limits have a loop
   of their own, because compilers make no vectors of a loop that has both the limits and the exponential. */
INLINE float limited(float x, float most) { return x < -most ? -most : x > most ? most : x; }
#define MOST_S 87.0f
#define MOST_T 43.5f

INLINE float exp_f(float x) {
    /* e^x = 2^n 2^f, f in [-1/2, 1/2]; a polynomial of degree 6 has an error of 2e-8 there. */
    float y = x * 1.44269504f;
    float n = (float)(int32_t)(y + 200.5f) - 200.0f; /* rounds to the nearest, because y + 200 is positive */
    float f = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, 4);
    return p * scale;
}
INLINE float sigmoid_f(float x) { return 1.0f / (1.0f + exp_f(-x)); }
INLINE float tanh_f(float x) { return 2.0f / (1.0f + exp_f(-2.0f * x)) - 1.0f; }

/* out (B, N) = add (B, N or one row) + a (B, K) w (K, N) */
INLINE void product(const float *a, long lda, const float *w, const float *add, long ldadd, float *out, long ldo,
                    long B, long K, long N) {
    for (long j = 0; j < N; j += LANES) {
        long n = N - j < LANES ? N - j : LANES;
        long b = 0;
        if (n == LANES) {
            for (; b + ROWS <= B; b += ROWS) {
                float acc[ROWS][LANES];
                for (int r = 0; r < ROWS; r++)
                    for (int c = 0; c < LANES; c++) acc[r][c] = add[(b + r) * ldadd + j + c];
                for (long k = 0; k < K; k++) {
                    const float *row = w + k * N + j;
                    for (int r = 0; r < ROWS; r++) {
                        float v = a[(b + r) * lda + k];
                        for (int c = 0; c < LANES; c++) acc[r][c] += v * row[c];
                    }
                }
                for (int r = 0; r < ROWS; r++)
                    for (int c = 0; c < LANES; c++) out[(b + r) * ldo + j + c] = acc[r][c];
            }
        }
        for (; b < B; b++) {
            float acc[LANES];
            for (long c = 0; c < n; c++) acc[c] = add[b * ldadd + j + c];
            for (long k = 0; k < K; k++) {
                const float *row = w + k * N + j;
                float v = a[b * lda + k];
                for (long c = 0; c < n; c++) acc[c] += v * row[c];
            }
            for (long c = 0; c < n; c++) out[b * ldo + j + c] = acc[c];
        }
    }
}

/* gates (T, B, 2H) and fresh (T, B, H) come with the inputs' part and become reset, update and new. recurrent
   (T, B, 3H) and states (T + 1, B, H) are filled; states[0] is given. w (H, 3H), bias (3H). */
CLONES static void run_forward(long T, long B, long H, float *gates, float *fresh, float *recurrent, float *states,
                               const float *w, const float *bias) {
    for (long t = 0; t < T; t++) {
        const float *h = states + t * B * H;
        float *g = gates + t * B * 2 * H, *f = fresh + t * B * H;
        float *p = recurrent + t * B * 3 * H, *out = states + (t + 1) * B * H;
        product(h, H, w, bias, 0, p, 3 * H, B, H, 3 * H);
        for (long b = 0; b < B; b++) {
            float *restrict gb = g + b * 2 * H, *restrict fb = f + b * H, *restrict ob = out + b * H;
            const float *restrict pb = p + b * 3 * H, *restrict hb = h + b * H;
            for (long k = 0; k < 2 * H; k++) gb[k] = limited(gb[k] + pb[k], MOST_S);
            for (long k = 0; k < 2 * H; k++) gb[k] = sigmoid_f(gb[k]);
            for (long k = 0; k < H; k++) fb[k] = limited(fb[k] + gb[k] * pb[2 * H + k], MOST_T);
            for (long k = 0; k < H; k++) {
                float n = tanh_f(fb[k]);
                fb[k] = n;
                ob[k] = n + gb[H + k] * (hb[k] - n);
            }
        }
    }
}

/* d (T, B, H) is the gradient of the outputs. d_gates (T, B, 4H) becomes that of the products: of the new state by the
   inputs, of reset and update by both, of the new state by the state before. back (B, H) comes as zeros and becomes the
   gradient of the first state. w (3H, H), carry (B, H). */
CLONES static void run_backward(long T, long B, long H, const float *d, float *d_gates, const float *gates,
                                const float *fresh, const float *recurrent, const float *states, const float *w,
                                float *back, float *carry) {
    for (long t = T - 1; t >= 0; t--) {
        for (long b = 0; b < B; b++) {
            long at = t * B + b;
            const float *restrict db = d + at * H;
            float *restrict q = d_gates + at * 4 * H;
            float *restrict bb = back + b * H, *restrict cb = carry + b * H;
            const float *restrict g = gates + at * 2 * H, *restrict f = fresh + at * H;
            const float *restrict p = recurrent + at * 3 * H, *restrict h = states + at * H;
            for (long k = 0; k < H; k++) {
                float e = db[k] + bb[k], r = g[k], z = g[H + k], n = f[k];
                float open = (1.0f - z) * (1.0f - n * n) * e;
                q[k] = open;
                q[H + k] = open * p[2 * H + k] * r * (1.0f - r);
                q[2 * H + k] = (h[k] - n) * z * (1.0f - z) * e;
                q[3 * H + k] = open * r;
                cb[k] = e * z;
            }
        }
        product(d_gates + t * B * 4 * H + H, 4 * H, w, carry, H, back, H, B, 3 * H, H);
    }
}

/* Addresses come as numbers: torch owns the memory, and gru.py makes every tensor float32 and contiguous. */
#define AT(k) ((float *)(uintptr_t)at[k])

static PyObject *forward(PyObject *self, PyObject *args) {
    long T, B, H;
    unsigned long long at[6];
    if (!PyArg_ParseTuple(args, "lllKKKKKK", &T, &B, &H, &at[0], &at[1], &at[2], &at[3], &at[4], &at[5])) return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_forward(T, B, H, AT(0), AT(1), AT(2), AT(3), AT(4), AT(5));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *backward(PyObject *self, PyObject *args) {
    long T, B, H;
    unsigned long long at[9];
    if (!PyArg_ParseTuple(args, "lllKKKKKKKKK", &T, &B, &H, &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6],
                          &at[7], &at[8]))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    run_backward(T, B, H, AT(0), AT(1), AT(2), AT(3), AT(4), AT(5), AT(6), AT(7), AT(8));
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"forward", forward, METH_VARARGS, "forward(T, B, H, gates, fresh, recurrent, states, w, bias)"},
    {"backward", backward, METH_VARARGS,
     "backward(T, B, H, d, d_gates, gates, fresh, recurrent, states, w, back, carry)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_steps", "Steps of a GRU.", -1, methods};
PyMODINIT_FUNC PyInit__steps(void) { return PyModule_Create(&module); }
