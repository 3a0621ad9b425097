# timeline.gp - the lanes of one step.
#
# The program writes in front of this: data, out, title, lanes (names from top to bottom), end_ms,
# unit ('ms', 's') and scale (of a ms in it), colour (of the legend).
# Columns: begin and end in ms, lane (from 0), colour.
set output out
set border 3 lc rgb '#666666'
set tics nomirror
set label 1 title at graph 0, graph 1.08 left noenhanced
set tmargin 3
set lmargin at screen 0.11
set rmargin at screen 0.80
set terminal svg size 1120,360 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set xlabel unit
set key at screen 0.815, graph 1 left top reverse Left samplen 1 noenhanced
set grid xtics lc rgb '#eeeeee' lw 1
set xrange [0:end_ms * scale]
set yrange [words(lanes) - 0.4:-0.6]
set ytics () # none of its own
set for [i = 1:words(lanes)] ytics add (word(lanes, i) i - 1) noenhanced
set style fill solid 1.0 noborder
plot data using (($1 + $2) / 2 * scale):3:($1 * scale):($2 * scale):($3 - 0.36):($3 + 0.36):4 with boxxyerror lc rgb variable notitle, \
     keyentry with boxes lc rgb colour[1] title 'forward', \
     keyentry with boxes lc rgb colour[2] title 'backward', \
     keyentry with boxes lc rgb colour[3] title 'optimizer', \
     keyentry with boxes lc rgb colour[4] title 'collective, waits in it', \
     keyentry with boxes lc rgb colour[5] title 'copies beside them', \
     keyentry with boxes lc rgb colour[6] title 'host issues', \
     keyentry with boxes lc rgb colour[7] title 'exposed communication'
