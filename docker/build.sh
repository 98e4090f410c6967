#!/bin/sh
# build.sh SOURCES DESTINATION EXTENSION: build with the server packages of the version
# that is installed, or Debian's newest, and install below DESTINATION.  EXTENSION gets
# what CloudNativePG mounts: lib, share/extension, licenses, and in system the libraries
# that this image did not have before.  For docker/Dockerfile; as root.
set -eu
export DEBIAN_FRONTEND=noninteractive
had=$(ldconfig -p)
major=$(ls /usr/lib/postgresql 2>/dev/null | sort -V | tail -n 1)
apt-get update -q
apt-get install -q -y --no-install-recommends gcc libc6-dev make libpmem-dev \
	libxxhash-dev "postgresql-server-dev-${major:-all}"
pg_config=$(ls -d /usr/lib/postgresql/*/bin/pg_config | sort -V | tail -n 1)
make -s -C "$1" with_llvm=no PG_CONFIG="$pg_config" clean all
make -s -C "$1" with_llvm=no PG_CONFIG="$pg_config" DESTDIR="$2" install

library=$2$("$pg_config" --pkglibdir)/pmhash.so
mkdir -p "$3/lib" "$3/share/extension" "$3/system" "$3/licenses/pmhash"
cp "$library" "$3/lib/"
cp "$2$("$pg_config" --sharedir)"/extension/pmhash* "$3/share/extension/"
cp "$1/LICENSE" "$3/licenses/pmhash/"
ldd "$library" | while read -r name arrow file _; do
	case $arrow$had in
		*"	$name "*) continue ;;	# there before
		"=>"*) ;;
		*) continue ;;
	esac
	package=$(dpkg -S "*/$name" | sed -n '1s/[,:].*//p')
	cp "$file" "$3/system/"
	mkdir -p "$3/licenses/$package"
	cp "/usr/share/doc/$package/copyright" "$3/licenses/$package/"
done
