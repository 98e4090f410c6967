# options.sh: options of a script; sourced, not run
#
# Needs bench/lib/cluster.sh, and a function "usage" of the script.

# Read options: "--name value" or "--name=value" into the variable "name", "--switch"
# sets it to true ("-" in an option is "_" in its variable).
read_options()					# "name..." "switch..." argument...
{
	local names=" $1 " switches=" $2 " option variable

	shift 2
	while [ $# -gt 0 ]; do
		[[ $1 != --*=* ]] || set -- "${1%%=*}" "${1#*=}" "${@:2}"
		option=${1#--}
		variable=${option//-/_}
		if [ "$1" = --help ]; then
			usage
			exit 0
		elif [[ $1 == --* && $switches == *" $option "* ]]; then
			declare -g "$variable=true"
		elif [[ $1 == --* && $names == *" $option "* ]]; then
			[ -n "${2-}" ] || die "$1 needs a value"
			declare -g "$variable=$2"
			shift
		else
			usage >&2
			exit 2
		fi
		shift
	done
}

need_numbers()					# variable...
{
	local name

	for name in "$@"; do
		[[ ${!name} =~ ^[1-9][0-9]*$ ]] || die "--$name needs a number above zero"
	done
}

# A list of numbers, and not an empty one.
need_list()						# variable
{
	[[ ${!1} =~ ^\ *[1-9][0-9]*(\ +[1-9][0-9]*)*\ *$ ]] || die "--$1 needs numbers above zero"
}

largest_of()					# number...
{
	local n largest=0

	for n in "$@"; do
		[ "$n" -le "$largest" ] || largest=$n
	done
	echo "$largest"
}
