/* clock.c - see clock.h. */
#include "cost/clock.h"

#include <math.h>

double clock_boost(const struct profile *profile)
{
    const double clock = profile_value(profile, PROFILE_CLOCK);
    const double boost = profile_value(profile, PROFILE_BOOST_CLOCK);
    return clock > 0 && boost > clock ? boost / clock : 1;
}

double clock_share(const struct profile *profile, double peak, double flops, double seconds,
                   double draw)
{
    const double limit = profile_value(profile, PROFILE_POWER);
    if (profile->clock == CLOCK_BURST || limit <= 0 || seconds <= 0)
        return 1;
    const double used = flops / (seconds * peak * clock_boost(profile));
    const double watts = profile_value(profile, PROFILE_MATRIX_POWER) * used * draw;
    const double room = limit - profile_value(profile, PROFILE_IDLE_POWER);
    return watts <= room || room <= 0 ? 1 : cbrt(room / watts);
}

double clock_spread(const struct profile *profile, double spread)
{
    const bool limited =
        profile->clock == CLOCK_SUSTAINED && profile_value(profile, PROFILE_POWER) > 0;
    return limited ? hypot(spread, profile->of[PROFILE_MATRIX_POWER].spread / 3) : spread;
}
