# sweep.gp - a job over one axis: its memory, and one number of each point.
#
# The program writes in front of this: data, out, rows, capacity (0: not one), measure, name and the
# tics of the axis. Columns: place, device, reserved, requested (GiB), the measure, and 0 what does
# not fit, 1 what does, 2 the marked one.
stats data using 2 nooutput
set output out
set terminal svg size 1120,460 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set border 3 lc rgb '#666666'
set tics nomirror
set grid ytics lc rgb '#dddddd' lw 1
set style fill solid 1.0 noborder
set boxwidth 0.8
set xrange [-0.7:rows - 0.3]
set yrange [0:*]
set xlabel name noenhanced
if (rows > 8) set xtics rotate by -45
set key outside top center horizontal samplen 1.2 noenhanced
colour(kind) = kind == 2 ? 0x2a7f3f : kind == 1 ? 0x4c72b0 : 0xd8b4b0
set multiplot layout 1,2
set ylabel 'GiB'
if (capacity > 0) set arrow 1 from graph 0,first capacity to graph 1,first capacity nohead lc rgb '#c00000' lw 1.5 dt 2
top = (capacity > STATS_max ? capacity : STATS_max) * 1.08
set yrange [0:top]
plot data using 1:2 with boxes lc rgb '#c9d6ea' title 'device', \
     data using 1:3 with boxes lc rgb '#8fabd4' title 'reserved', \
     data using 1:4 with boxes lc rgb '#4c72b0' title 'requested'
unset arrow 1
set yrange [0:*]
set ylabel measure noenhanced
plot data using 1:5:(colour($6)) with boxes lc rgb variable notitle, \
     keyentry with boxes lc rgb '#2a7f3f' title 'marked', \
     keyentry with boxes lc rgb '#4c72b0' title 'fits', \
     keyentry with boxes lc rgb '#d8b4b0' title 'does not fit'
unset multiplot
