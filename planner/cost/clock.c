/* clock.c - see clock.h. */
#include "cost/clock.h"

#include <math.h>

double clock_boost(const struct profile *profile)
{
    const double clock = profile_value(profile, PROFILE_CLOCK);
    const double boost = profile_value(profile, PROFILE_BOOST_CLOCK);
    return clock > 0 && boost > clock ? boost / clock : 1;
}

/* Whether there is a limit that could bind. */
static bool is_limited(const struct profile *profile)
{
    return profile->clock == CLOCK_SUSTAINED && profile_value(profile, PROFILE_POWER) > 0;
}

/* What the limit leaves to arithmetic, in watts. */
static double room_of(const struct profile *profile)
{
    return fmax(1,
                profile_value(profile, PROFILE_POWER) - profile_value(profile, PROFILE_IDLE_POWER));
}

double clock_share(const struct profile *profile, double peak, double flops, double seconds,
                   double draw)
{
    if (!is_limited(profile) || seconds <= 0)
        return 1;
    if (profile->clock_share > 0)
        return profile->clock_share;
    const double used = flops / (seconds * peak * clock_boost(profile));
    const double watts = profile_value(profile, PROFILE_MATRIX_POWER) * used * draw;
    const double room = room_of(profile);
    return watts <= room ? 1 : cbrt(room / watts);
}

/* What a card of a node in training draws beside the same card alone on a bench, for the same
 * operations: eight of them are hot, which leaks, and links and network are at work. Fitted to
 * every second llm-foundry row on A100 80 GB (tests/data/published), for the least bias, of steps
 * that wait for the slowest rank (slowest.h). */
#define IN_TRAINING 1.14

double clock_under(const struct profile *profile, const struct load *load)
{
    enum { STEPS = 50 }; /* of bisection: to the last bit */
    const double joules =
        IN_TRAINING * profile_value(profile, PROFILE_MATRIX_POWER) * load->matrix_s;
    const double room = room_of(profile);
    const double others = fmax(0, room - profile_value(profile, PROFILE_STREAM_POWER));
    double low = 0, high = 1;
    if (!is_limited(profile) || joules <= others * load->other_s + room * load->compute_s)
        return 1;
    for (int i = 0; i < STEPS; i++) {
        const double c = (low + high) / 2;
        if (joules * c * c > others * load->other_s + room * load->compute_s / c)
            high = c;
        else
            low = c;
    }
    return low;
}

double clock_spread(const struct profile *profile, double spread)
{
    return is_limited(profile) ? hypot(spread, profile->of[PROFILE_MATRIX_POWER].spread / 3)
                               : spread;
}
