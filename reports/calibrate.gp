# calibrate.gp - measured kernels beside their fits, and collectives by size.
#
# The program writes in front of this: data, out, title, messages. Blocks of data: kernels that
# compute (measured and fitted us), kernels that move bytes (likewise), all-gather, reduce-scatter,
# all-reduce, broadcast (bytes, us). Each begins with a line of zeros, so that none is empty.
set output out
set border 3 lc rgb '#666666'
set tics nomirror
set terminal svg size 1120,460 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set grid lc rgb '#eeeeee' lw 1
set key left top reverse Left samplen 1 noenhanced
set multiplot layout 1,2 title title noenhanced
set logscale x
set xlabel 'measured, us'
set ylabel 'fitted beside measured, %'
set yrange [-50:50]
positive(x) = x > 0 ? x : NaN
plot data index 0 using (positive($1)):(100 * ($2 / $1 - 1)) with points pt 7 ps 0.5 lc rgb '#4c72b0' title 'matrix products, attention', \
     data index 1 using (positive($1)):(100 * ($2 / $1 - 1)) with points pt 6 ps 0.5 lc rgb '#dd8452' title 'what moves bytes', \
     0 with lines lc rgb '#888888' notitle
set autoscale y
set logscale y
set xlabel 'bytes'
set ylabel 'us'
set format x '10^{%T}'
if (messages > 0) {
    plot data index 2 using (positive($1)):(positive($2)) with linespoints pt 7 ps 0.6 lc rgb '#55a868' title 'all-gather', \
         data index 3 using (positive($1)):(positive($2)) with linespoints pt 7 ps 0.6 lc rgb '#c44e52' title 'reduce-scatter', \
         data index 4 using (positive($1)):(positive($2)) with linespoints pt 7 ps 0.6 lc rgb '#8172b3' title 'all-reduce', \
         data index 5 using (positive($1)):(positive($2)) with linespoints pt 7 ps 0.6 lc rgb '#dd8452' title 'broadcast'
}
unset multiplot
