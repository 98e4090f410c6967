# Sourced by test/run.sh and test/mutants/mutants.sh, after packages.sh: a small file
# system for the tests that fill one (PMHASH_SMALL_FS).

mounts=							# of root's: nobody else puts a link there
small_fs=

# mount_small_fs PARENT: sets small_fs to its directory, which belongs to the account
# that is not root; leaves it empty where that cannot be done.  Needs root.
mount_small_fs()
{
	local owner

	[ "$(id -u)" -eq 0 ] || return 0
	owner=$(id -u "$(account)")
	mounts=$(mktemp -d "$1/pmhash-mounts.XXXXXX") || return 0
	chmod 711 "$mounts"
	mkdir "$mounts/small"
	if mount -t tmpfs -o "noexec,size=24m,mode=0700,uid=$owner" tmpfs "$mounts/small" 2>/dev/null; then
		small_fs=$mounts/small
	fi
}

# unmount_small_fs: for a trap; nothing if there is none.
unmount_small_fs()
{
	if [ -n "$small_fs" ]; then
		umount "$small_fs"
	fi
	if [ -n "$mounts" ]; then
		rmdir "$mounts/small" "$mounts"
	fi
}
