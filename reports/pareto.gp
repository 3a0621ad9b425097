# pareto.gp - memory against time: the fastest settings for each amount of memory.
#
# The program writes in front of this: data, out, title, limit_gib, chosen_gib, chosen_s.
# Columns: GiB of a GPU, seconds of a step.
set output out
set terminal svg size 1000,480 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set border 3 lc rgb '#666666'
set tics nomirror out scale 0.5
set label 1 title at screen 0.02,0.945 left noenhanced font ',16'
set tmargin at screen 0.82
set bmargin at screen 0.15
set lmargin at screen 0.09
set rmargin at screen 0.97
set grid lc rgb '#e6e6e6' lw 1
set key at graph 0,1.12 left top horizontal reverse Left samplen 1 noenhanced
set xlabel 'memory of a GPU, GiB' offset 0,0.3
set ylabel 'time of a step, s' offset 0.8,0
set xrange [0:limit_gib * 1.05]
stats data using 2 nooutput
# All of the front is in the picture: where its ends are far apart, by a logarithm.
far = STATS_max > 3 * STATS_min
if (far) set logscale y; set ytics (); set for [k = -6:6] for [m in "1 2 3 5"] ytics add (sprintf('%g', m * 10.0**k) m * 10.0**k)
if (far) set ylabel 'time of a step, s (logarithmic)'
if (far) set yrange [STATS_min / 1.2:STATS_max * 1.15]; else set yrange [0:STATS_max * 1.1]
set arrow 1 from limit_gib, graph 0 to limit_gib, graph 1 nohead lc rgb '#c00000' lw 2 dt 2
set label 2 sprintf('limit %.2f GiB', limit_gib) at limit_gib, graph 0.95 right offset -0.6, 0 textcolor rgb '#c00000'
plot data using 1:2 with fsteps lc rgb '#aaaaaa' lw 2 notitle, \
     data using 1:2 with points pt 7 ps 0.7 lc rgb '#0072b2' title 'nothing is faster with less memory', \
     '+' using (chosen_gib):(chosen_s) every ::0::0 with points pt 7 ps 1.2 lc rgb '#d55e00' title 'chosen'
