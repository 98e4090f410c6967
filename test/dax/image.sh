# Sourced by test/dax/run.sh: the virtual machine's kernel, its first root file
# system in memory (initrd) and its disk, made of Debian's packages and kept in
# a cache directory.  All need root.

# Kernel modules, in the order in which they are loaded.
DAX_MODULES="crc32c_generic crc16 libcrc32c mbcache jbd2 ext4 libnvdimm nd_btt
	nd_pmem nfit virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev
	virtio_pci virtio_blk"

# What the guest has beyond the base system; the server in the very version
# that the extension is built for.
guest_packages()
{
	echo "postgresql-$pg_major=$(dpkg-query -W -f '${Version}' "postgresql-$pg_major")" \
		"postgresql-client-$pg_major=$(dpkg-query -W -f '${Version}' "postgresql-client-$pg_major")" \
		libpmem1 ndctl procps kmod e2fsprogs
}

# The kernel package that the machine's own package lists call the current one.
kernel_package()
{
	apt-cache depends linux-image-amd64 |
		sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# cache_key FILE...: changes with the packages and with the given files
cache_key()
{
	{
		guest_packages
		apt-cache show --no-all-versions "$(kernel_package)" | grep -E '^(Package|Version):'
		cat "$@"
	} | sha256sum | cut -c 1-16
}

# make_kernel DIRECTORY: unpack the kernel there (vmlinuz, modules)
make_kernel()
{
	local package

	package=$(kernel_package)
	say "kernel: $package"
	mkdir -p "$1/kernel"
	(cd "$1" && quietly apt-get -q download "$package") || return 1
	dpkg-deb -x "$1"/"$package"_*.deb "$1/kernel" || return 1
	rm -f "$1"/"$package"_*.deb
	cp "$1"/kernel/boot/vmlinuz-* "$1/vmlinuz"
}

# make_initrd DIRECTORY INIT: busybox, the modules, and INIT as /init
make_initrd()
{
	local tree=$1/initrd n=10 module path

	mkdir -p "$tree/bin" "$tree/modules" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/disk"
	cp "$(command -v busybox)" "$tree/bin/busybox"
	cp "$2" "$tree/init"
	chmod 755 "$tree/init"
	for module in $DAX_MODULES; do
		path=$(find "$1/kernel/lib/modules" -name "$module.ko" | head -n 1)
		if [ -z "$path" ]; then
			echo "the kernel package has no module $module" >&2
			return 1
		fi
		cp "$path" "$tree/modules/$n-$module.ko"
		n=$((n + 1))
	done
	(cd "$tree" && find . | cpio --quiet -o -H newc | gzip -1) >"$1/initrd.gz"
	rm -rf "$tree" "$1/kernel"
}

# in_guest ROOT COMMAND...: in the guest's root file system, here
in_guest()
{
	local root=$1

	shift
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root \
		DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} \
		chroot "$root" "$@"
}

# machine_sources: this machine's own package sources of the release it runs
# (base, updates, security), a line "URI SUITE COMPONENT" each, base first
machine_sources()
{
	local codename

	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
		grep -E " $codename(-updates|-security)? main\$" | sort -u -k 2
}

# make_disk DIRECTORY: the guest's root file system, with two empty clusters
# (/var/lib/dax/a and b), as an image
make_disk()
{
	local root=$1/root codename mirror cluster

	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mirror=$(machine_sources | sed -n "s/ $codename main\$//p" | head -n 1)
	http_proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
	say "guest: debootstrap $codename"
	http_proxy=$http_proxy quietly debootstrap --variant=minbase "$codename" "$root" "$mirror" || return 1
	machine_sources | sed 's/^/deb /' >"$root/etc/apt/sources.list"
	mkdir -p "$root/etc/postgresql-common/createcluster.d"
	echo 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.d/dax.conf"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	say "guest:" $(guest_packages)
	quietly in_guest "$root" apt-get -q update || return 1
	quietly in_guest "$root" apt-get -q -y --no-install-recommends install $(guest_packages) || return 1
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* \
		"$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale

	for cluster in a b; do
		install -d -o "$(in_guest "$root" id -u postgres)" -g "$(in_guest "$root" id -g postgres)" \
			"$root/var/lib/dax"
		quietly in_guest "$root" runuser -u postgres -- \
			"/usr/lib/postgresql/$pg_major/bin/initdb" -k -N --no-locale -E UTF8 -A trust \
			-D "/var/lib/dax/$cluster" || return 1
		echo "include '/dax/postgresql.conf'" >>"$root/var/lib/dax/$cluster/postgresql.conf"
	done
	mkdir -p "$root/pmem" "$root/dax"
	mke2fs -q -t ext4 -d "$root" "$1/disk.img" 1500M || return 1
	rm -rf "$root"
}

# prepare_images CACHE INIT: print the directory with vmlinuz, initrd.gz and
# disk.img, made now if CACHE does not have it
prepare_images()
{
	local directory new

	directory=$1/$(cache_key "$2" "${BASH_SOURCE[0]}")
	if [ ! -d "$directory" ]; then
		mkdir -p "$1"
		new=$(mktemp -d "$1/new.XXXXXX")
		if ! { make_kernel "$new" && make_initrd "$new" "$2" && make_disk "$new"; } >&2; then
			rm -rf "$new"
			return 1
		fi
		chmod 755 "$new"
		mv -T "$new" "$directory"
	fi
	echo "$directory"
}
