#!/bin/sh
#
# refused.sh COMPILER: src/engine/layout.h stops the build for a machine on which files
# would not be right, and says why.  Prints TAP.

set -u
compiler=$1
engine=$(dirname "$0")/../../src/engine
number=0
failed=0

# refused EXPECTED OPTION...: does the compiler say this ('': nothing) with these options?
refused()
{
	expected=$1
	shift
	number=$((number + 1))
	said=$("$compiler" -std=gnu11 -ffreestanding -fsyntax-only "$@" -x c "$engine/layout.h" 2>&1)
	status=$?
	result="not ok"
	if [ -z "$expected" ]; then
		[ $status -eq 0 ] && [ -z "$said" ] && result=ok
	elif [ $status -ne 0 ]; then
		case $said in *"$expected"*) result=ok ;; esac
	fi
	if [ "$result" != ok ]; then
		failed=$((failed + 1))
		echo "$said" >&2
	fi
	echo "$result $number - refused: ${expected:-nothing said here}"
}

refused ''
refused 'pmhash runs on little-endian machines only' \
	-U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__
refused 'pmhash runs on 64-bit machines only' -m32
echo "1..$number"
[ $failed -eq 0 ]
