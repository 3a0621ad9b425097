# sweep.gp - a job over one axis: its memory, and one number of each point.
#
# The program writes in front of this: data, out, title, rows, capacity (0: not one), measure, name and
# the tics of the axis, marked ('best', 'answer'), and whether there are any that are marked, fit
# otherwise, do not, or fit only by giving cached memory back. Columns: place, device, reserved,
# requested (GiB), the measure, 0 what does not fit, 1 what does, 2 the marked one, and whether it
# fits only by giving back.
stats data using 2 nooutput
set output out
set terminal svg size 1120,500 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set border 3 lc rgb '#666666'
set tics nomirror out scale 0.5
set xtics scale 0
set grid ytics lc rgb '#dddddd' lw 1
set style fill solid 1.0 noborder
set boxwidth 0.8
set xrange [-0.7:rows - 0.3]
set xlabel name noenhanced
if (rows > 8) set xtics rotate by -45
set key at graph 0,1.13 left top horizontal reverse Left samplen 1.2 width 1 noenhanced
set label 1 title at screen 0.02,0.955 left noenhanced font ',16'
set tmargin at screen 0.8
set bmargin at screen rows > 8 ? 0.27 : 0.2
colour(kind) = kind == 2 ? 0x009e73 : kind == 1 ? 0x0072b2 : 0xc9c0bd
set multiplot
if (any_released) set label 3 '* only by giving cached memory back: slow steps' at screen 0.58,0.035 left tc rgb '#555555'
set lmargin at screen 0.07
set rmargin at screen 0.48
set ylabel 'GiB' offset 1.4,0
top = (capacity > STATS_max ? capacity : STATS_max) * 1.08
if (capacity > 0) set arrow 1 from graph 0,first capacity to graph 1,first capacity nohead front lc rgb '#c00000' lw 2 dt 2
set style textbox opaque fillcolor rgb '#ffffff' noborder margins 0.3,0.1
if (capacity > 0) set label 2 sprintf('capacity %.2f', capacity) at graph 0.01,first capacity left offset 0,0.75 front boxed tc rgb '#c00000'
set yrange [0:top]
plot keyentry with boxes lc rgb '#0072b2' title 'requested', \
     keyentry with boxes lc rgb '#56b4e9' title 'reserved', \
     keyentry with boxes lc rgb '#b0b0b0' title 'device', \
     data using 1:2 with boxes lc rgb '#b0b0b0' notitle, \
     data using 1:3 with boxes lc rgb '#56b4e9' notitle, \
     data using 1:4 with boxes lc rgb '#0072b2' notitle
unset arrow 1
unset label
set lmargin at screen 0.58
set rmargin at screen 0.985
set yrange [0:*]
set ylabel measure noenhanced offset 0.4,0
# The legend has what there is.
set key width -6
plot data using 1:5:(colour($6)) with boxes lc rgb variable notitle, \
     data using 1:($7 > 0.5 ? $5 : NaN) with boxes lc rgb '#ffffff' fs transparent pattern 4 noborder notitle, \
     for [i = 1:any_marked] NaN with boxes lc rgb '#009e73' title marked, \
     for [i = 1:any_fits] NaN with boxes lc rgb '#0072b2' title 'fits', \
     for [i = 1:any_released] NaN with boxes lc rgb '#555555' fs pattern 4 border title 'fits*', \
     for [i = 1:any_large] NaN with boxes lc rgb '#c9c0bd' title 'too large'
unset multiplot
