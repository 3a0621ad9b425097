# compare.gp - a plan beside a recording of it.
#
# The program writes in front of this: picture, data, out, title and
#   picture 'memory'    unit, top, differing, end_id; columns: id, allocated predicted and recorded,
#                       reserved predicted and recorded, whether they differ
#   picture 'timeline'  lanes (names from top to bottom), end_ms; columns: begin and end in ms, lane
#                       (from 0), colour
# Predicted is drawn wide and pale with recorded thin and dark on top: where they are equal one
# sees a line with a core.
set output out
set border 3 lc rgb '#666666'
set tics nomirror
set title title noenhanced left
if (picture eq 'memory') {
    set terminal svg size 1120,460 dynamic enhanced font 'Helvetica,13' background '#ffffff'
    set xlabel 'instruction'
    set ylabel unit
    set key outside right top reverse Left samplen 1.6 noenhanced
    set grid ytics lc rgb '#dddddd' lw 1
    set yrange [0:top]
    set xrange [0:end_id]
    plot data using 1:4 with steps lc rgb '#f2b5b0' lw 6 title 'reserved, predicted', \
         data using 1:5 with steps lc rgb '#a01010' lw 1.3 title 'reserved, recorded', \
         data using 1:2 with steps lc rgb '#a9c6e8' lw 6 title 'allocated, predicted', \
         data using 1:3 with steps lc rgb '#17407a' lw 1.3 title 'allocated, recorded', \
         data using 1:($6 > 0.5 ? $3 : NaN) with points pt 6 ps 0.7 lc rgb '#e6550d' title (differing ? 'differs' : '')
}
if (picture eq 'timeline') {
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
         keyentry with boxes lc rgb '#c44e52' title 'exposed'
}
