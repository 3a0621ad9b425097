/* tower_parts.c - see tower_parts.h. */
#include "model/tower_parts.h"

#include "model/build.h"

#include <stdarg.h>
#include <stdio.h>

void tower_into(struct tower_at *at, const char *format, ...)
{
    const int base = snprintf(at->prefix, sizeof at->prefix, "%s", at->base);
    va_list list;
    va_start(list, format);
    vsnprintf(at->prefix + base, sizeof at->prefix - (size_t)base, format, list);
    va_end(list);
}

void tower_here(struct tower_at *at)
{
    tower_into(at, "%s", "");
}

void tower_linear(struct tower_at *at, const char *name, uint32_t out, uint32_t in, bool biased)
{
    build_linear(at->graph, at->prefix, name, out, in, biased);
}

void tower_norm(struct tower_at *at, const char *name, uint32_t width, bool biased)
{
    build_norm(at->graph, at->prefix, name, width, biased, 0);
}

void tower_weight(struct tower_at *at, const char *name, struct shape shape)
{
    graph_param(at->graph, PARAM_WEIGHT, shape, "%s%s", at->prefix, name);
}

void tower_convolution(struct tower_at *at, const char *name, struct shape shape, bool biased)
{
    build_weights(at->graph, at->prefix, name, shape, biased ? shape.dim[0] : 0);
}

void tower_patches(struct tower_at *at, const char *name, bool biased)
{
    const struct tower *t = at->t;
    tower_convolution(at, name, SHAPE(t->width, t->channels, t->patch, t->patch), biased);
}

void tower_buffer(struct tower_at *at, enum dtype dtype, struct shape shape)
{
    const struct buffer_values zeros = {.kind = VALUES_ZEROS};
    graph_buffer(at->graph, dtype, shape, &zeros);
}

void tower_frequencies(struct tower_at *at, uint32_t count)
{
    tower_buffer(at, DTYPE_FP32, SHAPE(count));
    tower_buffer(at, DTYPE_FP32, SHAPE(count));
}

uint32_t tower_patches_of(const struct tower *t)
{
    return t->image / t->patch * (t->image / t->patch);
}

void tower_squares(struct tower_at *at, const char *const *names, uint32_t count, bool biased)
{
    for (uint32_t i = 0; i < count; i++)
        tower_linear(at, names[i], at->t->width, at->t->width, biased);
}

void tower_gated(struct tower_at *at, const char *module, uint32_t ffn, uint32_t width, bool biased)
{
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    char name[48];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", module, names[i]);
        tower_linear(at, name, i == 2 ? width : ffn, i == 2 ? ffn : width, biased);
    }
}

void tower_two_layers(struct tower_at *at, uint32_t in, uint32_t between, bool biased)
{
    tower_linear(at, "linear_1", between, in, biased);
    tower_linear(at, "linear_2", at->text, between, biased);
}
