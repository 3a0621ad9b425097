# calibrate.gp - measured kernels beside their fits, and collectives by size.
#
# The program writes in front of this: data, out, title, messages, most (per cent of the left axis) and
# beyond (how many points are outside of it). Blocks of data: kernels that compute (measured and
# fitted us), kernels that move bytes (likewise), all-gather, reduce-scatter, all-reduce, broadcast
# (bytes, us). Each begins with a line of zeros, so that none is empty.
set output out
set border 3 lc rgb '#666666'
set tics nomirror out scale 0.5
set terminal svg size 1120,520 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set grid lc rgb '#e6e6e6' lw 1
set label 1 title at screen 0.02,0.955 left noenhanced font ',16'
set tmargin at screen 0.79
set bmargin at screen 0.15
set key at graph 0,1.15 left top horizontal reverse Left samplen 1 width -1 noenhanced
positive(x) = x > 0 ? x : NaN
off(fitted, measured) = 100 * (fitted / measured - 1)
inside(p) = abs(p) <= most ? p : NaN
above(p) = p > most ? 0.97 * most : NaN
below(p) = p < -most ? -0.97 * most : NaN
set multiplot
set lmargin at screen 0.075
set rmargin at screen 0.49
stats data index 0:1 using (positive($1)) nooutput
set logscale x
set xrange [STATS_min / 1.5:STATS_max * 1.5]
set xlabel 'measured time of a kernel, us' offset 0,0.3
set ylabel 'fitted time against measured, %' offset 0.8,0
set yrange [-most:most]
plot 0 with lines lc rgb '#666666' notitle, \
     data index 1 using (positive($1)):(inside(off($2, $1))) with points pt 6 ps 0.5 lc rgb '#d55e00' title 'moves bytes', \
     data index 0 using (positive($1)):(inside(off($2, $1))) with points pt 7 ps 0.5 lc rgb '#0072b2' title 'matmul, attention', \
     for [i = 1:(beyond > 0)] data index 0:1 using (positive($1)):(above(off($2, $1))) with points pt 9 ps 0.7 lc rgb '#000000' title sprintf('%d beyond', beyond), \
     for [i = 1:(beyond > 0)] data index 0:1 using (positive($1)):(below(off($2, $1))) with points pt 11 ps 0.7 lc rgb '#000000' notitle
unset label 1
if (messages > 0) {
    set lmargin at screen 0.585
    set rmargin at screen 0.985
    set autoscale # or what the axes leave out is not counted
    stats data index 2:5 using (positive($1)) nooutput
    set logscale x 2
    set xrange [STATS_min / 1.5:STATS_max * 1.5]
    size(k) = sprintf('%d %s', 2**(k % 10), word('B KiB MiB GiB', 1 + k / 10))
    set xtics ()
    set for [k = 0:36:4] xtics add (size(k) 2.0**k)
    set logscale y
    set xlabel 'size of the message' offset 0,0.3
    set ylabel 'time of a collective, us'
    plot data index 2 using (positive($1)):(positive($2)) with linespoints pt 7 ps 0.6 lw 1.5 lc rgb '#009e73' title 'all-gather', \
         data index 3 using (positive($1)):(positive($2)) with linespoints pt 5 ps 0.6 lw 1.5 lc rgb '#d55e00' title 'reduce-scatter', \
         data index 4 using (positive($1)):(positive($2)) with linespoints pt 9 ps 0.7 lw 1.5 lc rgb '#0072b2' title 'all-reduce', \
         data index 5 using (positive($1)):(positive($2)) with linespoints pt 13 ps 0.7 lw 1.5 lc rgb '#cc79a7' title 'broadcast'
}
unset multiplot
