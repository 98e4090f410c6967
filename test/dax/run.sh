#!/bin/bash
#
# test/dax/run.sh - pmhash on fsdax persistent memory, and power cuts.
#
# Boots Debian's kernel under qemu with an emulated NVDIMM, an ext4 mounted with
# dax on it and PostgreSQL with this pmhash; ends the virtual machine with
# SIGKILL under load, boots it again and looks at every index.  README.md of
# test/ says what that proves and what it does not.
#
# Needs a Debian 12 with apt, and root or sudo (packages, debootstrap, chroot).
# Scratch files go to TMPDIR (default /tmp), the virtual machine's kernel and
# disk to a cache that a second run uses again.  Prints each test and at the end
#	N passed, N failed
#
# PMHASH_DAX_CACHE    directory of the cache (default TMPDIR/pmhash-dax-cache)
# PMHASH_DAX_CUTS     power cuts under load for each persistence domain (3)
# PMHASH_DAX_DOMAINS  of CLWB and eADR (both)
# PMHASH_KEEP=1       keeps the scratch directory, with the logs of each boot

set -u
export LC_ALL=C.UTF-8

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
. "$top/test/lib/packages.sh"

if [ "$(id -u)" -ne 0 ]; then
	as_root env ${TMPDIR:+TMPDIR="$TMPDIR"} ${PMHASH_KEEP:+PMHASH_KEEP="$PMHASH_KEEP"} \
		${PMHASH_DAX_CACHE:+PMHASH_DAX_CACHE="$PMHASH_DAX_CACHE"} \
		${PMHASH_DAX_CUTS:+PMHASH_DAX_CUTS="$PMHASH_DAX_CUTS"} \
		${PMHASH_DAX_DOMAINS:+PMHASH_DAX_DOMAINS="$PMHASH_DAX_DOMAINS"} bash "$0"
	exit
fi
. "$here/image.sh"

cache=${PMHASH_DAX_CACHE:-${TMPDIR:-/tmp}/pmhash-dax-cache}
cuts=${PMHASH_DAX_CUTS:-3}
domains=${PMHASH_DAX_DOMAINS:-CLWB eADR}
work=
vm=
passed=0
failed=0

cleanup()
{
	if [ -n "$vm" ]; then
		kill -KILL "$vm" 2>/dev/null
	fi
	if [ -n "$work" ] && [ -z "${PMHASH_KEEP:-}" ]; then
		rm -rf "$work"
	fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# ---- counting ----

pass()
{
	passed=$((passed + 1))
	echo "ok - $1"
}

fail()
{
	failed=$((failed + 1))
	echo "not ok - $1"
}

# give_up MESSAGE: nothing more can be tested
give_up()
{
	fail "$1"
	report
}

report()
{
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
	exit
}

# ---- the virtual machine ----

# boot NAME STEPS [PARAMETER=VALUE...]: start it; files NAME.console, NAME.server
# and NAME.acks in $work are its serial lines
boot()
{
	local name=$1 steps=$2 machine=pc,nvdimm=on

	shift 2
	if [ "$domain" = eADR ]; then
		machine=$machine,nvdimm-persistence=cpu
	fi
	this_boot=$name
	boot_start=$SECONDS
	say "$name: $steps"
	: >"$work/$name.console"
	: >"$work/$name.server"
	: >"$work/$name.acks"
	# no_timer_check: on a busy host the emulated timer comes too late for the kernel
	qemu-system-x86_64 -machine "$machine" -accel tcg,thread=multi -cpu max -smp 2 \
		-m 1G,slots=2,maxmem=4G \
		-object "memory-backend-file,id=pm,share=on,mem-path=$work/pm.img,size=1G" \
		-device nvdimm,id=nvdimm,memdev=pm \
		-drive "file=$work/disk.img,if=virtio,format=raw,cache=unsafe" \
		-kernel "$images/vmlinuz" -initrd "$work/initrd.gz" \
		-append "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off no_timer_check dax_domain=$domain dax_steps=boot_id,$steps $*" \
		-display none -monitor none -nodefaults -no-reboot \
		-serial "file:$work/$name.console" -serial "file:$work/$name.server" \
		-serial "file:$work/$name.acks" >"$work/$name.qemu" 2>&1 </dev/null &
	vm=$!
}

# wait_for SUFFIX PATTERN: until a line of a serial line matches; false, and the
# machine is ended, if it ends before or takes too long
wait_for()
{
	local deadline=$((SECONDS + 600))

	until grep -q "$2" "$work/$this_boot.$1"; do
		if ! kill -0 "$vm" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
			grep -q "$2" "$work/$this_boot.$1" && return 0
			fail "$this_boot: waiting for \"$2\""
			tail -n 30 "$work/$this_boot.console" "$work/$this_boot.server" "$work/$this_boot.qemu"
			power_cut
			return 1
		fi
		sleep 0.05
	done
}

# power_cut: no warning, nothing written back
power_cut()
{
	kill -KILL "$vm" 2>/dev/null
	wait "$vm" 2>/dev/null
	vm=
}

# switched_off: the guest has ended by itself
switched_off()
{
	wait_for console '^@mark off' || return
	for ((try = 0; try < 200; try++)); do
		kill -0 "$vm" 2>/dev/null || break
		sleep 0.1
	done
	power_cut
}

# lines SUFFIX: what came over a serial line, complete lines only
lines()
{
	tr -d '\r' <"$work/$this_boot.$1" | awk 'NR > 1 { print last } { last = $0 }'
}

# collect: count the tests of this boot in the guest
collect()
{
	local line

	while IFS= read -r line; do
		case $line in
			'@ok '*) pass "$this_boot: ${line#@ok }" ;;
			'@not ok '*) fail "$this_boot: ${line#@not ok }" ;;
			'@info '*) echo "   - $this_boot: ${line#@info }" ;;
		esac
	done < <(tr -d '\r' <"$work/$this_boot.console")
	tr -d '\r' <"$work/$this_boot.server" |
		sed -n "s/^.*LOG:  \(redo done at\|pmhash: undo journal\)/   - $this_boot: \1/p"
	say "$this_boot: $((SECONDS - boot_start)) s"
}

# is NAME EXPECTED FOUND
is()
{
	if [ "$2" = "$3" ]; then
		pass "$1"
	else
		fail "$1: expected \"$2\", found \"$3\""
	fi
}

# logged NAME COUNT PATTERN: the servers have logged it in this boot, so often
logged()
{
	is "$this_boot: $1" "$2" "$(grep -c "$3" "$work/$this_boot.server")"
}

# new_boot_id: it differs from the last one, so the rule for reboots counts
new_boot_id()
{
	local id

	id=$(tr -d '\r' <"$work/$this_boot.console" | sed -n 's/^@boot_id //p')
	if [ -n "$id" ] && [ "$id" != "$boot_id" ]; then
		pass "$this_boot: another boot id"
	else
		fail "$this_boot: another boot id: \"$id\" after \"$boot_id\""
	fi
	boot_id=$id
}

# same_files SERVER: its indexes have the files they had, so none was rebuilt
same_files()
{
	local now

	now=$(tr -d '\r' <"$work/$this_boot.console" | grep "^@file $1 ")
	is "$this_boot: the files of server $1 are the same" "${files[$1]}" "$now"
}

note_files()
{
	files[$1]=$(tr -d '\r' <"$work/$this_boot.console" | grep "^@file $1 ")
}

# acknowledged CUT: from the clients' line, parameters for the boot after.  Only
# clients 0 and 1 are at work on the server whose prepared ones are wanted.
acknowledged()
{
	local acks waited gid kept=

	acks=$(lines acks)
	waited=$(printf '%s\n' "$acks" | grep -c '^a 0 ')
	for gid in $(printf '%s\n' "$acks" | sed -n 's/^k \(keep-[01]-\)/\1/p'); do
		if ! printf '%s\n' "$acks" | grep -qx "r $gid"; then
			kept=$kept,$gid
		fi
	done
	after_cut="dax_cut=$1 dax_acked=$waited dax_prepared=${kept#,}"
	echo "   - $this_boot: $waited commits that client 0 waited for were acknowledged, $(printf '%s\n' "$acks" | grep -c '^a 1 ') of client 1"
	if [ -n "$kept" ]; then
		left_prepared=$((left_prepared + 1))
	fi
}

# ---- the story of one persistence domain ----

# pull_the_plug CUT: in the middle of the load
pull_the_plug()
{
	wait_for acks '^a 0 ' && wait_for acks '^a 1 ' || return
	sleep "$((3 + RANDOM % 3)).$((RANDOM % 10))"
	power_cut
	collect
	acknowledged "$1"
}

# trusted: nothing was rebuilt or given up
trusted()
{
	logged "nothing was rebuilt or given up" 0 'has been rebuilt\|not trusted:\|removed index file'
	same_files a
}

# recovered: what must hold at each start of server a after a cut
recovered()
{
	new_boot_id
	logged "the reboot was noticed" 1 'operating system went down, or the file system of the pool was unmounted'
	logged "the undo journal was used" 1 'pmhash: undo journal: '
	entries_undone=$((entries_undone + $(sed -n 's/.* \([0-9]*\) entries taken out.*/\1/p' "$work/$this_boot.server" | head -n 1)))
	trusted
}

# A file that has just grown when the power goes.
growth()
{
	boot "$domain-grow" mount,grow
	if wait_for console '^@mark grown'; then
		power_cut
		new_boot_id
		grown_keys=$(tr -d '\r' <"$work/$this_boot.console" | sed -n 's/^@mark grown //p')
	fi
}

# The power goes while the file system is mounted without dax; the next time it
# is mounted with dax.
other_class()
{
	boot "$domain-nodax" mount:never,start:a,cache,load dax_load=8
	pull_the_plug 8 || return
	new_boot_id
	boot "$domain-again" mount,start_no_rebuild:a,invalid:a,check:a,stop:a,off
	switched_off
	collect
	new_boot_id
}

# Damage under a running server.
faults()
{
	boot "$domain-faults" mount,start:a,faults,stop:a,off
	switched_off
	collect
	logged "no server process has died" 0 'was terminated by signal'
}

story()
{
	local cut after_cut grown_keys= check=mount,start:a,valid:a,check:a,acknowledged,prepared

	rm -f "$work/pm.img"
	truncate -s 1G "$work/pm.img"
	cp --sparse=always "$images/disk.img" "$work/disk.img"
	boot_id=
	files=()

	boot "$domain-1" namespace,domain,probe,start:a,start:b,schema:a,schema:b,valid:a,valid:b,map_sync,load_beside,load dax_load=1
	pull_the_plug 1 || return
	new_boot_id
	note_files a

	for ((cut = 2; cut <= cuts; cut++)); do
		boot "$domain-$cut" "$check,load" "dax_load=$cut $after_cut"
		pull_the_plug "$cut" || return
		recovered
	done

	growth

	boot "$domain-check" "$check,grown,stop:a,start_no_rebuild:b,invalid:b,check:b,stop:b,off" "dax_keys=$grown_keys $after_cut"
	switched_off
	collect
	new_boot_id
	same_files a
	note_files b

	boot "$domain-clean" mount,start:a,valid:a,check:a,stop:a,start:b,valid:b,check:b,stop:b,off
	switched_off
	collect
	new_boot_id
	logged "no unclean end was seen" 0 'operating system went down'
	trusted
	same_files b
}

# ---- preparations ----

cd /
install_server $PMHASH_DAX_PACKAGES || give_up "install packages"
server=$pg_config
images=$(prepare_images "$cache" "$here/guest/init") || give_up "kernel and disk of the virtual machine"

work=$(mktemp -d "${TMPDIR:-/tmp}/pmhash-dax.XXXXXX")
mkdir "$work/build" "$work/payload" "$work/payload/payload"
tar -C "$top" -cf - --exclude=.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' . |
	tar -C "$work/build" --no-same-owner -xf -
say "build"
quietly make -s -C "$work/build" -j"$(nproc)" PG_CONFIG="$server" with_llvm=no COPT=-Werror \
	DESTDIR="$work/payload/payload" install || give_up "build"
mkdir -p "$work/payload/payload/dax"
cp "$here"/guest/*.sh "$here"/guest/*.sql "$here"/guest/*.conf "$top/sql/setup.sql" "$work/payload/payload/dax/"
quietly gcc -std=c11 -O2 -Wall -Wextra -Werror -D_GNU_SOURCE -I"$work/build/src/engine" \
	-o "$work/payload/payload/dax/pm_probe" \
	"$here/guest/pm_probe.c" "$work"/build/src/engine/*.o -lpmem || give_up "build"
(cd "$work/payload" && find payload | cpio --quiet -o -H newc | gzip -1) >"$work/payload.gz"
cat "$images/initrd.gz" "$work/payload.gz" >"$work/initrd.gz"

declare -A files
entries_undone=0
left_prepared=0
for domain in $domains; do
	story
done
other_class
faults
is "entries that the power cuts left without their rows were taken out" yes \
	"$([ "$entries_undone" -gt 0 ] && echo yes || echo "no, $entries_undone")"
is "transactions were left prepared" yes "$([ "$left_prepared" -gt 0 ] && echo yes || echo no)"
report
