# diff.gp - two plans side by side: bytes at the peak, and what the step is spent on.
#
# The program writes in front of this: data, out, label_a and label_b. Two blocks of rows: a name and
# the numbers of both sides, in GiB and in ms.
set output out
set terminal svg size 1120,500 dynamic enhanced font 'Helvetica,13' background '#ffffff'
set border 3 lc rgb '#666666'
set tics nomirror
set grid ytics lc rgb '#dddddd' lw 1
set style data histogram
set style histogram clustered gap 1
set style fill solid 1.0 noborder
set xtics rotate by -35 noenhanced
set key at screen 0.02,0.97 left top vertical Left reverse samplen 1.2 noenhanced
set tmargin 5
set yrange [0:*]
set multiplot layout 1,2
set ylabel 'GiB'
plot data index 0 using 2:xtic(1) lc rgb '#8fabd4' title label_a, \
     data index 0 using 3 lc rgb '#dd8452' title label_b
set ylabel 'ms'
plot data index 1 using 2:xtic(1) lc rgb '#8fabd4' notitle, \
     data index 1 using 3 lc rgb '#dd8452' notitle
unset multiplot
