# compare.gp - the memory of a plan beside a recording of it.
#
# The program writes in front of this: data, out, title, unit, top, differing, end_id. Columns: id,
# allocated predicted and recorded, reserved predicted and recorded, whether they differ.
# Predicted is drawn wide and pale with recorded thin and dark on top: where they are equal one
# sees a line with a core.
set output out
set border 3 lc rgb '#666666'
set tics nomirror
set label 1 title at graph 0, graph 1.08 left noenhanced
set tmargin 3
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
