# memory.gp - the memory of one step: categories stacked, allocated, reserved and device as lines.
#
# The program writes in front of this: data (columns: x requested allocated reserved host, then one column
# a category, all in `unit`; the host's bytes are in no other), out, title, xname, end_x, unit, top,
# capacity (at most top), outside (bytes beyond the allocator's), peak, peak_x, whether the host has a
# line, what the legend calls each, categories (names of the columns, in quotes), their colours, and
# the borders of the phases as arrows and labels from 100 on.
set terminal svg size 1120,560 dynamic enhanced font 'Helvetica,15' background '#ffffff'
set output out
set label 3 title at screen 0.02,0.955 left noenhanced font ',16'
set tmargin at screen 0.9
set bmargin at screen 0.13
set lmargin at screen 0.07
set rmargin at screen 0.76
set xlabel xname noenhanced offset 0,0.3
set ylabel unit offset 1.4,0
set key at screen 0.775,0.905 left top reverse Left samplen 1.4 noenhanced
set grid ytics lc rgb '#dddddd' lw 1
set border 3 lc rgb '#666666'
set tics nomirror out scale 0.5
set yrange [0:top]
set xrange [0:end_x]
set style fill solid 1.0 noborder
# Areas first, so that no line lies under one; the legend has them last, as they lie on each other.
count = words(categories)
plot for [i = count:1:-1] data using 1:(sum [c = 6:(i + 5)] column(c)) with filledcurves y1=0 lc rgb colour[i] notitle, \
     data using 1:4:($4 + outside) with filledcurves lc rgb '#c7c7c7' notitle, \
     data using 1:(capacity) with lines lc rgb '#c00000' lw 2 dt 2 title capacity_title, \
     keyentry with lines lc rgb '#000000' lw 2.2 title device_title, \
     for [i = 1:(outside > 0)] NaN with boxes lc rgb '#c7c7c7' title 'outside the allocator', \
     data using 1:4 with steps lc rgb '#777777' lw 2.2 title reserved_title, \
     data using 1:($4 + outside) with steps lc rgb '#000000' lw 2.2 notitle, \
     data using 1:3 with lines lc rgb '#222222' lw 1.2 title allocated_title, \
     for [i = 1:host] data using 1:5 with lines lc rgb '#7a4a1c' lw 2 dt 3 title 'on the host', \
     keyentry with points pt 6 ps 1 lw 1.6 lc rgb '#000000' title requested_title.', for', \
     for [i = count:1:-1] NaN with boxes lc rgb colour[i] title word(categories, i), \
     '+' using (peak_x):(peak) every ::0::0 with points pt 6 ps 1 lw 1.6 lc rgb '#000000' notitle
