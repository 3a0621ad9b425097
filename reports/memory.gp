# memory.gp - the memory of one step: categories stacked, allocated and reserved as lines.
#
# The program writes in front of this: data (columns: x requested allocated reserved host, then one column
# a category, all GiB; the host's bytes are in no other), out, title, xname, capacity, top, peak_x, peak,
# end_x, categories (names of the columns, in quotes), their colours, whether the host has a line,
# and the borders of the phases as arrows and labels from 100 on.
set terminal svg size 1120,560 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set output out
set label 3 title at graph 0, graph 1.08 left noenhanced
set tmargin 3
set lmargin at screen 0.07
set rmargin at screen 0.76
set xlabel xname noenhanced
set ylabel 'GiB'
set key at screen 0.775, graph 1 left top reverse Left samplen 1.2 noenhanced
set grid ytics lc rgb '#dddddd' lw 1
set border 3 lc rgb '#666666'
set tics nomirror
set yrange [0:top]
set xrange [0:end_x]
set style fill solid 1.0 noborder
# Capacity has its line always: at the top edge where it is far above. Words beside it would lie on
# what is reserved, which is near it in the jobs that one looks at most.
there = capacity < top ? capacity : top
peak_at = peak_x < 0.04 * end_x ? 0.04 * end_x : peak_x > 0.96 * end_x ? 0.96 * end_x : peak_x
# What is reserved is often just above the peak: its line goes behind the number.
set style textbox opaque fillcolor rgb '#ffffff' noborder margins 0.3,0.15
set label 2 sprintf('%.2f', peak) at peak_at,peak center offset 0,0.9 front boxed tc rgb '#222222'
plot for [i = words(categories):1:-1] data using 1:(sum [c = 6:(i + 5)] column(c)) with filledcurves y1=0 lc rgb colour[i] title word(categories, i), \
     data using 1:3 with lines lc rgb '#222222' lw 1.2 title 'allocated, rounded', \
     data using 1:4 with steps lc rgb '#a05195' lw 1.4 title 'reserved by the allocator', \
     data using 1:(there) with lines lc rgb '#c00000' lw 1.5 dt 2 title sprintf(capacity < top ? 'capacity %.2f' : 'capacity %.2f, above', capacity), \
     data using 1:(host ? $5 : NaN) with lines lc rgb '#937860' lw 2 dt 3 title (host ? 'on the host' : '')
