# compare.gp - the memory of a plan beside a recording of it.
#
# The program writes in front of this: data, out, title, unit, top, differing, end_id. Columns: id,
# allocated predicted and recorded, reserved predicted and recorded, whether they differ.
# Predicted is drawn wide and pale with recorded thin and dark on top: where they are equal one
# sees a line with a core.
set output out
set border 3 lc rgb '#666666'
set tics nomirror out scale 0.5
set label 1 title at screen 0.02,0.95 left noenhanced font ',16'
set tmargin at screen 0.88
set bmargin at screen 0.15
set lmargin at screen 0.07
set rmargin at screen 0.78
set terminal svg size 1120,480 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set xlabel 'instruction of the step, in the order of the host' offset 0,0.3
set ylabel unit offset 1.4,0
set key at screen 0.795,0.885 left top reverse Left samplen 1.6 noenhanced
set grid ytics lc rgb '#dddddd' lw 1
set yrange [0:top]
set xrange [0:end_id]
plot data using 1:4 with steps lc rgb '#f3b98f' lw 6 title 'reserved, predicted', \
     data using 1:5 with steps lc rgb '#8c3a00' lw 1.3 title 'reserved, recorded', \
     data using 1:2 with steps lc rgb '#9fcdec' lw 6 title 'allocated, predicted', \
     data using 1:3 with steps lc rgb '#003a5c' lw 1.3 title 'allocated, recorded', \
     for [i = 1:(differing > 0)] data using 1:($6 > 0.5 ? $3 : NaN) with points pt 6 ps 0.7 lc rgb '#000000' title 'differs'
