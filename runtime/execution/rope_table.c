/* rope_table.c - see rope_table.h. The formulas are those of transformers 5.23,
 * modeling_rope_utils.py; each function below is named after the one it follows. */
#include "runtime/execution/rope_table.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

static const double two_pi = 6.283185307179586;

/* theta^(2j/d) */
static float wave_of(double theta, uint32_t dim, uint32_t pair)
{
    const float exponent = (float)(2 * pair) / (float)dim;
    return (float)pow(theta, (double)exponent);
}

static double clamp(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* _compute_dynamic_ntk_parameters: the theta that stretches the longest wave over the sequence. */
static double dynamic_theta(const struct rope *r)
{
    const double original = r->original_positions;
    const double positions = r->positions > original ? r->positions : original;
    const double factor = (double)r->factor, d = r->dim;
    const double stretch = factor * positions / original - (factor - 1);
    return (double)r->theta * pow(stretch, d / (d - 2));
}

/* _compute_yarn_parameters: the pair, as a real number, that turns `turns` times over the original
 * positions. */
static double yarn_bound(const struct rope *r, double turns)
{
    return r->dim * log(r->original_positions / (turns * two_pi)) / (2 * log((double)r->theta));
}

static float yarn_frequency(const struct rope *r, float plain, uint32_t pair)
{
    double low = yarn_bound(r, (double)r->beta_fast), high = yarn_bound(r, (double)r->beta_slow);
    low = fmax(r->truncate ? floor(low) : low, 0);
    high = fmin(r->truncate ? ceil(high) : high, r->dim - 1.0);
    if (!(high > low) && !(high < low))
        high += 0.001;
    const float ramp = (float)clamp((pair - low) / (high - low), 0, 1);
    return plain / r->factor * ramp + plain * (1 - ramp);
}

/* _compute_llama3_parameters */
static float llama3_frequency(const struct rope *r, float plain)
{
    const double wave = two_pi / (double)plain, original = r->original_positions;
    const double low = (double)r->low_freq_factor, high = (double)r->high_freq_factor;
    if (wave < original / high)
        return plain;
    if (wave > original / low)
        return plain / r->factor;
    const float smooth = (float)((original / wave - low) / (high - low));
    return (1 - smooth) * plain / r->factor + smooth * plain;
}

/* _compute_proportional_rope_parameters: how many pairs turn. The share is a float here and a
 * double there: its rounding must not lose a pair. */
static uint32_t turning_pairs(const struct rope *r)
{
    return (uint32_t)((double)r->share * r->dim / 2 + 1e-4);
}

void rope_frequencies(const struct rope *r, float *out)
{
    const double theta = r->scaling == ROPE_DYNAMIC ? dynamic_theta(r) : (double)r->theta;
    const float *factors = r->positions > r->original_positions ? r->long_factor : r->short_factor;
    for (uint32_t j = 0; j < r->dim / 2; j++) {
        const float wave = wave_of(theta, r->dim, j), plain = 1.0F / wave;
        switch (r->scaling) {
        case ROPE_LINEAR:
            out[j] = plain / r->factor;
            break;
        case ROPE_YARN:
            out[j] = yarn_frequency(r, plain, j);
            break;
        case ROPE_LONGROPE: /* _compute_longrope_parameters */
            out[j] = 1.0F / (factors[j] * wave);
            break;
        case ROPE_LLAMA3:
            out[j] = llama3_frequency(r, plain);
            break;
        case ROPE_PROPORTIONAL:
            out[j] = j < turning_pairs(r) ? plain / r->factor : 0;
            break;
        default: /* ROPE_DEFAULT, ROPE_DYNAMIC */
            out[j] = plain;
            break;
        }
    }
}

void rope_table(const struct rope *r, uint32_t positions, float *out)
{
    const uint32_t pairs = r->dim / 2;
    const double factor = (double)r->attention_factor;
    float *frequency = xmalloc(pairs * sizeof *frequency);
    rope_frequencies(r, frequency);
    for (uint32_t t = 0; t < positions; t++)
        for (uint32_t j = 0; j < pairs; j++) {
            const float angle = (float)t * frequency[j];
            float *number = out + 2 * ((size_t)t * pairs + j);
            number[0] = (float)(factor * cos((double)angle));
            number[1] = (float)(factor * sin((double)angle));
        }
    free(frequency);
}

void rope_sines(const struct rope *r, uint32_t positions, float *out)
{
    const uint32_t pairs = r->dim / 2;
    float *frequency = xmalloc(pairs * sizeof *frequency);
    rope_frequencies(r, frequency);
    for (uint32_t t = 0; t < positions; t++)
        for (uint32_t j = 0; j < pairs; j++) {
            const float angle = (float)t * frequency[j];
            float *row = out + (size_t)t * r->dim;
            row[j] = (float)sin((double)angle);
            row[pairs + j] = (float)cos((double)angle);
        }
    free(frequency);
}

void rope_turns(const struct rope *r, uint32_t positions, float *out)
{
    const uint32_t pairs = r->dim / 2;
    float *frequency = xmalloc(pairs * sizeof *frequency);
    rope_frequencies(r, frequency);
    for (uint32_t t = 0; t < positions; t++)
        for (uint32_t j = 0; j < pairs; j++) {
            const float angle = (float)t * frequency[j];
            float *row = out + (size_t)t * 2 * r->dim;
            row[j] = row[pairs + j] = (float)cos((double)angle);
            row[2 * pairs + j] = row[3 * pairs + j] = (float)sin((double)angle);
        }
    free(frequency);
}
