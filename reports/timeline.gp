# timeline.gp - the lanes of one step.
#
# The program writes in front of this: data, out, title, lanes (names from top to bottom, in quotes),
# end_ms, unit ('ms', 's') and scale (of a ms in it), the legend: names (in quotes) and colour.
# Columns: begin and end in ms, lane (from 0), colour.
set output out
set border 3 lc rgb '#666666'
set label 1 title at screen 0.02,0.94 left noenhanced font ',16'
set tmargin at screen 0.87
set bmargin at screen 0.18
set lmargin at screen 0.12
set rmargin at screen 0.765
set terminal svg size 1120,400 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set xlabel 'time of the step, '.unit offset 0,0.3
set key at screen 0.78,0.88 left top reverse Left samplen 1.2 noenhanced
set grid xtics lc rgb '#eeeeee' lw 1
set xrange [0:end_ms * scale]
set yrange [words(lanes) - 0.4:-0.6]
set tics nomirror out scale 0.5
set ytics scale 0 # a lane is not a place
set ytics () # none of its own
set for [i = 1:words(lanes)] ytics add (word(lanes, i) i - 1) noenhanced
set style fill solid 1.0 noborder
plot data using (($1 + $2) / 2 * scale):3:($1 * scale):($2 * scale):($3 - 0.36):($3 + 0.36):4 with boxxyerror lc rgb variable notitle, \
     for [i = 1:words(names)] NaN with boxes lc rgb colour[i] title word(names, i)
