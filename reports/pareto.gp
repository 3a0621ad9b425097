# pareto.gp - memory against time: the fastest settings for each amount of memory.
#
# The program writes in front of this: data, out, title, limit_gib, chosen_gib, chosen_s.
# Columns: GiB of a GPU, seconds of a step.
set output out
set terminal svg size 900,420 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set border 3 lc rgb '#666666'
set tics nomirror
set label 1 title at graph 0, graph 1.08 left noenhanced
set tmargin 3
set grid lc rgb '#eeeeee' lw 1
set key at graph 1, graph 1.11 right top horizontal samplen 1 noenhanced
set xlabel 'GiB of a GPU'
set ylabel 'seconds of a step'
set xrange [0:limit_gib * 1.05]
stats data using 2 nooutput
set yrange [0:STATS_max < 3 * STATS_min ? STATS_max * 1.1 : STATS_min * 3]
set arrow 1 from limit_gib, graph 0 to limit_gib, graph 1 nohead lc rgb '#c44e52' dt 2
set label 2 'there is' at limit_gib, graph 0.04 right offset -0.5, 0 textcolor rgb '#c44e52'
plot data using 1:2 with fsteps lc rgb '#bbbbbb' lw 2 notitle, \
     data using 1:2 with points pt 7 ps 0.6 lc rgb '#4c72b0' title 'nothing is faster with less', \
     '+' using (chosen_gib):(chosen_s) every ::0::0 with points pt 7 ps 1.1 lc rgb '#dd8452' title 'chosen'
