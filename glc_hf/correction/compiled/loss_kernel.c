/* Copyright 2026 The glc_hf team. Licensed under the Apache License, Version 2.0.

   The corrected cross-entropy of float32 logits, with its gradient: one pass over the logits of an item to find the
   largest, one for the sums, and one for the gradient. The equations are in ../likelihood.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0, within 2 units in the last place, and 0 where the result is not a normal number. Written without
   branches, so that compilers vectorize it: x = n·log 2 + f, and a polynomial for exp(f), |f| <= log(2)/2. */
static inline float exp_of_negative(float x) {
    const float shift = 12582912.0f; /* 1.5·2^23: adding it rounds to an integer */
    const float shifted = x * 1.44269504088896341f + shift;
    int32_t n;
    memcpy(&n, &shifted, 4);
    const float rounded = shifted - shift;
    const float f = (x - rounded * 0.693359375f) - rounded * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    const int32_t bits = (int32_t)((uint32_t)(n - 0x4B400000 + 127) << 23);
    float scale;
    memcpy(&scale, &bits, 4);
    return x < -87.0f ? 0.0f : p * scale; /* NaN stays NaN */
}

/* Fills `losses` (n) and `gradient` (n, k), the gradient multiplied by `weight`, and returns the number of items whose
   likelihood is below `safe` or NaN; their loss is NaN and their gradient undefined. Row j of `rows`, (…, k), has the
   probabilities of label j given each class. Labels are numbers of rows, and classes for items that are `trusted`,
   which may be NULL. */
int64_t corrected_loss(const float *logits, const int64_t *labels, const uint8_t *trusted, const float *rows,
                       int64_t n, int64_t k, float weight, float safe, float *losses, float *gradient) {
    int64_t unsafe = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *x = logits + i * k;
        const float *w = rows + labels[i] * k;
        float *g = gradient + i * k;
        const int plain = trusted != NULL && trusted[i];
        float largest = x[0], total = 0.0f, joint = 0.0f;
#pragma omp simd reduction(max : largest)
        for (int64_t j = 0; j < k; j++) largest = x[j] > largest ? x[j] : largest;
        if (plain) {
#pragma omp simd reduction(+ : total)
            for (int64_t j = 0; j < k; j++) {
                const float e = exp_of_negative(x[j] - largest);
                g[j] = e;
                total += e;
            }
            joint = g[labels[i]];
        } else {
#pragma omp simd reduction(+ : total, joint)
            for (int64_t j = 0; j < k; j++) {
                const float e = exp_of_negative(x[j] - largest);
                g[j] = e;
                total += e;
                joint += e * w[j];
            }
        }
        const float likelihood = joint / total;
        if (!(likelihood >= safe)) {
            unsafe++;
            losses[i] = NAN;
            continue;
        }
        losses[i] = -logf(likelihood);
        const float of_all = weight / total, of_joint = weight / joint;
        if (plain) {
#pragma omp simd
            for (int64_t j = 0; j < k; j++) g[j] *= of_all;
            g[labels[i]] -= weight;
        } else {
#pragma omp simd
            for (int64_t j = 0; j < k; j++) g[j] = g[j] * of_all - g[j] * w[j] * of_joint;
        }
    }
    return unsafe;
}
