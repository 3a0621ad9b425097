# sweep_map.gp - a job over two axes: one number of each pair, as a heat map.
#
# The program writes in front of this: data, out, title, columns, lines, measure, across, down and the
# tics of both axes, and whether there is a best, and what fits only by giving cached memory back.
# Columns: place across, place down, the measure (nan: does not fit, or is refused), whether it is the
# best, whether it fits only by giving back, what stands in the cell.
stats data using 3 nooutput
set output out
wide = 330 + 100 * columns
wide = wide < 720 ? 720 : wide
high = 188 + 46 * lines
set terminal svg size wide,high dynamic enhanced font 'Helvetica,15' background '#ffffff'
set border 0
set tics scale 0
set xrange [-0.5:columns - 0.5]
set yrange [lines - 0.5:-0.5]
set xlabel across noenhanced
set ylabel down noenhanced offset -0.5,0
set label 1 title at screen 0.02,1 left offset 0,-1.3 noenhanced font ',16'
set tmargin at screen 1 - 84.0 / high
set bmargin at screen 104.0 / high
set lmargin at screen 170.0 / wide
set rmargin at screen 1 - 140.0 / wide
set cblabel measure noenhanced
set cbtics nomirror
set palette defined (0 '#eaf3fb', 0.5 '#b3d6ee', 1 '#6fb1de')
set object 1 rectangle from graph 0,0 to graph 1,1 behind fc rgb '#e3ddda' fs solid noborder
set key at screen 160.0 / wide,1 - 48.0 / high left top horizontal reverse Left samplen 1.4 width 1 noenhanced
if (any_released) set label 2 '* only by giving cached memory back: slow steps' at screen 0.02,0 left offset 0,0.9 tc rgb '#555555'
plot data using 1:2:3 with image pixels notitle, \
     data using ($5 > 0.5 ? $1 : NaN):2:(0.5):(0.5) with boxxyerror lc rgb '#ffffff' fs transparent pattern 4 noborder notitle, \
     data using ($4 > 0.5 ? $1 : NaN):2:(0.47):(0.44) with boxxyerror lc rgb '#00503a' lw 3 fs empty border notitle, \
     data using 1:2:6 with labels tc rgb '#1a1a1a' noenhanced notitle, \
     for [i = 1:any_marked] NaN with boxes lc rgb '#00503a' lw 3 fs empty border title 'best', \
     for [i = 1:any_released] NaN with boxes lc rgb '#555555' fs pattern 4 border title 'fits*'
