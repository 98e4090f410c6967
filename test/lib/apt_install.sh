# Run by test/lib/packages.sh, as root: install packages, without questions, with
# patience for the network and for another apt at work.
#
#	sh -c "$(cat apt_install.sh)" apt_install [PACKAGE...]
#
# Debian's PostgreSQL packages create a server of their own and start it; we
# want none.  postgresql-common knows only of a file in /etc for that.  Whatever
# ends this script takes it away again; what a kill -9 leaves is gone after the
# next call, which is made without packages if nothing is missing.

set -u
umask 022

directory=/etc/postgresql-common/createcluster.d
conf=$directory/pmhash-test.conf
made=

# what is ours: the file, and directories that we have made and that are not needed
forget()
{
	rm -f "$conf"
	[ -z "$made" ] || rmdir $made 2>/dev/null
}
trap forget EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# one of us at a time: another one's file must not go while it is needed
exec 9>/run/pmhash-packages.lock
flock 9

# with COMMAND...: show the output only if the command fails
quietly()
{
	output=$("$@" 2>&1 9>&-) && return 0
	printf '%s\n' "$output" >&2
	return 1
}

apt()
{
	for pause in 5 10 0; do
		quietly env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 apt-get -q -y \
			-o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 \
			-o Dpkg::Options::=--force-confold "$@" && return 0
		sleep $pause
	done
	return 1
}

case ${1-} in
	'') exit 0 ;;
	update) apt update; exit ;;
esac
[ -d "$directory" ] || made=$directory
[ -d "${directory%/*}" ] || made="$directory ${directory%/*}"
mkdir -p "$directory"
echo "create_main_cluster = false" >"$conf"
apt update && apt install --no-install-recommends "$@"
