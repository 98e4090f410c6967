# report.sh: a directory with results, and figures in a CSV file; sourced, not run
#
# Needs bench/lib/cluster.sh, and of the script "results": the directory.

# Before make_work_directory, which goes elsewhere.
make_results()
{
	mkdir -p "$results"
	results=$(cd "$results" && pwd)
}

# Begin a CSV file of figures.
begin_figures()					# name
{
	figures=$results/$1.csv
	echo 'figure,method,rows,value,unit' >"$figures"
}

note()							# figure method rows value unit
{
	printf '"%s",%s,%s,%s,%s\n' "$@" >>"$figures"
	progress "$1, $2, $3 rows: $4 $5"
}

# Tables and charts of all that is there; Debian's python3 is the one that has matplotlib.
make_report()
{
	/usr/bin/python3 -B "$tree/bench/report/report.py" "$results"
}
