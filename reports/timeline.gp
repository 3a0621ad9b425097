# timeline.gp - the lanes of one step.
#
# The program writes in front of this: data, out, title, lanes (names from top to bottom), end_ms.
# Columns: begin and end in ms, lane (from 0), colour.
set output out
set border 3 lc rgb '#666666'
set tics nomirror
set label 1 title at graph 0, graph 1.08 left noenhanced
set tmargin 3
set terminal svg size 1120,360 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set xlabel 'ms'
set key outside right top reverse Left samplen 1 noenhanced
set grid xtics lc rgb '#eeeeee' lw 1
set xrange [0:end_ms]
set yrange [words(lanes) - 0.4:-0.6]
set for [i = 1:words(lanes)] ytics add (word(lanes, i) i - 1) noenhanced
set style fill solid 1.0 noborder
plot data using (($1 + $2) / 2):3:1:2:($3 - 0.36):($3 + 0.36):4 with boxxyerror lc rgb variable notitle, \
     keyentry with boxes lc rgb '#4c72b0' title 'forward', \
     keyentry with boxes lc rgb '#dd8452' title 'backward', \
     keyentry with boxes lc rgb '#8172b3' title 'optimizer', \
     keyentry with boxes lc rgb '#55a868' title 'collective', \
     keyentry with boxes lc rgb '#aaaaaa' title 'copy', \
     keyentry with boxes lc rgb '#937860' title 'host', \
     keyentry with boxes lc rgb '#c44e52' title 'exposed'
