# sweep_map.gp - a job over two axes: one number of each pair, as a heat map.
#
# The program writes in front of this: data, out, columns, lines, measure,
# across, down and the tics of both axes. Columns: place across, place down, the measure (nan: does
# not fit, or is refused), whether it is the best, what stands in the cell.
stats data using 3 nooutput
set output out
set terminal svg size 240 + 90 * columns,150 + 44 * lines dynamic enhanced font 'Helvetica,13' background '#ffffff'
set border 0
set tics scale 0
set xrange [-0.5:columns - 0.5]
set yrange [lines - 0.5:-0.5]
set xlabel across noenhanced
set ylabel down noenhanced
set title measure noenhanced
set palette defined (0 '#eaf1fa', 0.5 '#b4cdea', 1 '#76a3d8')
set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#e9dedd' fs solid noborder
unset key
middle = (STATS_min + STATS_max) / 2
plot data using 1:2:3 with image pixels, \
     data using 1:2:5 with labels tc rgb '#1a1a1a' noenhanced, \
     data using ($4 > 0.5 ? $1 : NaN):2:(0.47):(0.45) with boxxyerror fs empty border lc rgb '#2a7f3f' lw 2.5
